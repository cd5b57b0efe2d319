"""The learning loop: judging, evolving, probation, training, leases, and which run used what."""

from __future__ import annotations

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLES = (
    *("lease", "training", "probation", "draft"),
    *("consumption", "evolution", "judging", "skill_use"),
)
_BATCH = 1000


def upgrade() -> None:
    _extend_trajectory()
    _extend_verdict()
    _extend_membership()
    _extend_generation()
    _create_skill_use()
    _create_judging()
    _create_evolution()
    _create_consumption()
    _create_draft()
    _create_probation()
    _create_training()
    _create_lease()
    _fill_skill_use()


def downgrade() -> None:
    for name in _TABLES:
        op.drop_table(f"metaclaw_{name}")
    for column in ("run_id", "export_state", "details"):
        op.drop_column("metaclaw_generation", column)
    op.drop_index("ix_metaclaw_membership_live", "metaclaw_membership")
    op.drop_index("ix_metaclaw_verdict_namespace_source_trajectory_id", "metaclaw_verdict")
    op.drop_index("ix_metaclaw_verdict_namespace_trajectory_id_origin", "metaclaw_verdict")
    op.drop_column("metaclaw_verdict", "origin")
    op.drop_index("ix_metaclaw_trajectory_namespace_role_ended_at", "metaclaw_trajectory")
    op.drop_index("ix_metaclaw_trajectory_namespace_training_run", "metaclaw_trajectory")
    op.drop_index("ix_metaclaw_trajectory_namespace_trace_id", "metaclaw_trajectory")
    op.drop_column("metaclaw_trajectory", "training_run")


def _extend_trajectory() -> None:
    op.add_column("metaclaw_trajectory", sa.Column("training_run", sa.Text(), nullable=True))
    op.create_index(
        op.f("ix_metaclaw_trajectory_namespace_role_ended_at"),
        "metaclaw_trajectory",
        ["namespace", "role", "ended_at"],
        unique=False,
    )
    for column in ("trace_id", "training_run"):
        where = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            op.f(f"ix_metaclaw_trajectory_namespace_{column}"),
            "metaclaw_trajectory",
            ["namespace", column],
            unique=False,
            sqlite_where=where,
            postgresql_where=where,
        )


def _extend_verdict() -> None:
    op.add_column("metaclaw_verdict", sa.Column("origin", sa.Text(), nullable=True))
    op.create_index(
        op.f("ix_metaclaw_verdict_namespace_trajectory_id_origin"),
        "metaclaw_verdict",
        ["namespace", "trajectory_id", "origin"],
        unique=True,
    )
    op.create_index(
        op.f("ix_metaclaw_verdict_namespace_source_trajectory_id"),
        "metaclaw_verdict",
        ["namespace", "source", "trajectory_id"],
        unique=False,
    )


def _extend_membership() -> None:
    where = sa.text("until IS NULL")
    op.create_index(
        "ix_metaclaw_membership_live",
        "metaclaw_membership",
        ["namespace", "skill_id"],
        unique=True,
        sqlite_where=where,
        postgresql_where=where,
    )


def _extend_generation() -> None:
    for column in (
        sa.Column("details", sa.Text(), nullable=False, server_default="{}"),
        sa.Column("export_state", sa.Text(), nullable=False, server_default="pending"),
        sa.Column("run_id", sa.Text(), nullable=True),
    ):
        op.add_column("metaclaw_generation", column)


