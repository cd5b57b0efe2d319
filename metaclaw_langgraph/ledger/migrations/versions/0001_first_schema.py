"""The first schema: trajectories, verdicts, skills, generations, incidents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    *("verdict", "vector", "membership", "trajectory", "skill"),
    *("probe", "namespace", "incident", "generation"),
)


def upgrade() -> None:
    _create_generation()
    _create_incident()
    _create_namespace()
    _create_probe()
    _create_skill()
    _create_trajectory()
    _create_membership()
    _create_vector()
    _create_verdict()


def downgrade() -> None:
    for name in _TABLES:
        op.drop_table(f"metaclaw_{name}")


def _create_generation() -> None:
    op.create_table(
        "metaclaw_generation",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "generation", name=op.f("pk_metaclaw_generation")),
    )


def _create_incident() -> None:
    op.create_table(
        "metaclaw_incident",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "part", "kind", name=op.f("pk_metaclaw_incident")),
    )


def _create_namespace() -> None:
    op.create_table(
        "metaclaw_namespace",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", name=op.f("pk_metaclaw_namespace")),
    )


def _create_probe() -> None:
    op.create_table(
        "metaclaw_probe",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("flag", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metaclaw_probe")),
    )


def _create_skill() -> None:
    op.create_table(
        "metaclaw_skill",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_metaclaw_skill")),
    )
    op.create_index(
        "ix_metaclaw_skill_name_version",
        "metaclaw_skill",
        ["namespace", "name", "version"],
        unique=True,
    )


def _create_trajectory() -> None:
    op.create_table(
        "metaclaw_trajectory",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("thread_id", sa.Text(), nullable=True),
        sa.Column("task", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("adapter", sa.Text(), nullable=True),
        sa.Column("retrieval", sa.Text(), nullable=False),
        sa.Column("skills", sa.Text(), nullable=False),
        sa.Column("n_calls", sa.Integer(), nullable=False),
        sa.Column("n_tools", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("trace_id", sa.Text(), nullable=True),
        sa.Column("trace_state", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_metaclaw_trajectory")),
    )
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_role_outcome"),
        "metaclaw_trajectory",
        ["namespace", "role", "outcome"],
        unique=False,
    )
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_run_id"),
        "metaclaw_trajectory",
        ["namespace", "run_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_started_at"),
        "metaclaw_trajectory",
        ["namespace", "started_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_thread_id"),
        "metaclaw_trajectory",
        ["namespace", "thread_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_trace_state"),
        "metaclaw_trajectory",
        ["namespace", "trace_state"],
        unique=False,
    )


def _create_membership() -> None:
    op.create_table(
        "metaclaw_membership",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("skill_id", sa.Text(), nullable=False),
        sa.Column("since", sa.Integer(), nullable=False),
        sa.Column("until", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["namespace", "skill_id"],
            ["metaclaw_skill.namespace", "metaclaw_skill.id"],
            name=op.f("fk_metaclaw_membership_metaclaw_skill"),
        ),
        sa.PrimaryKeyConstraint(
            "namespace", "skill_id", "since", name=op.f("pk_metaclaw_membership")
        ),
    )
    op.create_index(
        op.f("ix_metaclaw_membership_namespace_since"),
        "metaclaw_membership",
        ["namespace", "since"],
        unique=False,
    )
    op.create_index(
        op.f("ix_metaclaw_membership_namespace_until"),
        "metaclaw_membership",
        ["namespace", "until"],
        unique=False,
    )


def _create_vector() -> None:
    op.create_table(
        "metaclaw_vector",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=False),
        sa.Column("skill_id", sa.Text(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "skill_id"],
            ["metaclaw_skill.namespace", "metaclaw_skill.id"],
            name=op.f("fk_metaclaw_vector_metaclaw_skill"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(
            "namespace", "embedder", "skill_id", name=op.f("pk_metaclaw_vector")
        ),
    )


def _create_verdict() -> None:
    op.create_table(
        "metaclaw_verdict",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("step_scores", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "trajectory_id"],
            ["metaclaw_trajectory.namespace", "metaclaw_trajectory.id"],
            name=op.f("fk_metaclaw_verdict_metaclaw_trajectory"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_metaclaw_verdict")),
    )
    op.create_index(
        op.f("ix_metaclaw_verdict_namespace_trajectory_id"),
        "metaclaw_verdict",
        ["namespace", "trajectory_id"],
        unique=False,
    )
