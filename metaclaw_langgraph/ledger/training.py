"""Training runs: the query data that each was given, kept or handed back.

Only query data of the current generation is drained. What a run was given stays `trained` when it
finishes; when it is aborted, each trajectory gets the role that its verdict gives it today.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, RowMapping, case, select

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger.schema import trajectories
from metaclaw_langgraph.ledger.schema_learning import training
from metaclaw_langgraph.ledger.store import Store, chunks, now, require_namespace
from metaclaw_langgraph.ledger.values import TrainingRun

__all__ = ["TrainingStore"]

_RUN, _ROW = trajectories.c, training.c
_State: TypeAlias = Literal["running", "done", "aborted"]


class TrainingStore(Store):
    """The part of the ledger that hands out query data."""

    def drain_query(self, namespace: str, run_id: str, *, limit: int | None = None) -> TrainingRun:
        """Begin a training run with all query data, or the `limit` oldest of it."""
        if limit is not None and limit < 1:
            raise ValueError(f"a training run takes at least one trajectory, got limit={limit}")
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            started_at = _begin(connection, namespace, run_id, current)
            ids = _query_ids(connection, namespace, current, limit)
            _give(connection, namespace, run_id, ids)
        return TrainingRun(run_id, current, "running", started_at, None, tuple(ids))

    def finish_training(self, namespace: str, run_id: str) -> None:
        """The run has used its data: it is not handed out again."""
        require_namespace(namespace)
        with self._write() as connection:
            self._lock(connection, namespace)
            _end(connection, namespace, run_id, "done")

    def abort_training(self, namespace: str, run_id: str) -> None:
        """The run has not used its data: it is handed back, as what it is by now."""
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            _end(connection, namespace, run_id, "aborted")
            mine = (_RUN.namespace == namespace, _RUN.training_run == run_id)
            back = trajectories.update().where(*mine)
            connection.execute(back.values(role=_role_now(current), training_run=None))

    def training_runs(self, namespace: str, *, state: _State | None = None) -> list[TrainingRun]:
        """Newest first. An aborted run has no trajectories any more."""
        query = select(training).where(_ROW.namespace == require_namespace(namespace))
        if state is not None:
            query = query.where(_ROW.state == state)
        with self._read() as connection:
            ordered = query.order_by(_ROW.started_at.desc(), _ROW.id.desc())
            rows = connection.execute(ordered).mappings().all()
            given = _given(connection, namespace, [row["id"] for row in rows])
        return [_run(row, given.get(row["id"], [])) for row in rows]


def _begin(connection: Connection, namespace: str, run_id: str, generation: int) -> datetime:
    same = select(_ROW.state).where(_ROW.namespace == namespace, _ROW.id == run_id)
    state = connection.execute(same).scalar()
    if state is not None:
        raise ConflictError(f"training run {run_id!r} of {namespace!r} is {state} already")
    at = now()
    row = {"namespace": namespace, "id": run_id, "generation": generation, "started_at": at}
    connection.execute(training.insert(), {**row, "state": "running"})
    return at


def _query_ids(
    connection: Connection, namespace: str, generation: int, limit: int | None
) -> list[str]:
    query = select(_RUN.started_at, _RUN.id).where(
        _RUN.namespace == namespace, _RUN.role == "query", _RUN.generation == generation
    )
    # Sorted here: to get them sorted, SQLite would read every trajectory in order of time.
    return [id for _, id in sorted(map(tuple, connection.execute(query)))][:limit]


def _give(connection: Connection, namespace: str, run_id: str, ids: Iterable[str]) -> None:
    for some in chunks(ids):
        mine = (_RUN.namespace == namespace, _RUN.id.in_(some))
        update = trajectories.update().where(*mine)
        connection.execute(update.values(role="trained", training_run=run_id))


def _end(connection: Connection, namespace: str, run_id: str, state: _State) -> None:
    mine = (_ROW.namespace == namespace, _ROW.id == run_id)
    was = connection.execute(select(_ROW.state).where(*mine)).scalar()
    if was is None:
        raise NotFoundError(f"no training run {run_id!r} in namespace {namespace!r}")
    if was != "running":
        raise ConflictError(f"training run {run_id!r} of {namespace!r} is {was} already")
    connection.execute(training.update().where(*mine).values(state=state, ended_at=now()))


def _role_now(current: int) -> ColumnElement[str]:
    """The role by the effective verdict's reward, which later verdicts have kept up to date."""
    return case(
        (_RUN.reward.is_(None), "unjudged"),
        (_RUN.reward <= 0, "support"),
        (_RUN.generation == current, "query"),
        else_="stale",
    )


def _given(connection: Connection, namespace: str, ids: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for some in chunks(ids):
        query = select(_RUN.started_at, _RUN.id, _RUN.training_run).where(
            _RUN.namespace == namespace, _RUN.training_run.in_(some)
        )
        for _, id, run_id in sorted(map(tuple, connection.execute(query))):
            found.setdefault(run_id, []).append(id)
    return found


def _run(row: RowMapping, ids: Iterable[str]) -> TrainingRun:
    return TrainingRun(
        id=row["id"],
        generation=row["generation"],
        state=row["state"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        trajectories=tuple(ids),
    )
