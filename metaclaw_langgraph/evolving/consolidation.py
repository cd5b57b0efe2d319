"""Consolidation: near-duplicates among the skills that the evolver wrote become one skill each.

Drafts are compared with the library before they go live, so near-duplicates are few; they come
from skills that grew towards each other version by version, and from other machines' work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metaclaw_langgraph.evolving.duplicates import (
    EVOLVED,
    near_pairs,
    our_records,
    says_nothing_new,
)
from metaclaw_langgraph.evolving.guard import Guard
from metaclaw_langgraph.ledger import Ledger, Probation
from metaclaw_langgraph.skills.index import vector_batches
from metaclaw_langgraph.skills.library import Record, SkillLibrary
from metaclaw_langgraph.skills.search import SkillSearch
from metaclaw_langgraph.types import Json, Skill

__all__ = ["Consolidation", "consolidate"]


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What was merged: pairs of (what stays, what went into it)."""

    merged: tuple[tuple[str, str], ...]
    generation: int | None


def consolidate(
    ledger: Ledger,
    library: SkillLibrary,
    search: SkillSearch,
    merge: Callable[[Skill, Skill], Skill],
    guard: Guard,
    *,
    least: float,
    holdout: float,
) -> Consolidation:
    """Merge pairs that are at least so similar, in one generation. The merged texts go through the
    guard, and on probation: nobody has proven them."""
    ours = {record.skill.id: record for record in our_records(ledger, library.namespace)}
    batches = vector_batches(ledger, search.embedder, library.namespace, list(ours))
    rows = [(id, row) for ids, vectors in batches for id, row in zip(ids, vectors, strict=True)]
    if len(rows) < 2:
        return Consolidation((), None)
    pairs = near_pairs([id for id, _ in rows], np.stack([row for _, row in rows]), least)
    merged: dict[str, Skill] = {}
    gone: dict[str, str] = {}
    for one, other in pairs:
        ages = sorted((ours[one], ours[other]), key=lambda it: (it.created_at, it.skill.name))
        old, new = (record.skill for record in ages)
        skill = merge(old, new)
        if not guard.check(skill):
            gone[new.name] = old.name
            if not says_nothing_new(skill, old):
                merged[old.id] = skill
    told = tuple((stays, name) for name, stays in sorted(gone.items()))
    reason = f"merged {', '.join(f'{name} into {stays}' for stays, name in told)}"
    details: dict[str, Json] = {"source": "consolidation"}
    if not merged:
        done = library.retire(gone, reason, Record(details=details)) if gone else None
        return Consolidation(told, done)
    change = library.put(
        list(merged.values()),
        reason=reason,
        source=EVOLVED,
        provenance={"merged": [f"{stays} + {name}" for stays, name in told]},
        retire=list(gone),
        record=lambda ids: Record(
            details=details,
            probation=[Probation(ids[skill.name], holdout, old) for old, skill in merged.items()],
        ),
    )
    return Consolidation(told, change.generation)
