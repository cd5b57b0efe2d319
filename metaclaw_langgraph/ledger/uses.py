"""Which runs found which skills, what became of them there, and how those runs were judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, func, select

from metaclaw_langgraph.ledger.codec import hits_of
from metaclaw_langgraph.ledger.schema import trajectories
from metaclaw_langgraph.ledger.schema_learning import skill_uses
from metaclaw_langgraph.ledger.store import Store, chunks, require_namespace
from metaclaw_langgraph.ledger.values import SkillCounts
from metaclaw_langgraph.types import SkillHit

__all__ = ["UseStore", "put_uses"]

_USE, _RUN = skill_uses.c, trajectories.c


class UseStore(Store):
    """The part of the ledger that counts what skills did."""

    def skill_counts(
        self, namespace: str, ids: Iterable[str] | None = None
    ) -> dict[str, SkillCounts]:
        """The counts of these skill versions, or of all that a run ever found."""
        query = _counts().where(_USE.namespace == require_namespace(namespace))
        with self._read() as connection:
            if ids is None:
                return _read(connection, query)
            wanted = list(ids)
            found: dict[str, SkillCounts] = {}
            for some in chunks(wanted):
                found.update(_read(connection, query.where(_USE.skill_id.in_(some))))
        return {id: found.get(id, SkillCounts()) for id in wanted}


def put_uses(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store the uses of new rows of trajectories."""
    uses = [
        {"namespace": row["namespace"], "skill_id": id, "trajectory_id": row["id"], "how": how}
        for row in rows
        for id, how in _uses(hits_of(row["skills"])).items()
    ]
    if uses:
        connection.execute(skill_uses.insert(), uses)


def _uses(hits: Iterable[SkillHit]) -> dict[str, str]:
    # A run that looked twice: what counts is whether the model was given the skill at all.
    ranked = sorted(hits, key=lambda hit: (hit.injected, hit.withheld))
    return {hit.id: _how(hit) for hit in ranked}


def _how(hit: SkillHit) -> str:
    if hit.injected:
        return "injected"
    return "withheld" if hit.withheld else "found"


def _counts() -> Select[str, int, int, int, int, int]:
    injected = _USE.how == "injected"
    return (
        select(
            _USE.skill_id,
            func.count(),
            func.count().filter(injected),
            func.count().filter(_USE.how == "withheld"),
            func.count().filter(and_(injected, _RUN.reward > 0)),
            func.count().filter(and_(injected, _RUN.reward <= 0)),
        )
        .join(trajectories, and_(_USE.namespace == _RUN.namespace, _USE.trajectory_id == _RUN.id))
        .group_by(_USE.skill_id)
    )


def _read(
    connection: Connection, query: Select[str, int, int, int, int, int]
) -> dict[str, SkillCounts]:
    return {row[0]: SkillCounts(*row[1:]) for row in connection.execute(query)}
