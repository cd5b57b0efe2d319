"""Trajectories: stored once, listed, found, and linked to their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, literal, select, tuple_

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.codec import from_row, summary, to_row
from metaclaw_langgraph.ledger.schema import trajectories
from metaclaw_langgraph.ledger.store import Store, chunks, require_namespace
from metaclaw_langgraph.ledger.uses import put_uses
from metaclaw_langgraph.ledger.values import Counts, TraceState, TrajectorySummary
from metaclaw_langgraph.ledger.verdicts import RUN_FAILED, put_run_verdicts
from metaclaw_langgraph.types import Outcome, Role, Trajectory

__all__ = ["TrajectoryStore", "read_trajectories"]

_ROW = trajectories.c
_LIST = [column for column in _ROW if column.name != "body"]


class TrajectoryStore(Store):
    """The part of the ledger that holds trajectories."""

    def add_trajectories(self, batch: Sequence[Trajectory], *, trace: TraceState = "off") -> int:
        """Store a batch in one transaction; ids already there are left alone. How many were new.

        What failed is support at once, by the run's own verdict: no judge is asked.
        `trace="pending"` marks those without a `trace_id` for export.
        """
        return self.add_rows([to_row(trajectory, trace, self._redactor) for trajectory in batch])

    def add_rows(self, batch: Sequence[Mapping[str, Any]]) -> int:
        """The same with rows that `to_row` made, perhaps earlier and in another process."""
        # One order for all writers: two overlapping batches then wait instead of deadlocking.
        rows = sorted(batch, key=lambda row: (row["namespace"], row["id"]))
        if not rows:
            return 0
        rows = [{**row, **_first_role(row)} for row in rows]
        with self._write() as connection:
            self._know(connection, {row["namespace"] for row in rows})
            insert = self._insert(trajectories).on_conflict_do_nothing()
            # Not `rowcount`, which psycopg does not give for a batch.
            stored = connection.execute(insert.returning(_ROW.namespace, _ROW.id), rows).all()
            new = _those(rows, {(one.namespace, one.id) for one in stored})
            put_uses(connection, new)
            self._put_run_verdicts(connection, new)
        return len(stored)

    def _put_run_verdicts(self, connection: Connection, new: Sequence[Mapping[str, Any]]) -> None:
        """What the runs that failed say of themselves.

        Under the lock, as every verdict: so a higher number is never seen before a lower one.
        Only now: from here on nothing waits for the rows of another batch that wants the lock.
        """
        failed = [row for row in new if row["outcome"] == "failed" and row["role"] == "support"]
        for namespace in sorted({row["namespace"] for row in failed}):
            self._lock(connection, namespace)
        put_run_verdicts(connection, failed)

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

    def find_by_trace(self, namespace: str, trace_id: str) -> str | None:
        """The id of the trajectory that this trace shows."""
        query = select(_ROW.id).where(
            _ROW.namespace == require_namespace(namespace), _ROW.trace_id == trace_id
        )
        with self._read() as connection:
            return connection.execute(query).scalar()

    def previous_in_thread(self, namespace: str, trajectory_id: str) -> Trajectory | None:
        """The run before this one in its thread; None when it is the first, or has no thread."""
        require_namespace(namespace)
        with self._read() as connection:
            this = _find_exactly(connection, namespace, trajectory_id)
            if this["thread_id"] is None:
                return None
            when, ahead = this["started_at"], tuple_(_ROW.started_at, _ROW.id)
            query = select(trajectories).where(
                _ROW.namespace == namespace,
                _ROW.thread_id == this["thread_id"],
                ahead < tuple_(literal(when, _ROW.started_at.type), literal(this["id"])),
            )
            query = query.order_by(_ROW.started_at.desc(), _ROW.id.desc()).limit(1)
            found = connection.execute(query).mappings().first()
        return None if found is None else from_row(found)

    def last_active(self, namespace: str, threads: Sequence[str]) -> dict[str, datetime]:
        """When the latest run of each of these threads ended."""
        query = select(_ROW.thread_id, func.max(_ROW.ended_at)).where(
            _ROW.namespace == require_namespace(namespace)
        )
        found: dict[str, datetime] = {}
        with self._read() as connection:
            for some in chunks(threads):
                mine = query.where(_ROW.thread_id.in_(some)).group_by(_ROW.thread_id)
                found.update((row[0], row[1]) for row in connection.execute(mine))
        return found

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


def read_trajectories(
    connection: Connection, namespace: str, ids: Sequence[str]
) -> dict[str, Trajectory]:
    """The trajectories with these ids."""
    found: dict[str, Trajectory] = {}
    for some in chunks(ids):
        query = select(trajectories).where(_ROW.namespace == namespace, _ROW.id.in_(some))
        found.update((row["id"], from_row(row)) for row in connection.execute(query).mappings())
    return found


def _first_role(row: Mapping[str, Any]) -> dict[str, object]:
    if row["outcome"] == "failed" and row["role"] in ("unjudged", "support"):
        return {"role": "support", "reward": RUN_FAILED}
    return {"reward": row.get("reward")}


def _those(
    rows: Sequence[Mapping[str, Any]], keys: Set[tuple[str, str]]
) -> list[Mapping[str, Any]]:
    # Of two rows with one id the first was stored.
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault((row["namespace"], row["id"]), row)
    return [row for key, row in first.items() if key in keys]


def _find_exactly(connection: Connection, namespace: str, id: str) -> RowMapping:
    query = select(*_LIST).where(_ROW.namespace == namespace, _ROW.id == id)
    found = connection.execute(query).mappings().first()
    if found is None:
        raise _not_found(namespace, id)
    return found


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
