"""A person's decision on a draft that waits for one."""

from __future__ import annotations

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.evolving.duplicates import EVOLVED
from metaclaw_langgraph.ledger import DraftDecision, DraftRecord, Ledger
from metaclaw_langgraph.skills.library import Record, SkillLibrary

__all__ = ["approve", "reject"]


def approve(ledger: Ledger, library: SkillLibrary, draft_id: str, by: str, reason: str = "") -> int:
    """Make a draft live, on the word of a person; the new generation."""
    draft = _waiting(ledger, library.namespace, draft_id)
    name = draft.skill.name
    why = reason or "approved"
    taken = ledger.live_versions(library.namespace, [name])
    if taken and draft.replaces != name:
        raise ConflictError(
            f"a skill {name!r} is live meanwhile: reject this draft, or retire the skill first"
        )
    change = library.put(
        [draft.skill],
        reason=f"{name} approved by {by}",
        source=EVOLVED,
        provenance={"draft": draft.id, "trajectories": list(draft.origin)},
        record=lambda ids: Record(
            details={"source": "review", "draft": draft.id, "by": by, "skills": {name: why}},
            decided=DraftDecision(draft.id, "live", by, why, ids[name]),
        ),
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


def _waiting(ledger: Ledger, namespace: str, draft_id: str) -> DraftRecord:
    draft = ledger.draft(namespace, draft_id)
    if draft.state != "review":
        raise ConflictError(
            f"draft {draft.id} does not wait for review any more, it is {draft.state}: "
            "see `metaclaw skills review`"
        )
    return draft
