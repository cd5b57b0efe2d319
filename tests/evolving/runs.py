"""Trajectories and failures for the tests of the evolving part, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import (
    Json,
    ModelCall,
    Outcome,
    ToolCall,
    Trajectory,
    Verdict,
    VerdictSource,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def message(kind: str, text: Json) -> dict[str, Json]:
    """A message as trajectories hold it."""
    return {"type": kind, "data": {"content": text}}


def tool(
    step: int, error: str | None = None, output: Json = "done", name: str = "search"
) -> ToolCall:
    """A tool call that takes the second number `step`."""
    begin = START + timedelta(seconds=step)
    return ToolCall(name, None, {}, output, error, begin, begin + timedelta(seconds=0.5))


def call(step: int, error: str | None = None) -> ModelCall:
    """A model call that takes the second number `step`."""
    begin = START + timedelta(seconds=step)
    return ModelCall((), None, None, begin, begin + timedelta(seconds=0.5), error=error)


def trajectory(
    *messages: Mapping[str, Json],
    id: str = "t1",
    task: str | None = None,
    outcome: Outcome = "ok",
    error: str | None = None,
    tools: Sequence[ToolCall] = (),
    calls: Sequence[ModelCall] = (),
) -> Trajectory:
    return Trajectory(
        id=id,
        namespace="shop",
        thread_id=None,
        task=task,
        started_at=START,
        ended_at=START + timedelta(minutes=1),
        outcome=outcome,
        error=error,
        generation=1,
        adapter=None,
        retrieval="empty",
        skills=(),
        input=None,
        output=None,
        messages=messages,
        calls=tuple(calls),
        tools=tuple(tools),
    )


def failure(run: Trajectory, source: VerdictSource = "judge", reason: str = "") -> Failure:
    return Failure(run, Verdict(-1.0, source, reason))
