"""Trajectories: stored once, listed, found, and linked to their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.codec import from_row, summary, to_row
from metaclaw_langgraph.ledger.schema import trajectories
from metaclaw_langgraph.ledger.store import Store, require_namespace
from metaclaw_langgraph.ledger.values import Counts, TraceState, TrajectorySummary
from metaclaw_langgraph.types import Outcome, Role, Trajectory

__all__ = ["TrajectoryStore"]

_ROW = trajectories.c
_LIST = [column for column in _ROW if column.name != "body"]


class TrajectoryStore(Store):
    """The part of the ledger that holds trajectories."""

    def add_trajectories(self, batch: Sequence[Trajectory], *, trace: TraceState = "off") -> int:
        """Store a batch in one transaction; ids already there are left alone. How many were new.

        `trace="pending"` marks those without a `trace_id` for export.
        """
        return self.add_rows([to_row(trajectory, trace, self._redactor) for trajectory in batch])

    def add_rows(self, batch: Sequence[Mapping[str, Any]]) -> int:
        """The same with rows that `to_row` made, perhaps earlier and in another process."""
        # One order for all writers: two overlapping batches then wait instead of deadlocking.
        rows = sorted(batch, key=lambda row: (row["namespace"], row["id"]))
        if not rows:
            return 0
        with self._write() as connection:
            self._know(connection, {row["namespace"] for row in rows})
            insert = self._insert(trajectories).on_conflict_do_nothing()
            # Not `rowcount`, which psycopg does not give for a batch.
            return len(connection.execute(insert.returning(_ROW.id), rows).all())

    def trajectories(
        self,
        namespace: str,
        *,
        limit: int = 50,
        outcome: Outcome | None = None,
        role: Role | None = None,
    ) -> list[TrajectorySummary]:
        """Newest first."""
        query = select(*_LIST).where(_ROW.namespace == require_namespace(namespace))
        if outcome is not None:
            query = query.where(_ROW.outcome == outcome)
        if role is not None:
            query = query.where(_ROW.role == role)
        query = query.order_by(_ROW.started_at.desc(), _ROW.id.desc()).limit(limit)
        with self._read() as connection:
            return [summary(row) for row in connection.execute(query).mappings()]

    def trajectory(self, namespace: str, id_or_prefix: str) -> Trajectory:
        """The trajectory with this id, or the only one whose id begins so."""
        require_namespace(namespace)
        with self._read() as connection:
            return from_row(_find(connection, namespace, id_or_prefix))

    def find_trajectory(
        self,
        namespace: str,
        *,
        id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> str | None:
        """The id of the latest trajectory with these marks; of all, when none is given."""
        query = select(_ROW.id).where(_ROW.namespace == require_namespace(namespace))
        marks = {_ROW.id: id, _ROW.run_id: run_id, _ROW.thread_id: thread_id}
        for column, wanted in marks.items():
            query = query if wanted is None else query.where(column == wanted)
        query = query.order_by(_ROW.started_at.desc(), _ROW.id.desc()).limit(1)
        with self._read() as connection:
            return connection.execute(query).scalar()

    def untraced(self, namespace: str, *, limit: int) -> list[Trajectory]:
        """Trajectories whose trace is still to be exported, oldest first."""
        query = (
            select(trajectories)
            .where(_ROW.namespace == require_namespace(namespace), _ROW.trace_state == "pending")
            .order_by(_ROW.started_at, _ROW.id)
            .limit(limit)
        )
        with self._read() as connection:
            return [from_row(row) for row in connection.execute(query).mappings()]

    def set_trace(
        self, namespace: str, id: str, trace_id: str | None, *, state: TraceState = "done"
    ) -> None:
        """Link a trajectory to its trace, or record that it gets none."""
        update = (
            trajectories.update()
            .where(_ROW.namespace == require_namespace(namespace), _ROW.id == id)
            .values(trace_id=trace_id, trace_state=state)
        )
        with self._write() as connection:
            if connection.execute(update).rowcount == 0:
                raise _not_found(namespace, id)

    def counts(self, namespace: str) -> Counts:
        """How many trajectories there are, by outcome, by role and by trace."""
        require_namespace(namespace)
        with self._read() as connection:
            return Counts(
                outcome=_count(connection, namespace, "outcome"),
                role=_count(connection, namespace, "role"),
                trace=_count(connection, namespace, "trace_state"),
            )


def _find(connection: Connection, namespace: str, id_or_prefix: str) -> RowMapping:
    exact = select(trajectories).where(_ROW.namespace == namespace, _ROW.id == id_or_prefix)
    found = connection.execute(exact).mappings().first()
    if found is not None:
        return found
    if not id_or_prefix:
        raise NotFoundError("give a trajectory's id, or the beginning of it")
    # Not LIKE, which ignores case in SQLite.
    begins = func.substr(_ROW.id, 1, len(id_or_prefix)) == id_or_prefix
    several = select(trajectories).where(_ROW.namespace == namespace, begins).limit(2)
    rows = connection.execute(several).mappings().all()
    if len(rows) > 1:
        raise NotFoundError(
            f"several trajectories of {namespace!r} begin with {id_or_prefix!r}: give more of it"
        )
    if not rows:
        raise _not_found(namespace, id_or_prefix)
    return rows[0]


def _not_found(namespace: str, id: str) -> NotFoundError:
    return NotFoundError(
        f"no trajectory {id!r} in namespace {namespace!r}: see `metaclaw trajectories list`"
    )


def _count(connection: Connection, namespace: str, name: str) -> dict[str, int]:
    column = _ROW[name]
    query = select(column, func.count()).where(_ROW.namespace == namespace).group_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}
