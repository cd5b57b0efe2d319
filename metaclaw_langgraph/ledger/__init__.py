"""The ledger: the one record of what was run, judged, learnt, trained on, and went wrong.

SQLite by default, PostgreSQL by URL. Every call is one transaction: killed at any point, nothing
that a call acknowledged is lost, and nothing is half there. Every call names its namespace.
"""

from __future__ import annotations

from metaclaw_langgraph.ledger.generations import GenerationStore
from metaclaw_langgraph.ledger.incidents import IncidentStore
from metaclaw_langgraph.ledger.judging import JudgingStore
from metaclaw_langgraph.ledger.leases import LeaseStore
from metaclaw_langgraph.ledger.skills import SkillStore
from metaclaw_langgraph.ledger.training import TrainingStore
from metaclaw_langgraph.ledger.trajectories import TrajectoryStore
from metaclaw_langgraph.ledger.uses import UseStore
from metaclaw_langgraph.ledger.values import (
    Agreement,
    Counts,
    DraftDecision,
    DraftRecord,
    DraftState,
    Evolution,
    EvolutionRecord,
    Failure,
    GenerationRecord,
    Incident,
    IncidentRecord,
    Interval,
    JudgingCounts,
    NewSkill,
    Probation,
    ProbationState,
    SkillCounts,
    SkillRecord,
    TraceState,
    TrainingRun,
    TrajectorySummary,
    Trial,
)
from metaclaw_langgraph.ledger.verdicts import VerdictStore

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
    "Ledger",
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


class Ledger(
    TrajectoryStore,
    VerdictStore,
    UseStore,
    JudgingStore,
    SkillStore,
    GenerationStore,
    TrainingStore,
    LeaseStore,
    IncidentStore,
):
    """Thread-safe. `Ledger.open(url)` makes one; a forked child gets connections of its own."""
