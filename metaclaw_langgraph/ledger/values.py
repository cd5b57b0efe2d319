"""The values that only the ledger hands out or takes in.

Values that other parts build too (trajectories, verdicts, skills) are in `types.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from metaclaw_langgraph.types import Json, Outcome, Role, Skill, SkillHit

__all__ = [
    "Counts",
    "GenerationRecord",
    "Incident",
    "IncidentRecord",
    "Interval",
    "NewSkill",
    "SkillRecord",
    "TraceState",
    "TrajectorySummary",
]

TraceState: TypeAlias = Literal["pending", "done", "off", "failed"]
"""pending: to be exported as an MLflow trace; off: not wanted; failed: given up."""


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill version to store. The caller has assigned `skill.version`."""

    skill: Skill
    vector: bytes | None = None
    """float32, little endian."""
    embedder: str | None = None
    source: str = "import"
    provenance: Json = None


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong `count` times, the last time at `at`."""

    part: str
    kind: str
    count: int
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """All incidents of one part and kind, added up."""

    part: str
    kind: str
    count: int
    message: str
    first_at: datetime
    last_at: datetime


class Interval(NamedTuple):
    """A skill is a member of every generation g with `since <= g < until`."""

    skill_id: str
    since: int
    until: int | None


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation: when and why it began, and what it changed."""

    generation: int
    at: datetime
    reason: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SkillRecord:
    """One stored version of a skill, where it came from and when it was a member."""

    skill: Skill
    source: str
    provenance: Json
    created_at: datetime
    intervals: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class TrajectorySummary:
    """A trajectory without its messages: what a list shows."""

    id: str
    started_at: datetime
    ended_at: datetime
    task: str | None
    outcome: Outcome
    role: Role
    generation: int | None
    n_calls: int
    n_tools: int
    skills: tuple[SkillHit, ...]
    reward: float | None
    """The effective verdict's reward; None while unjudged."""
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many trajectories of a namespace there are, three ways. Absent keys mean none."""

    outcome: Mapping[str, int] = field(default_factory=dict)
    role: Mapping[str, int] = field(default_factory=dict)
    trace: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.outcome.values())
