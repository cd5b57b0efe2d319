"""One run of a wrapped graph while it goes on: its look-up of skills and what it did so far.

A Run holds references only; turning it into a Trajectory (copying, redacting, compressing) is left
to the recorder's thread, so that the caller does not pay for it. Exceptions are kept as text: their
tracebacks would keep the frames of the user's run alive.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from langchain_core.messages import BaseMessage

from metaclaw_langgraph.types import Outcome, RetrievalState, Retrieved
from metaclaw_langgraph.wrapping.task import TaskFunction, task_of_input, task_of_messages

__all__ = ["Host", "OpenSpan", "Run", "new_id"]


class Host(Protocol):
    """What a run needs of the runtime that it belongs to."""

    namespace: str
    deadline: float

    def look_up(self, task: str | None) -> Future[Retrieved]:
        """Start a look-up; may raise when retrieval is out of order."""

    def record(self, run: Run) -> None:
        """Take over a finished run."""

    def incident(self, part: str, kind: str, error: BaseException | str) -> None:
        """Count something that went wrong."""


@dataclass(slots=True)
class OpenSpan:
    """A run of LangChain's inside this run: a node, a model call or a tool call."""

    id: UUID
    parent: UUID | None
    kind: Literal["chain", "model", "tool"]
    name: str
    started_ns: int
    ended_ns: int | None = None
    input: Any = None
    output: Any = None
    error: str | None = None
    model: str | None = None
    call_id: str | None = None
    tokens: dict[str, Any] | None = None


@dataclass(slots=True)
class Run:
    """The state of one run. Parallel nodes reach it from several threads."""

    host: Host
    find_task: TaskFunction = task_of_input
    """How the user's request is found in the graph's input."""
    id: str = field(default_factory=lambda: new_id())
    started_ns: int = field(default_factory=time.time_ns)
    ended_ns: int | None = None
    thread_id: str | None = None
    task: str | None = None
    input: Any = None
    output: Any = None
    outcome: Outcome | None = None
    error: str | None = None
    interrupted: bool = False
    spans: dict[UUID, OpenSpan] = field(default_factory=dict)
    root_id: UUID | None = None
    retrieval: RetrievalState = "none"
    retrieved: Retrieved | None = None
    asked: bool = False
    """Whether a model call has asked for skills."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _future: Future[Retrieved] | None = None
    _give_up_at: float = 0.0

    def start_lookup(self, messages: Sequence[BaseMessage] | None = None) -> None:
        """Ask for the skills of this run's task, once; never waits and never raises."""
        with self._lock:
            if self._future is not None or self.retrieval != "none":
                return
            if self.task is None and messages is not None:
                self.task = task_of_messages(messages)
            if self.task is None and messages is None:
                return  # the first model call may show the task
            self._give_up_at = time.monotonic() + self.host.deadline
            try:
                self._future = self.host.look_up(self.task)
            except Exception as error:
                self._fail("failed", error)

    def skills(self, messages: Sequence[BaseMessage]) -> str:
        """The text to inject into a model call; waits for the look-up within the deadline."""
        self.asked = True
        self.start_lookup(messages)
        if self._settled():
            return self._block()
        assert self._future is not None
        try:
            self._settle(self._future.result(timeout=self._time_left()))
        except Exception as error:
            self._settle_error(error)
        return self._block()

    async def askills(self, messages: Sequence[BaseMessage]) -> str:
        """As `skills`, without blocking the event loop."""
        self.asked = True
        self.start_lookup(messages)
        if self._settled():
            return self._block()
        assert self._future is not None
        try:
            waiting = asyncio.wrap_future(self._future)
            async with asyncio.timeout(self._time_left()):
                self._settle(await asyncio.shield(waiting))
        except Exception as error:
            self._settle_error(error)
        return self._block()

    def finish(self, outcome: Outcome, error: str | None = None) -> None:
        """Close the run and hand it over; what comes after is ignored."""
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
        self.error = error
        self.ended_ns = time.time_ns()
        self._stamp_or_cancel()
        self.host.record(self)

    def _settled(self) -> bool:
        if self.retrieval == "none" and self._future is not None and self._future.done():
            try:
                self._settle(self._future.result())
            except Exception as error:
                self._settle_error(error)
        return self.retrieval != "none" or self._future is None

    def _block(self) -> str:
        if self.retrieved is None or not self.retrieved.block:
            return ""
        return self.retrieved.block

    def _time_left(self) -> float:
        return max(0.0, self._give_up_at - time.monotonic())

    def _settle(self, retrieved: Retrieved) -> None:
        with self._lock:
            if self.retrieval == "none":
                self.retrieved = retrieved
                self.retrieval = "hit" if retrieved.hits else "empty"

    def _settle_error(self, error: Exception) -> None:
        if self._future is not None:
            self._future.cancel()  # if it still waits for its turn, others get theirs sooner
        with self._lock:
            self._fail("missed" if isinstance(error, TimeoutError) else "failed", error)

    def _fail(self, state: RetrievalState, error: Exception) -> None:
        """Go on without skills, for all of this run: it must not see half a generation."""
        if self.retrieval != "none":
            return
        self.retrieval = state
        late = f"no answer within {self.host.deadline:g} s"
        self.host.incident("retrieval", state, late if state == "missed" else error)

    def _stamp_or_cancel(self) -> None:
        """A run that called no model still knows its generation, if the look-up has answered."""
        if self._future is not None and not self._settled():
            self._future.cancel()


def new_id() -> str:
    """A version 7 UUID: unique, and sorted by time."""
    millis = time.time_ns() // 1_000_000
    raw = (millis << 80) | int.from_bytes(os.urandom(10), "big")
    raw = (raw & ~(0xF << 76)) | (0x7 << 76)
    raw = (raw & ~(0x3 << 62)) | (0x2 << 62)
    return str(UUID(int=raw))
