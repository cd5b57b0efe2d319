"""What waits for a judge, what a judge failed on, and how far it agrees with people.

A judge that fails gives no verdict: the trajectory stays unjudged. The failure is counted here,
with the time of the next try; without one it is not asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TypeVarTuple

from sqlalchemy import ColumnElement, Row, Select, and_, exists, func, or_, select

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.schema import trajectories, verdicts
from metaclaw_langgraph.ledger.schema_learning import judging
from metaclaw_langgraph.ledger.store import Store, require_namespace
from metaclaw_langgraph.ledger.trajectories import read_trajectories
from metaclaw_langgraph.ledger.values import Agreement, JudgingCounts
from metaclaw_langgraph.ledger.verdicts import JUDGEABLE
from metaclaw_langgraph.types import Trajectory, VerdictSource

__all__ = ["JudgingStore"]

_RUN, _TRY, _GIVEN = trajectories.c, judging.c, verdicts.c
_PROBLEM_LIMIT = 500

Ts = TypeVarTuple("Ts")


class JudgingStore(Store):
    """The part of the ledger that keeps track of judging."""

    def unjudged(
        self, namespace: str, *, since: datetime, now: datetime, limit: int
    ) -> list[Trajectory]:
        """The runs to judge, newest first: ended well since `since`, and due at `now`.

        Not those that a judge has looked at and could not tell.
        """
        due = or_(_TRY.trajectory_id.is_(None), _TRY.next_at <= now)
        query = (
            _waiting(select(_RUN.id), require_namespace(namespace), since)
            .where(due)
            .order_by(_RUN.ended_at.desc(), _RUN.id.desc())
            .limit(limit)
        )
        with self._read() as connection:
            ids = list(connection.execute(query).scalars())
            found = read_trajectories(connection, namespace, ids)
        return [found[id] for id in ids]

    def judge_failed(
        self,
        namespace: str,
        trajectory_id: str,
        problem: str,
        again: Callable[[int], datetime | None],
    ) -> int:
        """Count a try that gave no verdict; how many there were.

        `again` says when the next one is due after so many; None: it was the last.
        """
        mine = (_TRY.namespace == require_namespace(namespace), _TRY.trajectory_id == trajectory_id)
        known = select(_RUN.id).where(_RUN.namespace == namespace, _RUN.id == trajectory_id)
        with self._write() as connection:
            self._lock(connection, namespace)
            if connection.execute(known).first() is None:
                raise NotFoundError(f"no trajectory {trajectory_id!r} in namespace {namespace!r}")
            before = connection.execute(select(_TRY.tries).where(*mine)).scalar() or 0
            row = {
                "namespace": namespace,
                "trajectory_id": trajectory_id,
                "tries": before + 1,
                "next_at": again(before + 1),
                "problem": self._safe(problem)[:_PROBLEM_LIMIT],
            }
            connection.execute(judging.delete().where(*mine))
            connection.execute(judging.insert(), row)
        return before + 1

    def judging_counts(self, namespace: str, *, since: datetime) -> JudgingCounts:
        """How many runs that ended well since `since` have no verdict, by why."""
        tried, again = _TRY.trajectory_id.is_not(None), _TRY.next_at.is_not(None)
        count = select(
            func.count().filter(~tried),
            func.count().filter(and_(tried, again)),
            func.count().filter(and_(tried, ~again)),
        )
        query = _waiting(count, require_namespace(namespace), since)
        with self._read() as connection:
            return JudgingCounts(*connection.execute(query).one())

    def agreements(self, namespace: str) -> list[Agreement]:
        """The runs that both the judge and a person or a verifier have judged, by their ids."""
        query = (
            select(_GIVEN.trajectory_id, _GIVEN.source, _GIVEN.reward)
            .join(trajectories, _same_run())
            .where(_GIVEN.namespace == require_namespace(namespace))
            .where(_GIVEN.trajectory_id.in_(_checked(namespace)))
            .where(or_(_RUN.outcome.in_(JUDGEABLE), _GIVEN.source.in_(("human", "judge"))))
            .order_by(_GIVEN.trajectory_id, _GIVEN.at, _GIVEN.seq)
        )
        with self._read() as connection:
            rows = connection.execute(query).all()
        return _agreements(rows)


def _waiting(what: Select[*Ts], namespace: str, since: datetime) -> Select[*Ts]:
    same = and_(_RUN.namespace == _TRY.namespace, _RUN.id == _TRY.trajectory_id)
    judged = exists().where(_same_run(), _GIVEN.source == "judge").correlate(trajectories)
    return (
        what.select_from(trajectories.outerjoin(judging, same))
        .where(_RUN.namespace == namespace, _RUN.role == "unjudged", _RUN.outcome == "ok")
        .where(_RUN.ended_at >= since, ~judged)
    )


def _same_run() -> ColumnElement[bool]:
    return and_(_GIVEN.namespace == _RUN.namespace, _GIVEN.trajectory_id == _RUN.id)


def _checked(namespace: str) -> Select[str]:
    """The runs that the judge and somebody above it have judged; from an index alone."""
    other = verdicts.alias().c
    above = exists().where(
        other.namespace == namespace,
        other.source.in_(("human", "verifier")),
        other.trajectory_id == _GIVEN.trajectory_id,
    )
    return select(_GIVEN.trajectory_id).where(
        _GIVEN.namespace == namespace, _GIVEN.source == "judge", above
    )


def _agreements(rows: Iterable[Row[str, VerdictSource, float]]) -> list[Agreement]:
    # In order of time, so the later of one source replaces the earlier.
    by_run: dict[str, dict[VerdictSource, float]] = {}
    for id, source, reward in rows:
        by_run.setdefault(id, {})[source] = reward
    found = []
    for id, given in by_run.items():
        above: VerdictSource = "human" if "human" in given else "verifier"
        if "judge" in given and above in given:
            found.append(Agreement(id, given["judge"], given[above], above))
    return found