def _create_skill_use() -> None:
    op.create_table(
        "metaclaw_skill_use",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("skill_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("how", sa.Text(), nullable=False),
        _to_trajectory("skill_use"),
        sa.PrimaryKeyConstraint(
            "namespace", "skill_id", "trajectory_id", name=op.f("pk_metaclaw_skill_use")
        ),
    )


def _create_judging() -> None:
    op.create_table(
        "metaclaw_judging",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        _to_trajectory("judging"),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", name=op.f("pk_metaclaw_judging")),
    )


def _create_evolution() -> None:
    op.create_table(
        "metaclaw_evolution",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("evolver", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_metaclaw_evolution")),
    )
    op.create_index(
        op.f("ix_metaclaw_evolution_namespace_generation"),
        "metaclaw_evolution",
        ["namespace", "generation"],
        unique=False,
    )


def _create_consumption() -> None:
    op.create_table(
        "metaclaw_consumption",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.Column("evolution_id", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        _to_trajectory("consumption"),
        _to_evolution("consumption"),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", name=op.f("pk_metaclaw_consumption")),
    )
    op.create_index(
        op.f("ix_metaclaw_consumption_namespace_evolution_id"),
        "metaclaw_consumption",
        ["namespace", "evolution_id"],
        unique=False,
    )


def _create_draft() -> None:
    op.create_table(
        "metaclaw_draft",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("evolution_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("replaces", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("untrusted", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("skill_id", sa.Text(), nullable=True),
        sa.Column("base", sa.Text(), nullable=True),
        _to_evolution("draft"),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_metaclaw_draft")),
    )
    op.create_index(
        op.f("ix_metaclaw_draft_namespace_state"),
        "metaclaw_draft",
        ["namespace", "state"],
        unique=False,
    )


def _create_probation() -> None:
    op.create_table(
        "metaclaw_probation",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("skill_id", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("holdout", sa.Float(), nullable=False),
        sa.Column("fallback", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace", "skill_id"],
            ["metaclaw_skill.namespace", "metaclaw_skill.id"],
            name=op.f("fk_metaclaw_probation_metaclaw_skill"),
        ),
        sa.PrimaryKeyConstraint(
            "namespace", "skill_id", "started_at", name=op.f("pk_metaclaw_probation")
        ),
    )
    op.create_index(
        op.f("ix_metaclaw_probation_namespace_state"),
        "metaclaw_probation",
        ["namespace", "state"],
        unique=False,
    )


def _create_training() -> None:
    op.create_table(
        "metaclaw_training",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "id", name=op.f("pk_metaclaw_training")),
    )


def _create_lease() -> None:
    op.create_table(
        "metaclaw_lease",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_metaclaw_lease")),
    )


def _to_trajectory(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["namespace", "trajectory_id"],
        ["metaclaw_trajectory.namespace", "metaclaw_trajectory.id"],
        name=op.f(f"fk_metaclaw_{table}_metaclaw_trajectory"),
        ondelete="CASCADE",
    )


def _to_evolution(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["namespace", "evolution_id"],
        ["metaclaw_evolution.namespace", "metaclaw_evolution.id"],
        name=op.f(f"fk_metaclaw_{table}_metaclaw_evolution"),
    )


_TRAJECTORY = sa.table(
    "metaclaw_trajectory", sa.column("namespace"), sa.column("id"), sa.column("skills")
)
_USE = sa.table(
    "metaclaw_skill_use",
    *(sa.column(name) for name in ("namespace", "skill_id", "trajectory_id", "how")),
)


def _fill_skill_use() -> None:
    """The runs so far: their skills are in a column of text."""
    for rows in _old_trajectories():
        uses = [
            {"namespace": namespace, "skill_id": skill, "trajectory_id": id, "how": how}
            for namespace, id, skills in rows
            for skill, how in _uses(skills).items()
        ]
        if uses:
            op.get_bind().execute(_USE.insert(), uses)


def _old_trajectories() -> Iterator[list[sa.Row[str, str, str]]]:
    key = sa.tuple_(_TRAJECTORY.c.namespace, _TRAJECTORY.c.id)
    query = sa.select(_TRAJECTORY).order_by(_TRAJECTORY.c.namespace, _TRAJECTORY.c.id)
    rows = list(op.get_bind().execute(query.limit(_BATCH)))
    while rows:
        yield rows
        later = query.where(key > sa.tuple_(rows[-1].namespace, rows[-1].id))
        rows = list(op.get_bind().execute(later.limit(_BATCH)))


def _uses(skills: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for id, _, injected in json.loads(skills):
        if injected or id not in found:
            found[id] = "injected" if injected else "found"
    return found
