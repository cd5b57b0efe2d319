"""A person's decision on a draft that waits for one."""

from __future__ import annotations

from collections.abc import Mapping

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.evolving.duplicates import EVOLVED
from metaclaw_langgraph.ledger import DraftDecision, DraftRecord, Ledger
from metaclaw_langgraph.skills.library import Record, SkillLibrary

__all__ = ["approve", "reject"]


def approve(ledger: Ledger, library: SkillLibrary, draft_id: str, by: str, reason: str = "") -> int:
    """Make a draft live, on the word of a person; the new generation.

    ConflictError when the library has changed under its name since it was written.
    """
    draft = _waiting(ledger, library.namespace, draft_id)
    name = draft.skill.name
    why = reason or "approved"

    def record(ids: Mapping[str, str]) -> Record:
        # Here too: it is the generation read just before that is committed on.
        _refuse_changed(ledger, library.namespace, draft)
        return Record(
            details={"source": "review", "draft": draft.id, "by": by, "skills": {name: why}},
            decided=DraftDecision(draft.id, "live", by, why, ids[name]),
        )

    _refuse_changed(ledger, library.namespace, draft)
    change = library.put(
        [draft.skill],
        reason=f"{name} approved by {by}",
        source=EVOLVED,
        provenance={"draft": draft.id, "trajectories": list(draft.origin)},
        record=record,
    )
    if not (change.added or change.updated):
        raise ConflictError(
            f"{change.unchanged[0]} is live and says exactly this: reject the draft"
        )
    return change.generation


def reject(ledger: Ledger, namespace: str, draft_id: str, by: str, reason: str = "") -> None:
    """Turn a draft down; it stays on record."""
    draft = _waiting(ledger, namespace, draft_id)
    decision = DraftDecision(draft.id, "rejected", by, reason or "rejected", None)
    ledger.decide_draft(namespace, decision)


def _refuse_changed(ledger: Ledger, namespace: str, draft: DraftRecord) -> None:
    """A draft goes live in the place of the version that it was written against, and no other."""
    name = draft.skill.name
    found = ledger.live_versions(namespace, [name]).get(name)
    live = None if found is None else found.id
    if live == draft.base:
        return
    if draft.base is None:
        raise ConflictError(
            f"a skill {name!r} is live meanwhile: reject this draft, or retire the skill first"
        )
    now = "no longer live" if live is None else f"replaced by {live} meanwhile"
    raise ConflictError(
        f"the draft was written to replace {draft.base}, which is {now}: reject the draft, "
        "or roll back first"
    )


def _waiting(ledger: Ledger, namespace: str, draft_id: str) -> DraftRecord:
    draft = ledger.draft(namespace, draft_id)
    if draft.state != "review":
        raise ConflictError(
            f"draft {draft.id} does not wait for review any more, it is {draft.state}: "
            "see `metaclaw skills review`"
        )
    return draft
