"""The values that only the ledger hands out or takes in.

Values that other parts build too (trajectories, verdicts, skills) are in `types.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from metaclaw_langgraph.types import (
    Json,
    Outcome,
    Role,
    Skill,
    SkillHit,
    Trajectory,
    Verdict,
    VerdictSource,
)

__all__ = [
    "Agreement",
    "Counts",
    "DraftDecision",
    "DraftRecord",
    "DraftState",
    "Evolution",
    "EvolutionRecord",
    "Failure",
    "GenerationRecord",
    "Incident",
    "IncidentRecord",
    "Interval",
    "JudgingCounts",
    "NewSkill",
    "Probation",
    "ProbationState",
    "SkillCounts",
    "SkillRecord",
    "TraceState",
    "TrainingRun",
    "TrajectorySummary",
    "Trial",
]

TraceState: TypeAlias = Literal["pending", "done", "off", "failed"]
"""pending: to be exported to MLflow; off: not wanted; failed: given up."""

DraftState: TypeAlias = Literal["review", "live", "rejected", "refused", "duplicate", "lost"]
"""review: waits for a person. Final: live; rejected by a person; refused by the guard; a duplicate
of a skill that is live; lost at the gate."""

ProbationState: TypeAlias = Literal["open", "kept", "retired"]


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
    details: Mapping[str, Json] = field(default_factory=dict)
    """What the change rests on: the evolution, the gate's figures, the probation's evidence."""
    run_id: str | None = None
    """The MLflow run that shows it, once it is exported."""


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


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory of the support set, with the verdict that put it there."""

    trajectory: Trajectory
    verdict: Verdict
    """The effective one."""


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """A skill that an evolver proposed, and what became of it. Every field but the first few is
    evidence: drafts that did not go live keep theirs."""

    id: str
    skill: Skill
    """Its version is 0. The body is empty when the guard refused it."""
    state: DraftState
    replaces: str | None
    """The name of the live skill that it is a better version of."""
    origin: tuple[str, ...]
    """The trajectories that it was written from."""
    untrusted: bool
    """Whether it may say what a tool result or a user's message told it to."""
    reason: str
    """Why it is in this state."""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    """The guard's findings and the gate's figures."""
    created_at: datetime | None = None
    decided_by: str | None = None
    skill_id: str | None = None
    """The version that it became, when it is live."""
    base: str | None = None
    """The live version that it was written against; None when none had its name."""


@dataclass(frozen=True, slots=True)
class DraftDecision:
    """What a person decided about a draft that waited for review."""

    id: str
    state: Literal["live", "rejected"]
    by: str
    reason: str
    skill_id: str | None = None
    """The version that it became, when it is live."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """One evolution: the failures that it consumed, each with why, and the drafts it made."""

    id: str
    evolver: str
    consumed: Mapping[str, str]
    drafts: tuple[DraftRecord, ...] = ()
    details: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvolutionRecord:
    """An evolution as it was stored."""

    id: str
    evolver: str
    at: datetime
    generation: int | None
    """The generation that it made, if it made one."""
    consumed: Mapping[str, str]
    details: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Probation:
    """A live skill that is withheld from a share of the runs until the counts decide."""

    skill_id: str
    holdout: float
    fallback: str | None = None
    """The version that it replaced, which runs without it are given instead."""
    state: ProbationState = "open"
    started_at: datetime | None = None
    decided_at: datetime | None = None
    evidence: Mapping[str, Json] = field(default_factory=dict)


class Trial(NamedTuple):
    """One judged run that found a skill on probation."""

    trajectory_id: str
    withheld: bool
    passed: bool


@dataclass(frozen=True, slots=True)
class SkillCounts:
    """How often runs found a skill version, and how those that were given it ended."""

    found: int = 0
    injected: int = 0
    withheld: int = 0
    helped: int = 0
    """Injected, and the run was judged good."""
    hurt: int = 0
    """Injected, and the run was judged bad."""


@dataclass(frozen=True, slots=True)
class JudgingCounts:
    """Runs that wait for a judge, wait to be tried again, or were given up."""

    waiting: int = 0
    retrying: int = 0
    given_up: int = 0


class Agreement(NamedTuple):
    """One trajectory that the judge and somebody of higher rank have both judged."""

    trajectory_id: str
    judge: float
    reference: float
    source: VerdictSource


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run and the query data that was drained into it."""

    id: str
    generation: int
    state: Literal["running", "done", "aborted"]
    started_at: datetime
    ended_at: datetime | None
    trajectories: tuple[str, ...]
