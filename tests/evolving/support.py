"""A namespace to evolve in: real ledger, library, index and retriever, and runs to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from metaclaw_langgraph._timed import Timed
from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.evolving.base import Draft, Evolver
from metaclaw_langgraph.evolving.evolution import Evolving
from metaclaw_langgraph.evolving.guard import Guard
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.evolving.replay import Replayer
from metaclaw_langgraph.ledger import Failure, Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from metaclaw_langgraph.types import Skill, SkillHit, Trajectory, Verdict, VerdictSource
from tests.evolving.runs import message, trajectory

NAMESPACE = "shop"
_numbers = count(1)


class StandInEvolver:
    """What a model would have written is given to it."""

    name = "stand-in"
    needs_words = False

    def __init__(self, *skills: Skill, replaces: str | None = None) -> None:
        self.skills = skills
        self.replaces = replaces
        self.related: Sequence[Skill] = ()

    def wants(self, failure: Failure) -> bool:
        return True

    def draft(self, failures: Sequence[Failure], related: Sequence[Skill]) -> Sequence[Draft]:
        self.related = related
        origin = tuple(one.trajectory.id for one in failures)
        return [Draft(skill, self.replaces, origin, "stand-in") for skill in self.skills]

    def merge(self, old: Skill, new: Skill) -> Skill:
        return OfflineEvolver().merge(old, new)


@dataclass
class Home:
    """All parts on one namespace."""

    ledger: Ledger
    library: SkillLibrary
    retriever: SkillRetriever
    timed: Timed

    def evolving(
        self, evolver: Evolver | None = None, replayer: Replayer | None = None, **config: Any
    ) -> Evolving:
        return Evolving(
            self.ledger,
            self.library,
            self.retriever.search(),
            evolver or OfflineEvolver(),
            EvolvingConfig.model_validate(config),
            guard=Guard(Redactor(), 1500),
            timed=self.timed,
            replayer=replayer,
        )

    def run(self, task: str, *hits: SkillHit, **changes: Any) -> str:
        """Store a run that ended now; its id."""
        at = datetime.now(UTC)
        said = message("human", task), message("ai", "Here it is.")
        run = trajectory(*said, id=f"run-{next(_numbers):05}", task=task)
        run = replace(run, skills=hits, input={"messages": [said[0]]}, started_at=at, ended_at=at)
        run = replace(run, generation=self.ledger.generation(NAMESPACE))
        self.ledger.add_trajectories([replace(run, **changes)])
        return run.id

    def fail(self, task: str, reason: str, source: VerdictSource = "human", **changes: Any) -> str:
        """Store a run and what was wrong with it; its id."""
        id = self.run(task, **changes)
        self.judge(id, -1.0, reason, source)
        return id

    def judge(
        self, id: str, reward: float, reason: str = "", source: VerdictSource = "human"
    ) -> None:
        at = datetime.now(UTC) + timedelta(microseconds=next(_numbers))
        self.ledger.add_verdict(NAMESPACE, id, Verdict(reward, source, reason, at=at))

    def failures(self) -> list[Failure]:
        return self.ledger.failures(NAMESPACE, limit=100)

    def role(self, id: str) -> str:
        return self.ledger.trajectory(NAMESPACE, id).role

    def why(self, id: str) -> str | None:
        """Why a failure was consumed."""
        found = self.ledger.consumption(NAMESPACE, id)
        return found[1] if found else None

    def names(self) -> list[str]:
        return [skill.id for skill in self.library.active()]

    def put(self, *skills: Skill, source: str = "import") -> int:
        return self.library.put(skills, reason="test", source=source).generation


def stored(home: Home, id: str) -> Trajectory:
    return home.ledger.trajectory(NAMESPACE, id)
