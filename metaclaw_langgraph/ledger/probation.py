"""Probation: skills that are live but withheld from some runs, until the counts decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, select

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger.schema import membership, trajectories, verdicts
from metaclaw_langgraph.ledger.schema_learning import probations, skill_uses
from metaclaw_langgraph.ledger.store import Store, chunks, now, require_namespace
from metaclaw_langgraph.ledger.values import Probation, ProbationState, Trial
from metaclaw_langgraph.ledger.verdicts import counts
from metaclaw_langgraph.types import Json

__all__ = ["ProbationStore"]

_ROW, _USE, _RUN, _GIVEN = probations.c, skill_uses.c, trajectories.c, verdicts.c


class ProbationStore(Store):
    """The part of the ledger that holds probations."""

    def probations(
        self, namespace: str, *, state: ProbationState | None = "open"
    ) -> list[Probation]:
        """The probations in this state (None: in any), oldest first."""
        query = select(probations).where(_ROW.namespace == require_namespace(namespace))
        if state is not None:
            query = query.where(_ROW.state == state)
        with self._read() as connection:
            rows = connection.execute(query.order_by(_ROW.started_at, _ROW.skill_id))
            return [_probation(row) for row in rows.mappings()]

    def trials(self, namespace: str, skill_id: str) -> list[Trial]:
        """The judged runs since the skill's latest probation began, in the order they were judged.

        That is the order in which a test that looks after each verdict sees them. Only runs that
        were given the skill, or had it withheld by lot: where there was no room for it, nothing
        can be learnt about it.
        """
        latest = select(func.max(_ROW.started_at)).where(
            _ROW.namespace == require_namespace(namespace), _ROW.skill_id == skill_id
        )
        query = (
            select(_judged(), _RUN.started_at, _RUN.id, _USE.how, _RUN.reward)
            .join(skill_uses, and_(_USE.namespace == _RUN.namespace, _USE.trajectory_id == _RUN.id))
            .where(_USE.namespace == namespace, _USE.skill_id == skill_id)
            .where(_USE.how.in_(("injected", "withheld")), _RUN.reward.is_not(None))
        )
        with self._read() as connection:
            began = connection.execute(latest).scalar()
            if began is None:
                return []
            # Sorted here: few runs found it, and SQLite would read all runs since then instead.
            rows = sorted(map(tuple, connection.execute(query)))
        return [Trial(id, how == "withheld", r > 0) for _, at, id, how, r in rows if at >= began]

    def open_trials(self, namespace: str) -> dict[str, list[Trial]]:
        """The trials of every skill that is on probation, as `trials`, in one query."""
        used = and_(_USE.namespace == _ROW.namespace, _USE.skill_id == _ROW.skill_id)
        ran = and_(_RUN.namespace == _USE.namespace, _RUN.id == _USE.trajectory_id)
        query = (
            select(_ROW.skill_id, _judged(), _RUN.started_at, _RUN.id, _USE.how, _RUN.reward)
            .join_from(probations, skill_uses, used)
            .join(trajectories, ran)
            .where(_ROW.namespace == require_namespace(namespace), _ROW.state == "open")
            .where(_USE.how.in_(("injected", "withheld")), _RUN.reward.is_not(None))
            .where(_RUN.started_at >= _ROW.started_at)
        )
        found: dict[str, list[Trial]] = {}
        with self._read() as connection:
            rows = sorted(map(tuple, connection.execute(query)))
        for skill_id, _, _, id, how, reward in rows:
            found.setdefault(skill_id, []).append(Trial(id, how == "withheld", reward > 0))
        return found

    def close_probation(self, namespace: str, probation: Probation) -> None:
        """The skill has proved itself: it is withheld no more. Retiring takes a generation."""
        if probation.state != "kept":
            raise ValueError("a skill is retired with a generation: use commit_generation")
        require_namespace(namespace)
        with self._write() as connection:
            self._lock(connection, namespace)
            self._close_probations(connection, namespace, [probation])

    def _begin_probations(
        self, connection: Connection, namespace: str, new: Sequence[Probation]
    ) -> None:
        ids = {probation.skill_id for probation in new}
        if missing := sorted(ids - _live(connection, namespace, ids)):
            raise ValueError(f"{missing[0]} is not live, so it cannot be on probation")
        if again := sorted(_open(connection, namespace, ids)):
            raise ConflictError(f"skill {again[0]} is on probation already")
        rows = [self._probation_row(namespace, probation) for probation in new]
        if rows:
            connection.execute(probations.insert(), rows)

    def _close_probations(
        self, connection: Connection, namespace: str, closed: Sequence[Probation]
    ) -> None:
        """Close open ones, each with its state and evidence; ConflictError if one is not open."""
        for probation in closed:
            if probation.state == "open":
                raise ValueError(f"the probation of {probation.skill_id} is closed as what?")
            update = probations.update().where(_is_open(namespace, [probation.skill_id]))
            changed = {
                "state": probation.state,
                "decided_at": probation.decided_at or now(),
                "evidence": self._safe_json(probation.evidence),
            }
            if connection.execute(update.values(changed)).rowcount == 0:
                raise ConflictError(
                    f"skill {probation.skill_id} of namespace {namespace!r} is not on probation: "
                    "read the probations again and retry"
                )

    def _retire_probations(
        self, connection: Connection, namespace: str, removed: Iterable[str], reason: str
    ) -> None:
        """Skills that are taken out are withheld from nobody."""
        evidence: Mapping[str, Json] = {"reason": reason}
        gone = _open(connection, namespace, removed)
        closed = [Probation(id, 0.0, state="retired", evidence=evidence) for id in sorted(gone)]
        self._close_probations(connection, namespace, closed)

    def _probation_row(self, namespace: str, probation: Probation) -> dict[str, object]:
        # The comparison also refuses NaN.
        if probation.state != "open" or not 0 < probation.holdout < 1:
            raise ValueError(
                f"a probation begins open, with a holdout between 0 and 1: {probation}"
            )
        return {
            "namespace": namespace,
            "skill_id": probation.skill_id,
            "started_at": probation.started_at or now(),
            "holdout": probation.holdout,
            "fallback": probation.fallback,
            "state": "open",
            "evidence": self._safe_json(probation.evidence),
        }


def _judged() -> ColumnElement[int]:
    """The number of a run's first verdict that counts; 0 for what was stored with its reward."""
    first = select(func.min(_GIVEN.seq)).where(
        _GIVEN.namespace == _RUN.namespace, _GIVEN.trajectory_id == _RUN.id, counts()
    )
    return func.coalesce(first.correlate(trajectories).scalar_subquery(), 0)


def _is_open(namespace: str, ids: Sequence[str]) -> ColumnElement[bool]:
    return and_(_ROW.namespace == namespace, _ROW.skill_id.in_(ids), _ROW.state == "open")


def _open(connection: Connection, namespace: str, ids: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for some in chunks(ids):
        query = select(_ROW.skill_id).where(_is_open(namespace, some))
        found.update(connection.execute(query).scalars())
    return found


def _live(connection: Connection, namespace: str, ids: Iterable[str]) -> set[str]:
    found: set[str] = set()
    member = membership.c
    for some in chunks(ids):
        query = select(member.skill_id).where(
            member.namespace == namespace, member.skill_id.in_(some), member.until.is_(None)
        )
        found.update(connection.execute(query).scalars())
    return found


def _probation(row: RowMapping) -> Probation:
    return Probation(
        skill_id=row["skill_id"],
        holdout=row["holdout"],
        fallback=row["fallback"],
        state=row["state"],
        started_at=row["started_at"],
        decided_at=row["decided_at"],
        evidence=json.loads(row["evidence"]),
    )
