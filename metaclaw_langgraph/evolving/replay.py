"""Replaying a run: the same task once more, with a set of skills of our choice.

The replay is watched like any run, but by a host of its own: it is given the skills on trial, it
is judged, and it is stored nowhere.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from langchain_core.messages import messages_from_dict
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.pregel import Pregel

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.evolving.rules import do_not_learn
from metaclaw_langgraph.learning.trajectories import trajectory_of
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Json, Retrieved, Trajectory, Verdict
from metaclaw_langgraph.wrapping.handler import RunHandler, with_handler
from metaclaw_langgraph.wrapping.run import Run
from metaclaw_langgraph.wrapping.task import TaskFunction, task_of_input

__all__ = ["Rejudge", "Replay", "Replayer", "graph_replay", "restored"]

Replay: TypeAlias = Callable[[Trajectory, RunnableConfig], Any]
"""Runs the trajectory's task again. The config has to be passed on to the graph: it carries the
skills. May be async."""


class Rejudge(Protocol):
    """Judges a replay; None when nobody has an opinion, or the judge failed."""

    def __call__(self, trajectory: Trajectory) -> Verdict | None: ...


class Replayer:
    """Replays runs and says whether they passed."""

    def __init__(
        self,
        replay: Replay,
        rejudge: Rejudge,
        namespace: str,
        *,
        timed: Timed,
        timeout: float,
        redact: Callable[[str], str],
        find_task: TaskFunction = task_of_input,
    ) -> None:
        self._replay = replay
        self._rejudge = rejudge
        self._namespace = namespace
        self._timed = timed
        self._timeout = timeout
        self._redact = redact
        self._find_task = find_task

    def passed(self, trajectory: Trajectory, skills: Retrieved) -> bool | None:
        """Whether the task passes with these skills; None when that cannot be told."""
        host = _Host(self._namespace, skills)
        run = Run(host, self._find_task)
        handler = RunHandler(run)
        raised = self._run(trajectory, with_handler(None, handler))
        if host.finished is None:
            return None  # no graph ran to its end with this config: it says nothing of the skill
        done = trajectory_of(run, self._redact)
        if raised is not None or run.outcome == "failed":
            error = done.error or raised or "failed"
            return None if _transient(done, error) else False
        if run.outcome != "ok":
            return None
        verdict = self._rejudge(done)
        return None if verdict is None else verdict.reward > 0

    def _run(self, trajectory: Trajectory, config: RunnableConfig) -> str | None:
        """Run it; what it raised."""
        try:
            self._timed.call(
                self._timeout, lambda: _call(self._replay, trajectory, config), "the replay"
            )
        except StoppedError:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


class _Host:
    """What a run that is only a trial belongs to."""

    def __init__(self, namespace: str, skills: Retrieved) -> None:
        self.namespace = namespace
        self.deadline = 1.0
        self.finished: Run | None = None
        self._skills = skills

    def look_up(self, task: str | None) -> Future[Retrieved]:
        future: Future[Retrieved] = Future()
        future.set_result(self._skills)
        return future

    def record(self, run: Run) -> None:
        self.finished = run

    def incident(self, part: str, kind: str, error: BaseException | str) -> None:
        """A trial's mishaps show in its result."""


def graph_replay(graph: Pregel[Any, Any, Any, Any]) -> Replay:
    """Replays by invoking the graph with the recorded input, without its checkpointer: nothing
    of a trial is to be found in the user's threads."""
    fresh = graph.copy({"checkpointer": None})
    needs_async = _async_only(fresh)

    def replay(trajectory: Trajectory, config: RunnableConfig) -> Any:
        given = restored(trajectory.input)
        if needs_async:
            return asyncio.run(fresh.ainvoke(given, config))
        return fresh.invoke(given, config)

    return replay


def _async_only(step: Any) -> bool:
    """Whether a node, a part of it or one of its tools can be awaited only."""
    if isinstance(step, Pregel):
        parts = [node.bound for node in step.nodes.values()]
    else:
        parts = [*getattr(step, "steps", ()), *getattr(step, "tools_by_name", {}).values()]
    awaited = getattr(step, "afunc", None) or getattr(step, "coroutine", None)
    if awaited is not None and getattr(step, "func", None) is None:
        return True
    return any(_async_only(part) for part in parts)


def restored(value: Json) -> Any:
    """A recorded input as the graph takes it: messages are messages again."""
    if isinstance(value, Mapping):
        if set(value) == {"type", "data"} and isinstance(value["data"], Mapping):
            try:
                return messages_from_dict([dict(value)])[0]
            except (ValueError, KeyError):
                pass  # the user's own table, with the same two keys
        return {key: restored(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [restored(item) for item in value]
    return value


def _call(replay: Replay, trajectory: Trajectory, config: RunnableConfig) -> None:
    # In a context of its own (`Timed`). Without this it would be a subgraph of the learning graph,
    # and write to that one's checkpoints.
    var_child_runnable_config.set(None)
    result = replay(trajectory, config)
    if inspect.isawaitable(result):
        asyncio.run(_finished(result))


async def _finished(result: Any) -> None:
    await result


def _transient(trajectory: Trajectory, error: str) -> bool:
    """An outage says nothing about the skill."""
    failed = Failure(trajectory, Verdict(-1.0, "run", error))
    return do_not_learn(failed) is not None
