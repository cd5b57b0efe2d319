"""The tables of the ledger.

Every name begins with `metaclaw_` so that a PostgreSQL database can be shared with MLflow. Every
key begins with the namespace: no row can be reached without one. What a list or a count needs is
in columns; the bulk of a trajectory is one compressed `body`. The tables of the learning loop are
in `schema_learning.py`.

A change needs a migration in `migrations/versions` and a new `HEAD` in `migrate.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    column,
)

__all__ = [
    "UtcDateTime",
    "generations",
    "incidents",
    "membership",
    "metadata",
    "namespaces",
    "probe",
    "skills",
    "to_trajectory",
    "trajectories",
    "vectors",
    "verdicts",
]


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in, UTC datetimes out. SQLite keeps no zone, so UTC is stored."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the ledger needs datetimes with a time zone, got {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def to_trajectory() -> ForeignKeyConstraint:
    """The key of the trajectory that a row is about, as `namespace` and `trajectory_id`."""
    return ForeignKeyConstraint(
        ["namespace", "trajectory_id"],
        ["metaclaw_trajectory.namespace", "metaclaw_trajectory.id"],
        ondelete="CASCADE",
    )


def _index_where_set(*names: str) -> Index:
    where = column(names[-1]).is_not(None)
    return Index(None, *names, sqlite_where=where, postgresql_where=where)


namespaces = Table(
    "metaclaw_namespace",
    metadata,
    Column("namespace", Text, primary_key=True),
    # The pointer: which generation the namespace is at.
    Column("generation", Integer, nullable=False),
)

trajectories = Table(
    "metaclaw_trajectory",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("run_id", Text),
    Column("thread_id", Text),
    Column("task", Text),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error", Text),
    Column("generation", Integer),
    Column("adapter", Text),
    Column("retrieval", Text, nullable=False),
    Column("skills", Text, nullable=False),
    Column("n_calls", Integer, nullable=False),
    Column("n_tools", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("reward", Float),
    Column("trace_id", Text),
    Column("trace_state", Text, nullable=False),
    # The training run that it was drained into.
    Column("training_run", Text),
    Column("body", LargeBinary, nullable=False),
    PrimaryKeyConstraint("namespace", "id"),
    Index(None, "namespace", "started_at"),
    Index(None, "namespace", "run_id"),
    Index(None, "namespace", "thread_id"),
    Index(None, "namespace", "role", "outcome"),
    Index(None, "namespace", "role", "ended_at"),
    Index(None, "namespace", "trace_state"),
    # Most rows have neither: they do not pay for these.
    _index_where_set("namespace", "trace_id"),
    _index_where_set("namespace", "training_run"),
)

verdicts = Table(
    "metaclaw_verdict",
    metadata,
    # Order of arrival, also of the transactions: `seq` grows under the namespace's lock.
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("namespace", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    Column("reward", Float, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text),
    Column("step_scores", Text),
    Column("at", UtcDateTime, nullable=False),
    Column("origin", Text),
    to_trajectory(),
    Index(None, "namespace", "trajectory_id"),
    # The same assessment, read twice, counts once. Verdicts without an origin do not collide.
    Index(None, "namespace", "trajectory_id", "origin", unique=True),
    # Whom a source has judged, without reading what the others said.
    Index(None, "namespace", "source", "trajectory_id"),
)

skills = Table(
    "metaclaw_skill",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("id", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("provenance", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("namespace", "id"),
    Index("ix_metaclaw_skill_name_version", "namespace", "name", "version", unique=True),
)

vectors = Table(
    "metaclaw_vector",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("embedder", Text, nullable=False),
    Column("skill_id", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    PrimaryKeyConstraint("namespace", "embedder", "skill_id"),
    ForeignKeyConstraint(
        ["namespace", "skill_id"],
        ["metaclaw_skill.namespace", "metaclaw_skill.id"],
        ondelete="CASCADE",
    ),
)

membership = Table(
    "metaclaw_membership",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("skill_id", Text, nullable=False),
    Column("since", Integer, nullable=False),
    Column("until", Integer),
    PrimaryKeyConstraint("namespace", "skill_id", "since"),
    ForeignKeyConstraint(
        ["namespace", "skill_id"], ["metaclaw_skill.namespace", "metaclaw_skill.id"]
    ),
    Index(None, "namespace", "since"),
    Index(None, "namespace", "until"),
    # A skill is live once; and SQLite finds whether it is without reading all that are.
    Index(
        "ix_metaclaw_membership_live",
        "namespace",
        "skill_id",
        unique=True,
        sqlite_where=column("until").is_(None),
        postgresql_where=column("until").is_(None),
    ),
)

generations = Table(
    "metaclaw_generation",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    Column("details", Text, nullable=False, server_default="{}"),
    Column("export_state", Text, nullable=False, server_default="pending"),
    Column("run_id", Text),
    PrimaryKeyConstraint("namespace", "generation"),
)

incidents = Table(
    "metaclaw_incident",
    metadata,
    Column("namespace", Text, nullable=False),
    Column("part", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("message", Text, nullable=False),
    Column("first_at", UtcDateTime, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    PrimaryKeyConstraint("namespace", "part", "kind"),
)

# One row that `Ledger.check` writes: only a committed write proves that the disk has room.
probe = Table(
    "metaclaw_probe",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("flag", Boolean, nullable=False),
)
