"""Verdicts, and the role that the effective one gives its trajectory.

human > verifier > judge > run; of one rank the later wins, by the time that it was given: feedback
is fetched minutes after. A judge's 0 means that it cannot tell, so it does not count; a person's or
a verifier's is the lower of two marks, a failure. A trajectory that was interrupted or cancelled
says nothing about the agent, so only a human's verdict counts there. The move to a role is in the
transaction that stores the verdict. Data that was already consumed by an evolution or trained on
keeps its role: that use cannot be undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, cast

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    case,
    func,
    not_,
    or_,
    select,
)

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.schema import trajectories, verdicts
from metaclaw_langgraph.ledger.store import Store, clean, dump, now, require_namespace
from metaclaw_langgraph.types import Role, Verdict, VerdictSource

__all__ = [
    "JUDGEABLE",
    "RUN_FAILED",
    "VerdictStore",
    "counts",
    "effective_verdicts",
    "put_run_verdicts",
    "verdict_of",
]

JUDGEABLE = ("ok", "failed")
"""The outcomes that others than a human may judge."""

RUN_FAILED = -1.0
"""The reward of a run that raised, or reached its recursion limit."""

_RANK: dict[VerdictSource, int] = {"run": 0, "judge": 1, "verifier": 2, "human": 3}
_FINAL: tuple[Role, ...] = ("consumed", "trained")


class VerdictStore(Store):
    """The part of the ledger that holds verdicts."""

    def add_verdict(self, namespace: str, trajectory_id: str, verdict: Verdict) -> Role:
        """Store a verdict; the role that the trajectory has now.

        A verdict from an `origin` that was stored before for this trajectory changes nothing.
        One without a time was given now.
        """
        row = self._verdict_row(require_namespace(namespace), trajectory_id, verdict)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            trajectory = _judged(connection, namespace, trajectory_id)
            if _is_known(connection, row):
                return cast(Role, trajectory["role"])
            connection.execute(verdicts.insert(), row)
            effective = _effective(connection, namespace, trajectory_id)
            role = _role(trajectory, effective, current)
            _move(connection, namespace, trajectory_id, role, effective)
        return role

    def verdicts(self, namespace: str, trajectory_id: str) -> list[Verdict]:
        """All verdicts on a trajectory, in the order of their arrival."""
        require_namespace(namespace)
        with self._read() as connection:
            return _verdicts(connection, namespace, trajectory_id)

    def last_verdict(self, namespace: str) -> int:
        """A number that grows with every verdict; 0 before the first."""
        row = verdicts.c
        query = select(row.seq).where(row.namespace == require_namespace(namespace))
        with self._read() as connection:
            return connection.execute(query.order_by(row.seq.desc()).limit(1)).scalar() or 0

    def _verdict_row(self, namespace: str, id: str, verdict: Verdict) -> dict[str, object]:
        _check(verdict)
        scores = verdict.step_scores
        return {
            "namespace": namespace,
            "trajectory_id": id,
            "reward": float(verdict.reward),
            "source": verdict.source,
            "reason": self._safe(verdict.reason),
            "author": None if verdict.author is None else self._safe(verdict.author),
            "step_scores": None if scores is None else dump(scores),
            "at": verdict.at or now(),
            # As it is: two origins that redaction makes alike would count as one.
            "origin": None if verdict.origin is None else clean(verdict.origin),
        }


def put_run_verdicts(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """The verdicts of runs that failed; `rows` are their rows, the namespaces are locked."""
    given = [
        {
            "namespace": row["namespace"],
            "trajectory_id": row["id"],
            "reward": RUN_FAILED,
            "source": "run",
            "reason": row["error"] or "failed",
            "at": now(),
        }
        for row in rows
    ]
    if given:
        connection.execute(verdicts.insert(), given)


def counts() -> ColumnElement[bool]:
    """Whether a verdict counts, for a query that joins it with its trajectory."""
    row = verdicts.c
    judgeable = or_(trajectories.c.outcome.in_(JUDGEABLE), row.source == "human")
    return and_(judgeable, not_(and_(row.source == "judge", row.reward == 0)))


def effective_verdicts(namespace: str | BindParameter[str], which: ColumnElement[bool]) -> Subquery:
    """The effective verdicts of the trajectories that `which` holds for: columns of `verdicts`."""
    row, run = verdicts.c, trajectories.c
    # First the trajectories, in a query of their own: SQLite would else read all verdicts.
    ids = select(run.id).where(run.namespace == namespace, which).correlate(None)
    order = [case(_RANK, value=row.source).desc(), row.at.desc(), row.seq.desc()]
    place = func.row_number().over(partition_by=row.trajectory_id, order_by=order)
    ranked = (
        select(verdicts, place.label("place"))
        .join(trajectories, (row.namespace == run.namespace) & (row.trajectory_id == run.id))
        .where(row.namespace == namespace, row.trajectory_id.in_(ids))
        .where(counts())
        .subquery()
    )
    return select(ranked).where(ranked.c.place == 1).subquery()


def _check(verdict: Verdict) -> None:
    # The comparison also refuses NaN.
    if not -1 <= verdict.reward <= 1:
        raise ValueError(f"a reward is a number from -1 to 1, got {verdict.reward!r}")
    if verdict.source not in _RANK:
        raise ValueError(f"a verdict's source is one of {', '.join(_RANK)}, got {verdict.source!r}")


def _judged(connection: Connection, namespace: str, id: str) -> RowMapping:
    row = trajectories.c
    query = select(row.outcome, row.role, row.generation).where(
        row.namespace == namespace, row.id == id
    )
    found = connection.execute(query).mappings().first()
    if found is None:
        raise NotFoundError(f"no trajectory {id!r} in namespace {namespace!r}")
    return found


def _is_known(connection: Connection, row: Mapping[str, object]) -> bool:
    if row["origin"] is None:
        return False
    same = (verdicts.c[key] == row[key] for key in ("namespace", "trajectory_id", "origin"))
    return connection.execute(select(verdicts.c.seq).where(*same)).first() is not None


def _verdicts(connection: Connection, namespace: str, id: str) -> list[Verdict]:
    row = verdicts.c
    query = (
        select(verdicts)
        .where(row.namespace == namespace, row.trajectory_id == id)
        .order_by(row.seq)
    )
    return [verdict_of(found) for found in connection.execute(query).mappings()]


def verdict_of(row: RowMapping) -> Verdict:
    """The verdict of a row."""
    scores = row["step_scores"]
    return Verdict(
        reward=row["reward"],
        source=cast(VerdictSource, row["source"]),
        reason=row["reason"],
        author=row["author"],
        step_scores=None if scores is None else tuple(json.loads(scores)),
        at=row["at"],
        origin=row["origin"],
    )


@cache
def _effective_of() -> Select[Any]:
    """Built once: every verdict asks, and to build it takes longer than to run it."""
    this = trajectories.c.id == bindparam("id", type_=Text())
    return select(effective_verdicts(bindparam("of", type_=Text()), this))


def _effective(connection: Connection, namespace: str, id: str) -> Verdict | None:
    found = connection.execute(_effective_of(), {"of": namespace, "id": id}).mappings().first()
    return None if found is None else verdict_of(found)


def _role(trajectory: RowMapping, effective: Verdict | None, current: int) -> Role:
    role = cast(Role, trajectory["role"])
    if effective is None or role in _FINAL:
        return role
    if effective.reward <= 0:
        return "support"
    # Query data is of the current generation only; what was sampled earlier is for the record.
    return "query" if trajectory["generation"] == current else "stale"


def _move(
    connection: Connection, namespace: str, id: str, role: Role, effective: Verdict | None
) -> None:
    row = trajectories.c
    reward = None if effective is None else effective.reward
    update = trajectories.update().where(row.namespace == namespace, row.id == id)
    connection.execute(update.values(role=role, reward=reward))
