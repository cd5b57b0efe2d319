"""Generations: which skills are live, as one pointer that moves in one transaction.

Membership is stored as intervals of generations, so that a bump writes only what it changes and
every past generation can still be read. A rollback is a new generation with an old membership.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger.schema import (
    generations,
    membership,
    namespaces,
    skills,
    trajectories,
)
from metaclaw_langgraph.ledger.store import Store, chunks, clean, now, require_namespace
from metaclaw_langgraph.ledger.values import GenerationRecord, Interval

__all__ = ["GenerationStore"]

_MEMBER = membership.c


class GenerationStore(Store):
    """The part of the ledger that moves from generation to generation."""

    def commit_generation(
        self,
        namespace: str,
        *,
        expected: int,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        reason: str,
    ) -> int:
        """Move from generation `expected` to the next one; its number.

        The new members are those of `expected`, without `remove`, with `add` (ids that were
        staged before). ConflictError when the namespace is not at `expected`.
        """
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            if current != expected:
                raise ConflictError(
                    f"namespace {namespace!r} is at generation {current}, not {expected}: "
                    "read it again and retry"
                )
            return self._bump(connection, namespace, current, set(add), set(remove), reason)

    def rollback_generation(self, namespace: str, to: int, reason: str) -> int:
        """A new generation with the members of generation `to`; its number."""
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            if not 0 <= to <= current:
                raise NotFoundError(
                    f"no generation {to} in namespace {namespace!r}: it has 0 to {current}"
                )
            then = set(_members(connection, namespace, to))
            today = set(_members(connection, namespace, current))
            return self._bump(connection, namespace, current, then - today, today - then, reason)

    def members(self, namespace: str, generation: int) -> list[str]:
        """The ids of the skills of a generation, sorted."""
        require_namespace(namespace)
        with self._read() as connection:
            return _members(connection, namespace, generation)

    def membership_changes(self, namespace: str, after: int, upto: int) -> list[Interval]:
        """Every interval that begins or ends in a generation g with `after < g <= upto`."""
        begins = and_(_MEMBER.since > after, _MEMBER.since <= upto)
        ends = and_(_MEMBER.until > after, _MEMBER.until <= upto)
        require_namespace(namespace)
        with self._read() as connection:
            return _intervals(connection, namespace, or_(begins, ends))

    def generations(self, namespace: str, limit: int = 50) -> list[GenerationRecord]:
        """The generations and what each changed, newest first."""
        row = generations.c
        query = select(row.generation, row.at, row.reason).where(
            row.namespace == require_namespace(namespace)
        )
        with self._read() as connection:
            rows = connection.execute(query.order_by(row.generation.desc()).limit(limit)).all()
            oldest = rows[-1].generation if rows else 0
            changed = or_(_MEMBER.since >= oldest, _MEMBER.until >= oldest)
            changes = _intervals(connection, namespace, changed)
        return _records([(one.generation, one.at, one.reason) for one in rows], changes)

    def _bump(
        self,
        connection: Connection,
        namespace: str,
        current: int,
        add: set[str],
        remove: set[str],
        reason: str,
    ) -> int:
        new = current + 1
        before = set(_members(connection, namespace, current))
        added, removed = add - before, remove & before
        _check_change(connection, namespace, before, add, remove)
        _close_intervals(connection, namespace, removed, new)
        _open_intervals(connection, namespace, added, new)
        text = clean(self._redactor.text(reason))
        row = {"namespace": namespace, "generation": new, "at": now(), "reason": text}
        connection.execute(generations.insert(), row)
        _move_pointer(connection, namespace, new)
        return new


def _members(connection: Connection, namespace: str, generation: int) -> list[str]:
    query = select(_MEMBER.skill_id).where(
        _MEMBER.namespace == namespace,
        _MEMBER.since <= generation,
        or_(_MEMBER.until.is_(None), _MEMBER.until > generation),
    )
    return sorted(connection.execute(query).scalars())


def _intervals(
    connection: Connection, namespace: str, which: ColumnElement[bool]
) -> list[Interval]:
    query = select(_MEMBER.skill_id, _MEMBER.since, _MEMBER.until).where(
        _MEMBER.namespace == namespace, which
    )
    rows = connection.execute(query.order_by(_MEMBER.since, _MEMBER.skill_id))
    return [Interval(*row) for row in rows]


def _check_change(
    connection: Connection, namespace: str, before: set[str], add: set[str], remove: set[str]
) -> None:
    if both := sorted(add & remove):
        raise ValueError(f"{both[0]} is both added and removed")
    if missing := sorted((add | remove) - _stored(connection, namespace, add | remove)):
        raise NotFoundError(f"no skill {missing[0]!r} in namespace {namespace!r}: stage it first")
    names: dict[str, str] = {}
    for id in sorted((before - remove) | add):
        name = id.rpartition("@")[0]
        if name in names:
            raise ValueError(f"{names[name]} and {id} cannot both be live: remove one of them")
        names[name] = id


def _stored(connection: Connection, namespace: str, ids: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for some in chunks(ids):
        query = select(skills.c.id).where(skills.c.namespace == namespace, skills.c.id.in_(some))
        found.update(connection.execute(query).scalars())
    return found


def _close_intervals(connection: Connection, namespace: str, ids: set[str], at: int) -> None:
    for some in chunks(sorted(ids)):
        still = (_MEMBER.namespace == namespace, _MEMBER.until.is_(None))
        update = membership.update().where(*still, _MEMBER.skill_id.in_(some))
        connection.execute(update.values(until=at))


def _open_intervals(connection: Connection, namespace: str, ids: set[str], at: int) -> None:
    rows = [{"namespace": namespace, "skill_id": id, "since": at} for id in sorted(ids)]
    if rows:
        connection.execute(membership.insert(), rows)


def _move_pointer(connection: Connection, namespace: str, new: int) -> None:
    pointer = namespaces.update().where(namespaces.c.namespace == namespace)
    connection.execute(pointer.values(generation=new))
    row = trajectories.c
    older = trajectories.update().where(row.namespace == namespace, row.role == "query")
    connection.execute(older.values(role="stale"))


def _records(
    rows: Sequence[tuple[int, datetime, str]], changes: Sequence[Interval]
) -> list[GenerationRecord]:
    added: dict[int, list[str]] = {}
    removed: dict[int, list[str]] = {}
    for change in changes:
        added.setdefault(change.since, []).append(change.skill_id)
        if change.until is not None:
            removed.setdefault(change.until, []).append(change.skill_id)
    return [
        GenerationRecord(
            generation=generation,
            at=at,
            reason=reason,
            added=tuple(sorted(added.get(generation, ()))),
            removed=tuple(sorted(removed.get(generation, ()))),
        )
        for generation, at, reason in rows
    ]
