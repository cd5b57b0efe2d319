"""Skill versions and their vectors. What is live is a matter of generations, not of this."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, select

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger.schema import membership, skills, vectors
from metaclaw_langgraph.ledger.store import Store, chunks, clean, dump, now, require_namespace
from metaclaw_langgraph.ledger.values import Interval, NewSkill, SkillRecord
from metaclaw_langgraph.types import Skill

__all__ = ["SkillStore"]


class SkillStore(Store):
    """The part of the ledger that holds skills."""

    def stage_skills(self, namespace: str, new: Sequence[NewSkill]) -> None:
        """Store versions and vectors; they become members by `commit_generation`.

        The same version with the same text is a no-op; with another text it is a ConflictError:
        somebody else took that version number.
        """
        require_namespace(namespace)
        in_order = sorted(new, key=lambda item: item.skill.id)
        rows = [_skill_row(namespace, item) for item in in_order]
        if not rows:
            return
        with self._write() as connection:
            self._lock(connection, namespace)
            connection.execute(self._insert(skills).on_conflict_do_nothing(), rows)
            _refuse_other_text(connection, namespace, in_order)
            self._put_vectors(connection, _vector_rows(namespace, in_order))

    def skills(self, namespace: str, ids: Iterable[str]) -> dict[str, Skill]:
        """The skills with these ids; ids that are not there are left out."""
        require_namespace(namespace)
        with self._read() as connection:
            return _skills(connection, namespace, ids)

    def latest_version(self, namespace: str, name: str) -> int:
        """The highest version ever stored under this name, staged ones included; 0 for none."""
        row = skills.c
        query = select(func.max(row.version)).where(
            row.namespace == require_namespace(namespace), row.name == name
        )
        with self._read() as connection:
            return connection.execute(query).scalar() or 0

    def live_versions(self, namespace: str, names: Iterable[str]) -> dict[str, Skill]:
        """The members of the current generation that have these names, by name."""
        query = _live().where(skills.c.namespace == require_namespace(namespace))
        found: dict[str, Skill] = {}
        with self._read() as connection:
            for some in chunks(names):
                rows = connection.execute(query.where(skills.c.name.in_(some))).mappings()
                found.update((row["name"], _skill(row)) for row in rows)
        return found

    def live_records(self, namespace: str) -> list[SkillRecord]:
        """The members of the current generation with where they came from, by name."""
        query = _live().where(skills.c.namespace == require_namespace(namespace))
        query = query.order_by(skills.c.name)
        with self._read() as connection:
            return [_record(found, ()) for found in connection.execute(query).mappings()]

    def active_skills(self, namespace: str) -> list[Skill]:
        """The members of the current generation, by name."""
        query = _live().where(skills.c.namespace == require_namespace(namespace))
        query = query.order_by(skills.c.name)
        with self._read() as connection:
            return [_skill(found) for found in connection.execute(query).mappings()]

    def skill_history(self, namespace: str, name: str) -> list[SkillRecord]:
        """Every stored version of a skill, oldest first. NotFoundError when there is none."""
        row = skills.c
        query = select(skills).where(
            row.namespace == require_namespace(namespace), row.name == name
        )
        with self._read() as connection:
            rows = connection.execute(query.order_by(row.version)).mappings().all()
            lives = _intervals(connection, namespace, [found["id"] for found in rows])
        if not rows:
            raise NotFoundError(f"no skill {name!r} in namespace {namespace!r}")
        return [_record(found, lives.get(found["id"], ())) for found in rows]

    def vectors(self, namespace: str, ids: Iterable[str], embedder: str) -> dict[str, bytes]:
        """The vectors that `embedder` made of these skills; missing ones are left out."""
        row = vectors.c
        query = select(row.skill_id, row.vector).where(
            row.namespace == require_namespace(namespace), row.embedder == embedder
        )
        found: dict[str, bytes] = {}
        with self._read() as connection:
            for some in chunks(ids):
                rows = connection.execute(query.where(row.skill_id.in_(some)))
                found.update((id, bytes(vector)) for id, vector in rows)
        return found

    def put_vectors(self, namespace: str, embedder: str, by_id: Mapping[str, bytes]) -> None:
        """Store vectors of skills that are there, in place of older ones of the same embedder."""
        require_namespace(namespace)
        rows = [_vector_row(namespace, embedder, id, by_id[id]) for id in sorted(by_id)]
        with self._write() as connection:
            known = _skills(connection, namespace, by_id)
            missing = sorted(set(by_id) - set(known))
            if missing:
                raise NotFoundError(f"no skill {missing[0]!r} in namespace {namespace!r}")
            self._put_vectors(connection, rows)

    def _put_vectors(self, connection: Connection, rows: list[dict[str, object]]) -> None:
        if not rows:
            return
        insert = self._insert(vectors)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=["namespace", "embedder", "skill_id"],
                set_={"vector": insert.excluded.vector},
            ),
            rows,
        )


def _skill_row(namespace: str, item: NewSkill) -> dict[str, object]:
    skill = item.skill
    if skill.version < 1:
        raise ValueError(f"skill {skill.name!r} needs a version from 1 on, got {skill.version}")
    return {
        "namespace": namespace,
        "id": skill.id,
        "name": skill.name,
        "version": skill.version,
        "description": clean(skill.description),
        "body": clean(skill.body),
        "metadata": dump(skill.metadata),
        "source": clean(item.source),
        "provenance": dump(item.provenance),
        "created_at": now(),
    }


def _vector_rows(namespace: str, new: Sequence[NewSkill]) -> list[dict[str, object]]:
    return [
        _vector_row(namespace, item.embedder, item.skill.id, item.vector)
        for item in new
        if item.embedder is not None and item.vector is not None
    ]


def _vector_row(namespace: str, embedder: str, id: str, vector: bytes) -> dict[str, object]:
    return {"namespace": namespace, "embedder": embedder, "skill_id": id, "vector": vector}


def _refuse_other_text(connection: Connection, namespace: str, new: Sequence[NewSkill]) -> None:
    stored = _skills(connection, namespace, [item.skill.id for item in new])
    for item in new:
        there, mine = stored[item.skill.id], item.skill
        same = (there.description, there.body) == (clean(mine.description), clean(mine.body))
        if not same or dump(there.metadata) != dump(mine.metadata):
            raise ConflictError(
                f"skill {mine.id} of namespace {namespace!r} exists with another text: "
                "read the latest version again and retry"
            )


def _skills(connection: Connection, namespace: str, ids: Iterable[str]) -> dict[str, Skill]:
    found: dict[str, Skill] = {}
    for some in chunks(ids):
        query = select(skills).where(skills.c.namespace == namespace, skills.c.id.in_(some))
        found.update((row["id"], _skill(row)) for row in connection.execute(query).mappings())
    return found


def _live() -> Select[tuple[Any, ...]]:
    row, member = skills.c, membership.c
    mine = (row.namespace == member.namespace) & (row.id == member.skill_id)
    return select(skills).join(membership, mine).where(member.until.is_(None))


def _skill(row: RowMapping) -> Skill:
    return Skill(
        name=row["name"],
        description=row["description"],
        body=row["body"],
        version=row["version"],
        metadata=json.loads(row["metadata"]),
    )


def _record(row: RowMapping, intervals: Iterable[Interval]) -> SkillRecord:
    return SkillRecord(
        skill=_skill(row),
        source=row["source"],
        provenance=json.loads(row["provenance"]),
        created_at=row["created_at"],
        intervals=tuple(intervals),
    )


def _intervals(
    connection: Connection, namespace: str, ids: Iterable[str]
) -> dict[str, list[Interval]]:
    row = membership.c
    found: dict[str, list[Interval]] = {}
    for some in chunks(ids):
        query = select(row.skill_id, row.since, row.until).where(
            row.namespace == namespace, row.skill_id.in_(some)
        )
        for one in connection.execute(query.order_by(row.since)):
            found.setdefault(one.skill_id, []).append(Interval(*one))
    return found
