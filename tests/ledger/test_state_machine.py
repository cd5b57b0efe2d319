"""Whatever is done to a ledger, in whatever order, it agrees with a simple model of it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

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

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.types import Outcome, Skill, Trajectory, Verdict, VerdictSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RANK = ["run", "judge", "verifier", "human"]

namespaces = st.sampled_from(["agent", "agent", "agent", "other"])
ids = st.sampled_from([f"t{n}" for n in range(8)])
names = st.sampled_from(["add", "sub", "mul", "div"])


@dataclass
class Known:
    """A trajectory in the model."""

    outcome: Outcome
    generation: int | None
    verdicts: list[Verdict] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.outcome == "failed":
            self.take(Verdict(-1.0, "run"))

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
        if reward is None:
            return "unjudged"
        if reward <= 0:
            return "support"
        return "query" if self.generation == current else "stale"


@dataclass
class Model:
    """A namespace: its trajectories, the versions of its skills, the members of each generation."""

    trajectories: dict[str, Known] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    history: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])

    @property
    def current(self) -> int:
        return len(self.history) - 1

    def live(self, name: str) -> str | None:
        return next((id for id in self.history[-1] if id.startswith(f"{name}@")), None)


class Machine(RuleBasedStateMachine):
    template: Path

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="metaclaw-ledger-"))
        shutil.copy(self.template, self.folder / "ledger.db")
        self.ledger = Ledger.open(f"sqlite:///{self.folder / 'ledger.db'}")
        self.models = {"agent": Model(), "other": Model()}

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            shutil.rmtree(self.folder)

    @rule(
        namespace=namespaces,
        batch=st.lists(ids, min_size=1, max_size=4),
        outcome=st.sampled_from(["ok", "ok", "failed", "interrupted", "cancelled"]),
        behind=st.sampled_from([0, 0, 0, 1, None]),
    )
    def add(self, namespace: str, batch: list[str], outcome: Outcome, behind: int | None) -> None:
        model = self.models[namespace]
        generation = None if behind is None else max(0, model.current - behind)
        new = {id for id in batch if id not in model.trajectories}
        stored = self.ledger.add_trajectories(
            [_trajectory(id, namespace, outcome, generation) for id in batch]
        )
        assert stored == len(new)
        model.trajectories.update({id: Known(outcome, generation) for id in new})

    @rule(
        namespace=namespaces,
        data=st.data(),
        source=st.sampled_from(RANK),
        reward=st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]),
    )
    def judge(
        self, namespace: str, data: st.DataObject, source: VerdictSource, reward: float
    ) -> None:
        model = self.models[namespace]
        if not model.trajectories:
            return
        id = data.draw(st.sampled_from(sorted(model.trajectories)))
        known = model.trajectories[id]
        role = self.ledger.add_verdict(namespace, id, Verdict(reward, source))
        known.take(Verdict(reward, source))
        assert role == known.role(model.current)

    @rule(id=ids, source=st.sampled_from(RANK))
    def succeed(self, id: str, source: VerdictSource) -> None:
        """The common case, often: a run of the current generation with a good verdict."""
        model = self.models["agent"]
        new = id not in model.trajectories
        known = model.trajectories.setdefault(id, Known("ok", model.current))
        run = _trajectory(id, "agent", "ok", model.current)
        assert self.ledger.add_trajectories([run]) == new
        self.ledger.add_verdict("agent", id, Verdict(1.0, source))
        known.take(Verdict(1.0, source))

    @rule(namespace=namespaces, name=names)
    def stage(self, namespace: str, name: str) -> None:
        versions = self.models[namespace].versions
        assert self.ledger.latest_version(namespace, name) == versions.get(name, 0)
        versions[name] = versions.get(name, 0) + 1
        skill = Skill(name, f"How to {name}", f"Version {versions[name]}", versions[name])
        for _ in range(2):
            self.ledger.stage_skills(namespace, [NewSkill(skill, b"v", "e")])

    @rule(
        namespace=namespaces,
        wanted=st.dictionaries(names, st.booleans(), max_size=3),
        late=st.sampled_from([False, False, False, True]),
    )
    def commit(self, namespace: str, wanted: dict[str, bool], late: bool) -> None:
        model = self.models[namespace]
        add, remove = set(), set()
        for name, keep in wanted.items():
            live, newest = model.live(name), model.versions.get(name)
            if keep and newest:
                add.add(f"{name}@{newest}")
            if live and live not in add:
                remove.add(live)
        if late:
            with pytest.raises(ConflictError):
                self._commit(namespace, model.current + 1, add, remove)
            return
        assert self._commit(namespace, model.current, add, remove) == model.current + 1
        model.history.append((model.history[-1] - remove) | add)

    @precondition(lambda self: self.models["agent"].current > 0)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        model = self.models["agent"]
        to = data.draw(st.integers(0, model.current))
        assert self.ledger.rollback_generation("agent", to, "undo") == model.current + 1
        model.history.append(model.history[to])

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(f"sqlite:///{self.folder / 'ledger.db'}")

    @invariant()
    def generations_agree(self) -> None:
        for namespace, model in self.models.items():
            assert self.ledger.generation(namespace) == model.current
            for generation, members in enumerate(model.history):
                assert set(self.ledger.members(namespace, generation)) == members
            live = {skill.id for skill in self.ledger.active_skills(namespace)}
            assert live == model.history[-1]

    @invariant()
    def changes_lead_from_any_generation_to_any_later_one(self) -> None:
        model = self.models["agent"]
        for after in range(model.current + 1):
            changes = self.ledger.membership_changes("agent", after, model.current)
            members = set(model.history[after])
            touched = {change.skill_id for change in changes}
            now = {change.skill_id for change in changes if change.until is None}
            assert (members - touched) | now == model.history[-1]

    @invariant()
    def roles_agree(self) -> None:
        for namespace, model in self.models.items():
            found = {one.id: (one.role, one.reward) for one in self.ledger.trajectories(namespace)}
            assert found == {
                id: (known.role(model.current), known.reward())
                for id, known in model.trajectories.items()
            }
            assert self.ledger.counts(namespace).total == len(found)

    def _commit(self, namespace: str, expected: int, add: set[str], remove: set[str]) -> int:
        return self.ledger.commit_generation(
            namespace, expected=expected, add=sorted(add), remove=sorted(remove), reason="test"
        )


def _trajectory(id: str, namespace: str, outcome: Outcome, generation: int | None) -> Trajectory:
    return Trajectory(
        id, namespace, None, "task", NOW, NOW, outcome, None, generation, None, "empty", (), {}, {}
    )


def test_the_ledger_agrees_with_its_model(tmp_path: Path) -> None:
    Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}").close()

    class OnCopies(Machine):
        template = tmp_path / "ledger.db"

    run_state_machine_as_test(
        OnCopies,
        settings=settings(
            max_examples=20,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
