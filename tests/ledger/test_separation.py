"""What evolutions consume is never trained on, whatever happens in whatever order.

Runs, verdicts, evolutions, rollbacks, drains and crashes interleave at random, against a model of
what each trajectory may be. A crash is an exception inside a transaction, before any of its
statements or before its commit. The same with real processes and kill -9 is in `test_crash.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine, event

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger import Evolution, Ledger, NewSkill
from metaclaw_langgraph.types import Outcome, Skill, Trajectory, Verdict, VerdictSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RANK = ["run", "judge", "verifier", "human"]
OUTCOMES = ["ok", "ok", "ok", "failed", "interrupted", "cancelled"]

sources = st.sampled_from(RANK)
rewards = st.sampled_from([-1.0, 0.0, 0.5, 1.0])
# Without a time it was given now; the others are fetched late, or from a clock that is ahead.
times = st.sampled_from([None, None, None, NOW, NOW.replace(month=2), NOW.replace(year=2999)])
# Most operations go through.
crashes = st.sampled_from([*[None] * 20, *range(9), 99])


class Crash(Exception):
    """The process dies here."""


@contextmanager
def _crashing(engine: Engine, at: int) -> Iterator[None]:
    """Raise before the statement number `at`, or else before the first commit."""
    seen = Counter[str]()

    def before_statement(_: object, __: object, statement: str, *___: object) -> None:
        seen["statements"] += not statement.startswith("BEGIN")
        if seen["statements"] > at:
            raise Crash

    def before_commit(_: object) -> None:
        raise Crash

    event.listen(engine, "before_cursor_execute", before_statement)
    event.listen(engine, "commit", before_commit)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", before_statement)
        event.remove(engine, "commit", before_commit)


@dataclass
class Known:
    """A trajectory in the model. `used` is final: consumed, or trained."""

    outcome: Outcome
    generation: int | None
    verdicts: list[Verdict] = field(default_factory=list)
    used: str | None = None

    def reward(self) -> float | None:
        counted = [
            (RANK.index(verdict.source), verdict.at, order, verdict.reward)
            for order, verdict in enumerate(self.verdicts)
            if verdict.source == "human" or self.outcome in ("ok", "failed")
            if (verdict.source, verdict.reward) != ("judge", 0)
        ]
        return max(counted)[-1] if counted else None

    def take(self, verdict: Verdict) -> None:
        self.verdicts.append(replace(verdict, at=verdict.at or datetime.now(UTC)))

    def role(self, current: int) -> str:
        reward = self.reward()
        if self.used or reward is None:
            return self.used or "unjudged"
        if reward <= 0:
            return "support"
        return "query" if self.generation == current else "stale"


class Machine(RuleBasedStateMachine):
    template: Path

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="metaclaw-ledger-"))
        shutil.copy(self.template, self.folder / "ledger.db")
        self.url = f"sqlite:///{self.folder / 'ledger.db'}"
        self.ledger = Ledger.open(self.url)
        self.known: dict[str, Known] = {}
        self.current = 0
        self.evolutions: dict[str, tuple[set[str], int | None]] = {}
        self.training: dict[str, tuple[str, set[str]]] = {}
        self.attempts = 0
        # Something to work with from the first step on, also where hypothesis leaves runs out.
        start: list[Outcome] = ["ok", "ok", "failed", "ok", "interrupted", "failed"]
        self._store(start, 0, "judge", False, None)
        for id in ("t2", "t3"):
            self.ledger.add_verdict("agent", id, Verdict(-1.0, "human"))
            self.known[id].take(Verdict(-1.0, "human"))

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.folder)

    @rule(
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4),
        behind=st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, None]),
        praise=st.sampled_from([None, *RANK]),
        again=st.booleans(),
        crash=crashes,
    )
    def run(
        self,
        outcomes: list[Outcome],
        behind: int | None,
        praise: VerdictSource | None,
        again: bool,
        crash: int | None,
    ) -> None:
        self._store(outcomes, behind, praise, again, crash)

    def _store(
        self,
        outcomes: list[Outcome],
        behind: int | None,
        praise: VerdictSource | None,
        again: bool,
        crash: int | None,
    ) -> None:
        generation = None if behind is None else max(0, self.current - behind)
        first = len(self.known)
        new = {f"t{first + n}": Known(one, generation) for n, one in enumerate(outcomes)}
        batch = [_trajectory(id, known) for id, known in new.items()]
        if again and self.known:
            # Somebody has it in the spool still: stored before, and different from then.
            batch.append(_trajectory("t0", Known("failed", self.current)))
        if not self._done(crash, lambda: self.ledger.add_trajectories(batch)):
            return
        self.known.update(new)
        for id, known in new.items():
            if known.outcome == "failed":
                known.take(Verdict(-1.0, "run"))
            if praise is not None:
                self.ledger.add_verdict("agent", id, Verdict(1.0, praise))
                known.take(Verdict(1.0, praise))

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        source=sources,
        reward=rewards,
        origin=st.sampled_from([None, None, "a", "b"]),
        at=times,
        crash=crashes,
    )
    def judge(
        self,
        data: st.DataObject,
        source: VerdictSource,
        reward: float,
        origin: str | None,
        at: datetime | None,
        crash: int | None,
    ) -> None:
        id = data.draw(st.sampled_from(sorted(self.known)))
        known, verdict = self.known[id], Verdict(reward, source, at=at, origin=origin)
        if not self._done(crash, lambda: self.ledger.add_verdict("agent", id, verdict)):
            return
        if origin is None or origin not in {one.origin for one in known.verdicts}:
            known.take(verdict)

    @precondition(lambda self: self._having("support"))
    @rule(
        data=st.data(),
        bump=st.booleans(),
        late=st.sampled_from([False, False, False, True]),
        crash=crashes,
    )
    def evolve(self, data: st.DataObject, bump: bool, late: bool, crash: int | None) -> None:
        support = self._having("support")
        others = sorted(set(self.known) - set(support))
        ids = data.draw(st.sets(st.sampled_from(support), min_size=1, max_size=3))
        self.attempts += 1
        id = f"e{self.attempts}"
        if late and others:
            # Read before another process used it or a person corrected it.
            wrong = {*ids, data.draw(st.sampled_from(others))}
            with pytest.raises(ConflictError):
                self._evolve(id, wrong, bump)
            return
        if self._done(crash, lambda: self._evolve(id, ids, bump)):
            self.current += bump
            self.evolutions[id] = (ids, self.current if bump else None)
            for one in ids:
                self.known[one].used = "consumed"

    def _evolve(self, id: str, ids: set[str], bump: bool) -> None:
        evolution = Evolution(id, "test", dict.fromkeys(ids, "learnt"))
        if not bump:
            self.ledger.record_evolution("agent", evolution)
            return
        skill = Skill("skill", "d", id, int(id.removeprefix("e")))
        self.ledger.stage_skills("agent", [NewSkill(skill)])
        self.ledger.commit_generation(
            "agent",
            expected=self.current,
            add=[skill.id],
            remove=self.ledger.members("agent", self.current),
            reason=id,
            evolution=evolution,
        )

    @rule(data=st.data(), crash=crashes)
    def roll_back(self, data: st.DataObject, crash: int | None) -> None:
        to = data.draw(st.integers(0, self.current))
        if self._done(crash, lambda: self.ledger.rollback_generation("agent", to, "undo")):
            self.current += 1

    @precondition(lambda self: self._having("query"))
    @rule(limit=st.sampled_from([None, None, 1, 2]), crash=crashes)
    def drain(self, limit: int | None, crash: int | None) -> None:
        self.attempts += 1
        id = f"r{self.attempts}"
        query = set(self._having("query"))
        if not self._done(crash, lambda: self.ledger.drain_query("agent", id, limit=limit)):
            return
        (run,) = [one for one in self.ledger.training_runs("agent") if one.id == id]
        taken = set(run.trajectories)
        assert taken <= query
        assert len(taken) == min(len(query), limit or len(query))
        assert {self.known[one].generation for one in taken} <= {self.current}
        assert run.generation == self.current
        self.training[id] = ("running", taken)
        for one in taken:
            self.known[one].used = "trained"

    @precondition(lambda self: "running" in {state for state, _ in self.training.values()})
    @rule(data=st.data(), keep=st.sampled_from([True, False, False]), crash=crashes)
    def end_training(self, data: st.DataObject, keep: bool, crash: int | None) -> None:
        running = [id for id, (state, _) in self.training.items() if state == "running"]
        id = data.draw(st.sampled_from(running))
        end = self.ledger.finish_training if keep else self.ledger.abort_training
        if not self._done(crash, lambda: end("agent", id)):
            return
        taken = self.training[id][1]
        self.training[id] = ("done", taken) if keep else ("aborted", set())
        if not keep:
            for one in taken:
                self.known[one].used = None

    @invariant()
    def nothing_is_lost_and_roles_agree(self) -> None:
        assert self.ledger.generation("agent") == self.current
        found = self.ledger.trajectories("agent", limit=1000)
        assert {one.id: (one.role, one.reward) for one in found} == {
            id: (known.role(self.current), known.reward()) for id, known in self.known.items()
        }
        failures = {one.trajectory.id for one in self.ledger.failures("agent", limit=1000)}
        assert failures == set(self._having("support"))

    @invariant()
    def support_and_query_are_separate_and_counted_once(self) -> None:
        evolutions = self.ledger.evolutions("agent", 1000)
        assert {one.id: (set(one.consumed), one.generation) for one in evolutions} == (
            self.evolutions
        )
        runs = self.ledger.training_runs("agent")
        assert {run.id: (run.state, set(run.trajectories)) for run in runs} == self.training
        consumed = Counter(id for one in evolutions for id in one.consumed)
        trained = Counter(id for run in runs for id in run.trajectories)
        used = consumed + trained
        assert set(used.values()) <= {1}
        roles = {one.id: one.role for one in self.ledger.trajectories("agent", limit=1000)}
        assert set(consumed) == {id for id, role in roles.items() if role == "consumed"}
        assert set(trained) == {id for id, role in roles.items() if role == "trained"}
        for run in runs:
            assert {self.known[id].generation for id in run.trajectories} <= {run.generation}

    def _having(self, role: str) -> list[str]:
        return [id for id in sorted(self.known) if self.known[id].role(self.current) == role]

    def _done(self, crash: int | None, call: Callable[[], Any]) -> bool:
        """Whether the call was done; if it crashed, nothing of it may be seen afterwards."""
        if crash is None:
            call()
            return True
        with _crashing(self.ledger._engine, crash), pytest.raises(Crash):
            call()
        self.ledger.close()
        self.ledger = Ledger.open(self.url)
        return False


def _trajectory(id: str, known: Known) -> Trajectory:
    outcome, generation = known.outcome, known.generation
    return Trajectory(
        id, "agent", None, "task", NOW, NOW, outcome, None, generation, None, "empty", (), {}, {}
    )


def test_support_and_query_data_never_mix(tmp_path: Path) -> None:
    Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}").close()

    class OnCopies(Machine):
        template = tmp_path / "ledger.db"

    run_state_machine_as_test(
        OnCopies,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
