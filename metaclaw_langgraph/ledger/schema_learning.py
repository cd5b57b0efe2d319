"""The tables of the learning loop: judging, evolving, probation, training, leases.

They belong to the schema of `schema.py`, and the same rules hold for them.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from metaclaw_langgraph.ledger.schema import UtcDateTime, metadata, to_trajectory

__all__ = [
    "consumption",
    "drafts",
    "evolutions",
    "judging",
    "leases",
    "metadata",
    "probations",
    "skill_uses",
    "training",
]

skill_uses = Table(
    "metaclaw_skill_use",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("skill_id", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    # injected | withheld | found
    Column("how", Text, nullable=False),
    PrimaryKeyConstraint("namespace", "skill_id", "trajectory_id"),
    to_trajectory(),
)

# Only trajectories that a judge failed on, or had no opinion of.
judging = Table(
    "metaclaw_judging",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    # NULL: not tried again.
    Column("next_at", UtcDateTime),
    Column("problem", Text, nullable=False),
    PrimaryKeyConstraint("namespace", "trajectory_id"),
    to_trajectory(),
)

evolutions = Table(
    "metaclaw_evolution",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("evolver", Text, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("generation", Integer),
    Column("details", Text, nullable=False),
    PrimaryKeyConstraint("namespace", "id"),
    Index(None, "namespace", "generation"),
)

# The key is the trajectory alone: nothing can be consumed twice.
consumption = Table(
    "metaclaw_consumption",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    Column("evolution_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("namespace", "trajectory_id"),
    to_trajectory(),
    ForeignKeyConstraint(
        ["namespace", "evolution_id"], ["metaclaw_evolution.namespace", "metaclaw_evolution.id"]
    ),
    Index(None, "namespace", "evolution_id"),
)

drafts = Table(
    "metaclaw_draft",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("evolution_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("replaces", Text),
    Column("origin", Text, nullable=False),
    Column("untrusted", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("decided_by", Text),
    Column("skill_id", Text),
    Column("base", Text),
    PrimaryKeyConstraint("namespace", "id"),
    ForeignKeyConstraint(
        ["namespace", "evolution_id"], ["metaclaw_evolution.namespace", "metaclaw_evolution.id"]
    ),
    Index(None, "namespace", "state"),
)

# A version that comes back after it was retired may be on probation again: its own row.
probations = Table(
    "metaclaw_probation",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("skill_id", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("holdout", Float, nullable=False),
    Column("fallback", Text),
    Column("state", Text, nullable=False),
    Column("decided_at", UtcDateTime),
    Column("evidence", Text, nullable=False),
    PrimaryKeyConstraint("namespace", "skill_id", "started_at"),
    ForeignKeyConstraint(
        ["namespace", "skill_id"], ["metaclaw_skill.namespace", "metaclaw_skill.id"]
    ),
    Index(None, "namespace", "state"),
)

# What was drained into a run is in `trajectories.training_run`.
training = Table(
    "metaclaw_training",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    PrimaryKeyConstraint("namespace", "id"),
)

leases = Table(
    "metaclaw_lease",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("until", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("namespace", "name"),
)
