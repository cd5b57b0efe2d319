"""The support set: failures that wait for an evolution, and what the evolutions consumed.

A failure is consumed once, in the transaction that records the evolution; with it, it leaves the
support set for good. An evolution that makes a generation is recorded by `commit_generation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, Text, bindparam, select

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger.drafts import DraftStore
from metaclaw_langgraph.ledger.schema import trajectories
from metaclaw_langgraph.ledger.schema_learning import consumption, evolutions
from metaclaw_langgraph.ledger.store import chunks, clean, now, require_namespace
from metaclaw_langgraph.ledger.trajectories import read_trajectories
from metaclaw_langgraph.ledger.values import Evolution, EvolutionRecord, Failure
from metaclaw_langgraph.ledger.verdicts import effective_verdicts, verdict_of
from metaclaw_langgraph.types import Verdict

__all__ = ["SupportStore"]

_RUN, _USED, _EVOLUTION = trajectories.c, consumption.c, evolutions.c


class SupportStore(DraftStore):
    """The part of the ledger that holds the support set and the evolutions."""

    def failures(self, namespace: str, *, limit: int, in_words: bool = False) -> list[Failure]:
        """The support set, the oldest verdict first; `in_words`: only those whose verdict is by a
        person or a verifier, with a reason."""
        given = {"of": require_namespace(namespace), "most": limit}
        with self._read() as connection:
            rows = connection.execute(_support(in_words), given).mappings().all()
            judged = {row["trajectory_id"]: verdict_of(row) for row in rows}
            return _with_runs(connection, namespace, judged)

    def has_failures(self, namespace: str) -> bool:
        """Whether there is anything in the support set."""
        query = select(_RUN.id).where(
            _RUN.namespace == require_namespace(namespace), _RUN.role == "support"
        )
        with self._read() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def failures_after(self, namespace: str, seq: int, *, limit: int) -> tuple[list[Failure], int]:
        """The failures whose effective verdict came after number `seq`, in that order, and the
        number of the last; for who looks at each once."""
        given = {"of": require_namespace(namespace), "after": seq, "most": limit}
        with self._read() as connection:
            rows = connection.execute(_support_after(), given).mappings().all()
            judged = {row["trajectory_id"]: verdict_of(row) for row in rows}
            last = max((int(row["seq"]) for row in rows), default=seq)
            return _with_runs(connection, namespace, judged), last

    def successes(self, namespace: str, *, limit: int) -> list[Failure]:
        """Runs that ended well and were judged good, newest first, whatever became of them."""
        query = (
            select(_RUN.id)
            .where(_RUN.namespace == require_namespace(namespace), _RUN.outcome == "ok")
            .where(_RUN.reward > 0)
            .order_by(_RUN.started_at.desc(), _RUN.id.desc())
            .limit(limit)
        )
        with self._read() as connection:
            ids = list(connection.execute(query).scalars())
            given = _effective(connection, namespace, ids)
            return _with_runs(connection, namespace, {id: given[id] for id in ids})

    def record_evolution(self, namespace: str, evolution: Evolution) -> None:
        """Consume failures and store the drafts of an evolution that makes no generation.

        ConflictError, and no change, when one of them is not in the support set any more.
        """
        require_namespace(namespace)
        with self._write() as connection:
            self._lock(connection, namespace)
            self._consume(connection, namespace, evolution, None)

    def evolutions(
        self, namespace: str, limit: int = 50, *, generation: int | None = None
    ) -> list[EvolutionRecord]:
        """Newest first; only those that made this generation, if one is given."""
        query = select(evolutions).where(_EVOLUTION.namespace == require_namespace(namespace))
        if generation is not None:
            query = query.where(_EVOLUTION.generation == generation)
        query = query.order_by(_EVOLUTION.at.desc(), _EVOLUTION.id.desc()).limit(limit)
        with self._read() as connection:
            rows = connection.execute(query).mappings().all()
            used = _consumed_by(connection, namespace, [row["id"] for row in rows])
        return [
            EvolutionRecord(
                id=row["id"],
                evolver=row["evolver"],
                at=row["at"],
                generation=row["generation"],
                consumed=used.get(row["id"], {}),
                details=json.loads(row["details"]),
            )
            for row in rows
        ]

    def consumption(self, namespace: str, trajectory_id: str) -> tuple[str, str] | None:
        """The evolution that consumed a trajectory, and why it did; None when none has."""
        query = select(_USED.evolution_id, _USED.reason).where(
            _USED.namespace == require_namespace(namespace), _USED.trajectory_id == trajectory_id
        )
        with self._read() as connection:
            found = connection.execute(query).first()
        return None if found is None else (found.evolution_id, found.reason)

    def _consume(
        self,
        connection: Connection,
        namespace: str,
        evolution: Evolution,
        generation: int | None,
    ) -> None:
        """Record the evolution; the caller has locked the namespace."""
        _refuse_again(connection, namespace, evolution.id)
        ids = sorted(evolution.consumed)
        _refuse_others_than_support(connection, namespace, ids)
        connection.execute(
            evolutions.insert(),
            {
                "namespace": namespace,
                "id": clean(evolution.id),
                "evolver": self._safe(evolution.evolver),
                "at": now(),
                "generation": generation,
                "details": self._safe_json(evolution.details),
            },
        )
        reasons = [self._safe(evolution.consumed[id]) for id in ids]
        _move_to_consumed(connection, namespace, evolution.id, ids, reasons)
        self._put_drafts(connection, namespace, evolution.id, evolution.drafts)


@cache
def _support(in_words: bool) -> Select[Any]:
    """Built once: the learner asks often, and to build it takes longer than to run it."""
    verdict = effective_verdicts(bindparam("of", type_=Text()), _RUN.role == "support")
    query = select(verdict).order_by(verdict.c.at, verdict.c.seq).limit(bindparam("most"))
    if not in_words:
        return query
    return query.where(verdict.c.source.in_(("human", "verifier")), verdict.c.reason != "")


@cache
def _support_after() -> Select[Any]:
    verdict = effective_verdicts(bindparam("of", type_=Text()), _RUN.role == "support")
    query = select(verdict).where(verdict.c.seq > bindparam("after"))
    return query.order_by(verdict.c.seq).limit(bindparam("most"))


def _with_runs(connection: Connection, namespace: str, judged: dict[str, Verdict]) -> list[Failure]:
    runs = read_trajectories(connection, namespace, list(judged))
    return [Failure(runs[id], verdict) for id, verdict in judged.items()]


def _effective(connection: Connection, namespace: str, ids: Iterable[str]) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for some in chunks(ids):
        verdict = effective_verdicts(namespace, _RUN.id.in_(some))
        rows = connection.execute(select(verdict)).mappings()
        found.update((row["trajectory_id"], verdict_of(row)) for row in rows)
    return found


def _refuse_again(connection: Connection, namespace: str, id: str) -> None:
    same = select(_EVOLUTION.id).where(_EVOLUTION.namespace == namespace, _EVOLUTION.id == id)
    if connection.execute(same).first() is not None:
        raise ConflictError(f"evolution {id!r} of namespace {namespace!r} is already recorded")


def _refuse_others_than_support(connection: Connection, namespace: str, ids: Sequence[str]) -> None:
    roles: dict[str, str] = {}
    for some in chunks(ids):
        query = select(_RUN.id, _RUN.role).where(_RUN.namespace == namespace, _RUN.id.in_(some))
        roles.update((row.id, row.role) for row in connection.execute(query))
    for id in ids:
        if roles.get(id) != "support":
            raise ConflictError(
                f"trajectory {id!r} of namespace {namespace!r} is {roles.get(id, 'not there')}, "
                "not support: read the failures again and retry"
            )


def _move_to_consumed(
    connection: Connection,
    namespace: str,
    evolution: str,
    ids: Sequence[str],
    reasons: Sequence[str],
) -> None:
    rows = [
        {"namespace": namespace, "trajectory_id": id, "evolution_id": evolution, "reason": reason}
        for id, reason in zip(ids, reasons, strict=True)
    ]
    if rows:
        connection.execute(consumption.insert(), rows)
    for some in chunks(ids):
        mine = (_RUN.namespace == namespace, _RUN.id.in_(some))
        connection.execute(trajectories.update().where(*mine).values(role="consumed"))


def _consumed_by(
    connection: Connection, namespace: str, ids: Iterable[str]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for some in chunks(ids):
        query = select(_USED.evolution_id, _USED.trajectory_id, _USED.reason).where(
            _USED.namespace == namespace, _USED.evolution_id.in_(some)
        )
        for evolution, trajectory, reason in connection.execute(
            query.order_by(_USED.trajectory_id)
        ):
            found.setdefault(evolution, {})[trajectory] = reason
    return found
