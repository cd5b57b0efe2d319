"""Generations: which skills are live, as one pointer that moves in one transaction.

Membership is stored as intervals of generations, so that a bump writes only what it changes and
every past generation can still be read (`history.py`). A rollback is a new generation with an old
membership. What belongs to a change moves with it: the failures that were consumed, the drafts
that were decided, the probations that begin or end, and older query data, which goes stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, and_, select

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger.history import HistoryStore, read_members
from metaclaw_langgraph.ledger.probation import ProbationStore
from metaclaw_langgraph.ledger.schema import (
    generations,
    membership,
    namespaces,
    skills,
    trajectories,
)
from metaclaw_langgraph.ledger.store import chunks, now, require_namespace
from metaclaw_langgraph.ledger.support import SupportStore
from metaclaw_langgraph.ledger.values import DraftDecision, Evolution, Probation
from metaclaw_langgraph.types import Json

__all__ = ["GenerationStore"]

_MEMBER, _SKILL = membership.c, skills.c


class GenerationStore(HistoryStore, SupportStore, ProbationStore):
    """The part of the ledger that moves from generation to generation."""

    def commit_generation(
        self,
        namespace: str,
        *,
        expected: int,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        reason: str,
        details: Mapping[str, Json] | None = None,
        evolution: Evolution | None = None,
        probation: Sequence[Probation] = (),
        closed: Sequence[Probation] = (),
        decided: DraftDecision | None = None,
    ) -> int:
        """Move from generation `expected` to the next one; its number.

        The new members are those of `expected`, without `remove`, with `add` (ids that were
        staged before). ConflictError when the namespace is not at `expected`, when `evolution`
        consumes what is not support, when a probation of `closed` is not open, or when the draft
        of `decided` does not wait for review. Skills that are removed end their probation.
        """
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            if current != expected:
                raise ConflictError(
                    f"namespace {namespace!r} is at generation {current}, not {expected}: "
                    "read it again and retry"
                )
            # Before the bump, which ends the probations of what is removed, without evidence.
            self._close_probations(connection, namespace, closed)
            new = self._bump(
                connection, namespace, current, set(add), set(remove), reason, details or {}
            )
            self._begin_probations(connection, namespace, probation)
            if evolution is not None:
                self._consume(connection, namespace, evolution, new)
            if decided is not None:
                self._decide(connection, namespace, decided)
            return new

    def rollback_generation(self, namespace: str, to: int, reason: str) -> int:
        """A new generation with the members of generation `to`; its number."""
        require_namespace(namespace)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            if not 0 <= to <= current:
                raise NotFoundError(
                    f"no generation {to} in namespace {namespace!r}: it has 0 to {current}"
                )
            then = set(read_members(connection, namespace, to))
            today = set(read_members(connection, namespace, current))
            return self._bump(
                connection, namespace, current, then - today, today - then, reason, {}
            )

    def _bump(
        self,
        connection: Connection,
        namespace: str,
        current: int,
        add: set[str],
        remove: set[str],
        reason: str,
        details: Mapping[str, Json],
    ) -> int:
        new = current + 1
        before = _check_change(connection, namespace, add, remove)
        removed = remove & before
        _close_intervals(connection, namespace, removed, new)
        _open_intervals(connection, namespace, add - before, new)
        self._retire_probations(connection, namespace, removed, reason)
        row = {
            "namespace": namespace,
            "generation": new,
            "at": now(),
            "reason": self._safe(reason),
            "details": self._safe_json(details),
            "export_state": "pending",
        }
        connection.execute(generations.insert(), row)
        _move_pointer(connection, namespace, new)
        return new


def _check_change(
    connection: Connection, namespace: str, add: set[str], remove: set[str]
) -> set[str]:
    """Refuse what cannot be; the skills that are live now, of the names that are touched.

    The other names are left as they are: reading them too would take longer with each skill.
    """
    if both := sorted(add & remove):
        raise ValueError(f"{both[0]} is both added and removed")
    stored = _versions(connection, namespace, {_name(id) for id in add | remove})
    if missing := sorted((add | remove) - stored.keys()):
        raise NotFoundError(f"no skill {missing[0]!r} in namespace {namespace!r}: stage it first")
    before = {id for id, is_live in stored.items() if is_live}
    names: dict[str, str] = {}
    for id in sorted((before - remove) | add):
        other = names.setdefault(_name(id), id)
        if other != id:
            raise ValueError(f"{other} and {id} cannot both be live: remove one of them")
    return before


def _name(id: str) -> str:
    return id.rpartition("@")[0]


def _versions(connection: Connection, namespace: str, names: set[str]) -> dict[str, bool]:
    """The ids of all versions under these names, and whether each is live."""
    open_now = and_(
        _MEMBER.namespace == _SKILL.namespace,
        _MEMBER.skill_id == _SKILL.id,
        _MEMBER.until.is_(None),
    )
    query = select(_SKILL.id, _MEMBER.since).outerjoin(membership, open_now)
    query = query.where(_SKILL.namespace == namespace)
    found: dict[str, bool] = {}
    for some in chunks(sorted(names)):
        rows = connection.execute(query.where(_SKILL.name.in_(some)))
        found.update((id, since is not None) for id, since in rows)
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
