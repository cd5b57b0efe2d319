"""Drafts: the skills that evolvers proposed, and what became of each."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping, func, select

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger.schema_learning import drafts
from metaclaw_langgraph.ledger.store import Store, clean, now, require_namespace
from metaclaw_langgraph.ledger.values import DraftDecision, DraftRecord, DraftState
from metaclaw_langgraph.types import Skill

__all__ = ["DraftStore"]

_ROW = drafts.c


class DraftStore(Store):
    """The part of the ledger that holds drafts."""

    def drafts(
        self, namespace: str, *, state: DraftState | None = None, limit: int = 50
    ) -> list[DraftRecord]:
        """Newest first."""
        query = select(drafts).where(_ROW.namespace == require_namespace(namespace))
        if state is not None:
            query = query.where(_ROW.state == state)
        query = query.order_by(_ROW.created_at.desc(), _ROW.id.desc()).limit(limit)
        with self._read() as connection:
            return [_draft(row) for row in connection.execute(query).mappings()]

    def draft(self, namespace: str, id_or_prefix: str) -> DraftRecord:
        """The draft with this id, or the only one whose id begins so."""
        require_namespace(namespace)
        with self._read() as connection:
            return _draft(_find(connection, namespace, id_or_prefix))

    def decide_draft(self, namespace: str, decision: DraftDecision) -> None:
        """Reject a draft that waits for review. Going live takes a generation."""
        if decision.state != "rejected":
            raise ValueError("a draft goes live with a generation: use commit_generation")
        require_namespace(namespace)
        with self._write() as connection:
            self._lock(connection, namespace)
            self._decide(connection, namespace, decision)

    def _decide(self, connection: Connection, namespace: str, decision: DraftDecision) -> None:
        mine = (_ROW.namespace == namespace, _ROW.id == decision.id)
        state = connection.execute(select(_ROW.state).where(*mine)).scalar()
        if state is None:
            raise _not_found(namespace, decision.id)
        if state != "review":
            raise ConflictError(
                f"draft {decision.id!r} of namespace {namespace!r} does not wait for review: "
                f"it is {state}"
            )
        changed = {
            "state": decision.state,
            "reason": self._safe(decision.reason),
            "decided_by": self._safe(decision.by),
            "skill_id": decision.skill_id,
        }
        connection.execute(drafts.update().where(*mine).values(changed))

    def _put_drafts(
        self, connection: Connection, namespace: str, evolution: str, new: Sequence[DraftRecord]
    ) -> None:
        rows = [self._draft_row(namespace, evolution, draft) for draft in new]
        if rows:
            connection.execute(drafts.insert(), rows)

    def _draft_row(self, namespace: str, evolution: str, draft: DraftRecord) -> dict[str, object]:
        skill = draft.skill
        return {
            "namespace": namespace,
            "id": clean(draft.id),
            "evolution_id": evolution,
            "name": self._safe(skill.name),
            "description": self._safe(skill.description),
            "body": self._safe(skill.body),
            "metadata": self._safe_json(skill.metadata),
            "state": draft.state,
            "replaces": None if draft.replaces is None else self._safe(draft.replaces),
            "origin": self._safe_json(draft.origin),
            "untrusted": draft.untrusted,
            "reason": self._safe(draft.reason),
            "evidence": self._safe_json(draft.evidence),
            "created_at": draft.created_at or now(),
            "decided_by": None if draft.decided_by is None else self._safe(draft.decided_by),
            "skill_id": draft.skill_id,
            "base": draft.base,
        }


def _find(connection: Connection, namespace: str, id_or_prefix: str) -> RowMapping:
    if not id_or_prefix:
        raise NotFoundError("give a draft's id, or the beginning of it")
    # Not LIKE, which ignores case in SQLite.
    begins = func.substr(_ROW.id, 1, len(id_or_prefix)) == id_or_prefix
    query = select(drafts).where(_ROW.namespace == namespace, begins)
    # The exact one, if there is one, is the first of those that begin so.
    rows = connection.execute(query.order_by(_ROW.id).limit(2)).mappings().all()
    if not rows:
        raise _not_found(namespace, id_or_prefix)
    if len(rows) > 1 and rows[0]["id"] != id_or_prefix:
        raise NotFoundError(
            f"several drafts of {namespace!r} begin with {id_or_prefix!r}: give more of it"
        )
    return rows[0]


def _not_found(namespace: str, id: str) -> NotFoundError:
    return NotFoundError(
        f"no draft {id!r} in namespace {namespace!r}: see `metaclaw skills review`"
    )


def _draft(row: RowMapping) -> DraftRecord:
    skill = Skill(row["name"], row["description"], row["body"], 0, json.loads(row["metadata"]))
    return DraftRecord(
        id=row["id"],
        skill=skill,
        state=row["state"],
        replaces=row["replaces"],
        origin=tuple(json.loads(row["origin"])),
        untrusted=row["untrusted"],
        reason=row["reason"],
        evidence=json.loads(row["evidence"]),
        created_at=row["created_at"],
        decided_by=row["decided_by"],
        skill_id=row["skill_id"],
        base=row["base"],
    )
