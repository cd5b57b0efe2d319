"""Look-ups that nobody waits for any more take no thread's time from those that somebody does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from langchain_core.messages import HumanMessage

from metaclaw_langgraph.types import Retrieved
from metaclaw_langgraph.wrapping.pool import LookupPool, PoolStuckError
from metaclaw_langgraph.wrapping.run import Run

NOTHING = Retrieved(1, (), "")
ASKED = [HumanMessage("hello")]


class OneThread:
    """A host with one look-up thread; the first look-up holds it until it is let go."""

    namespace = "default"
    deadline = 0.05

    def __init__(self) -> None:
        self.pool: LookupPool[Retrieved] = LookupPool("test", threads=1, stuck_after=60)
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.done: list[str | None] = []
        self.recorded: list[Run] = []

    def look_up(self, task: str | None) -> Future[Retrieved]:
        def job() -> Retrieved:
            self.begun.set()
            self.let_go.wait()
            self.done.append(task)
            return NOTHING

        return self.pool.submit(job)

    def record(self, run: Run) -> None:
        self.recorded.append(run)

    def incident(self, part: str, kind: str, error: BaseException | str) -> None:
        """Not what is tested here."""


@pytest.fixture
def host() -> Iterator[OneThread]:
    host = OneThread()
    first = Run(host, task="first")
    first.start_lookup()
    assert host.begun.wait(10)
    yield host
    host.let_go.set()
    host.pool.close(10)


def last(host: OneThread) -> list[str | None]:
    """What was looked up by the time that a new look-up is answered."""
    host.let_go.set()
    host.look_up("last").result(10)
    return host.done


def test_a_run_that_gave_up_waiting(host: OneThread) -> None:
    late = Run(host, task="late")
    assert late.skills(ASKED) == ""
    assert late.retrieval == "missed"
    assert last(host) == ["first", "last"]


async def test_an_async_run_that_gave_up_waiting(host: OneThread) -> None:
    late = Run(host, task="late")
    assert await late.askills(ASKED) == ""
    assert late.retrieval == "missed"
    assert last(host) == ["first", "last"]


def test_a_run_that_ended_without_a_model_call(host: OneThread) -> None:
    short = Run(host, task="short")
    short.start_lookup()
    short.finish("ok")
    assert host.recorded == [short]
    assert last(host) == ["first", "last"]


def test_a_pool_whose_threads_all_hang_refuses_at_once() -> None:
    pool: LookupPool[Retrieved] = LookupPool("test", threads=1, stuck_after=0.0)
    begun, let_go = threading.Event(), threading.Event()

    def hang() -> Retrieved:
        begun.set()
        let_go.wait()
        return NOTHING

    waiting = pool.submit(hang)
    assert begun.wait(10)
    with pytest.raises(PoolStuckError, match="have hung"):
        pool.submit(lambda: NOTHING)
    let_go.set()
    assert waiting.result(10) is NOTHING
    pool.close(10)
