"""The ledger: the one record of trajectories, verdicts, skills, generations and incidents.

SQLite by default, PostgreSQL by URL. Every call is one transaction: killed at any point, nothing
that a call acknowledged is lost, and nothing is half there. Every call names its namespace.
"""

from __future__ import annotations

from metaclaw_langgraph.ledger.generations import GenerationStore
from metaclaw_langgraph.ledger.incidents import IncidentStore
from metaclaw_langgraph.ledger.skills import SkillStore
from metaclaw_langgraph.ledger.trajectories import TrajectoryStore
from metaclaw_langgraph.ledger.values import (
    Counts,
    GenerationRecord,
    Incident,
    IncidentRecord,
    Interval,
    NewSkill,
    SkillRecord,
    TraceState,
    TrajectorySummary,
)
from metaclaw_langgraph.ledger.verdicts import VerdictStore

__all__ = [
    "Counts",
    "GenerationRecord",
    "Incident",
    "IncidentRecord",
    "Interval",
    "Ledger",
    "NewSkill",
    "SkillRecord",
    "TraceState",
    "TrajectorySummary",
]


class Ledger(TrajectoryStore, VerdictStore, SkillStore, GenerationStore, IncidentStore):
    """Thread-safe. `Ledger.open(url)` makes one; a forked child gets connections of its own."""
