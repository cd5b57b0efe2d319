"""What the tests of the learning loop share: judges, evolvers, and events to wait for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.learning.work import LearningWork
from metaclaw_langgraph.ledger import Failure, Ledger
from metaclaw_langgraph.types import Outcome, Skill, Trajectory, Verdict, VerdictSource
from metaclaw_langgraph.wrapping.run import new_id
from tests.evolving.runs import trajectory

WORDS = "tests.skills.conftest:WordEmbedder"
RETRIEVAL = {"embedder": WORDS, "deadline": 20.0}
# A skill on probation is withheld from some runs; here that would be chance.
ALWAYS = {"holdout": 1e-9}
TASK = "write the invoice for order seven"
LESSON = "Give all amounts in euros."
NAMESPACE = "shop"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class SomeJudge:
    """Judges by a function, under any source; keeps what it was shown."""

    def __init__(self, judge: Callable[[Trajectory], Any], source: VerdictSource = "judge") -> None:
        self.source: VerdictSource = source
        self.name = f"some {source}"
        self.shown: list[str] = []
        self._judge = judge

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        self.shown.append(trajectory.id)
        found: Verdict | None = self._judge(trajectory)
        return found


def says(reward: float, source: VerdictSource = "judge", reason: str = "") -> SomeJudge:
    """A judge that always says the same."""
    return SomeJudge(lambda _: Verdict(reward, source, reason), source)


class StandInEvolver:
    """Stands in for an LLM: one skill from all failures, unless it is told to do otherwise."""

    name = "stand-in"
    needs_words = False

    def __init__(self, act: Callable[[], None] = lambda: None, body: str = LESSON) -> None:
        self.asked: list[list[str]] = []
        self.related: list[list[str]] = []
        self.body = body
        self._act = act

    def wants(self, failure: Failure) -> bool:
        return True

    def draft(self, failures: Sequence[Failure], related: Sequence[Skill]) -> Sequence[Draft]:
        self.asked.append([one.trajectory.id for one in failures])
        self.related.append([skill.name for skill in related])
        self._act()
        origin = tuple(self.asked[-1])
        skill = Skill("invoices", "How to write the invoice for an order", self.body)
        return [Draft(skill, None, origin, "amounts without a currency")]

    def merge(self, old: Skill, new: Skill) -> Skill:
        return replace(new, name=old.name)


class Passes:
    """Every piece of work of the learners of this process, as an event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        done: queue.Queue[float | None] = queue.Queue()
        work = LearningWork.__call__
        self.done = done

        def spied(self: LearningWork, at_once: bool) -> Any:
            found = work(self, at_once)
            done.put(None)
            return found

        monkeypatch.setattr(LearningWork, "__call__", spied)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for passes until the condition holds."""
        while not (found := condition()):
            self.done.get(timeout=30)
        return found


def ledger_of(agent: Any) -> Ledger:
    found: Ledger = agent.metaclaw._store.ledger()
    return found


def failed(ledger: Ledger, *reasons: str, **marks: Any) -> list[str]:
    """Store a failure for each reason, given by a person."""
    return [judged(ledger, Verdict(-1.0, "human", reason), **marks) for reason in reasons]


def judged(ledger: Ledger, verdict: Verdict, **marks: Any) -> str:
    id = put(ledger, **marks)
    ledger.add_verdict(marks.get("namespace", NAMESPACE), id, verdict)
    return id


def put(
    ledger: Ledger,
    *,
    id: str | None = None,
    namespace: str = NAMESPACE,
    task: str | None = TASK,
    outcome: Outcome = "ok",
    error: str | None = None,
    ended: datetime | None = None,
    seconds: float = 1.0,
    thread: str | None = None,
) -> str:
    """Store a run that took so many seconds."""
    end = ended or START
    run = replace(
        trajectory(id=id or new_id(), task=task, outcome=outcome, error=error),
        namespace=namespace,
        thread_id=thread,
        started_at=end - timedelta(seconds=seconds),
        ended_at=end,
    )
    ledger.add_trajectories([run])
    return run.id


class Held:
    """A call that does not come back before the test lets it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.free = threading.Event()

    def __call__(self, *_: Any) -> None:
        self.reached.set()
        self.free.wait(60)
