"""De-duplication by meaning, and the bound on the library's size.

A draft about the same matter as a live skill is not a second skill beside it: it becomes that
skill's next version, or is dropped when it says nothing new. Skills that people imported are
theirs: they are never merged with others, nor retired to make room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import numpy as np

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.ledger import Ledger, SkillCounts, SkillRecord
from metaclaw_langgraph.skills.embedding import Vector
from metaclaw_langgraph.skills.search import SkillSearch
from metaclaw_langgraph.types import Skill

__all__ = [
    "EVOLVED",
    "Duplicate",
    "Shelf",
    "apart",
    "least_useful",
    "names_for",
    "near_pairs",
    "our_records",
    "placed",
    "same_text",
    "says_nothing_new",
]

EVOLVED = "evolver"
"""The source of skills that this project wrote, in the ledger."""

_BLOCK = 1024


class Library(Protocol):
    """The live skills, searched by meaning."""

    def like(self, skill: Skill, least: float) -> Sequence[tuple[Skill, float]]:
        """The live skills that are about the same as this one, best first, with their scores."""


class Shelf:
    """The live skills and, beside them, what this evolution has accepted so far."""

    def __init__(self, search: SkillSearch, accepted: Sequence[Skill]) -> None:
        self._search = search
        self._accepted = accepted

    def like(self, skill: Skill, least: float) -> Sequence[tuple[Skill, float]]:
        """Of both, best first."""
        return sorted(
            [*self._search.like(skill, least), *self._search.alike(skill, self._accepted, least)],
            key=lambda found: -found[1],
        )


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A draft that says nothing that a live skill does not say already."""

    of: str
    score: float


def placed(
    draft: Draft,
    library: Library,
    merge: Callable[[Skill, Skill], Skill],
    least: float,
    taken: Mapping[str, Skill],
) -> Draft | Duplicate:
    """The draft as the next version of the skill that it is about, or under a name of its own.

    `taken` holds the live skills that have the draft's name, or one of `names_for` it.
    """
    old, score = _match(draft, library, least, taken)
    if old is None:
        return apart(draft, taken)
    if says_nothing_new(draft.skill, old):
        return Duplicate(old.name, score)
    if draft.replaces == old.name:  # its author knew the old one
        return replace(draft, skill=replace(draft.skill, name=old.name))
    merged = merge(old, draft.skill)
    if says_nothing_new(merged, old):
        return Duplicate(old.name, score)
    return replace(draft, skill=replace(merged, name=old.name), replaces=old.name)


def apart(draft: Draft, taken: Mapping[str, Skill]) -> Draft:
    """The draft as a skill of its own."""
    name = next(name for name in names_for(draft.skill.name) if name not in taken)
    return replace(draft, skill=replace(draft.skill, name=name), replaces=None)


def _match(
    draft: Draft, library: Library, least: float, taken: Mapping[str, Skill]
) -> tuple[Skill | None, float]:
    if draft.replaces is not None and draft.replaces in taken:
        return taken[draft.replaces], 1.0
    for old, score in library.like(draft.skill, least):
        return old, score
    return None, 0.0


def says_nothing_new(new: Skill, old: Skill) -> bool:
    """Whether every sentence of the new one stands in the old one, but for spelling."""
    return _said(new.body) <= _said(old.body)


def same_text(one: Skill, other: Skill) -> bool:
    """Whether the two say the same sentences, but for spelling and order."""
    return _said(one.body) == _said(other.body)


_ENDS = re.compile(r"[.!?;](?:\s|$)|\n")
# What carries meaning: words, and the signs without which a rule about numbers says the opposite.
_PARTS = re.compile(r"\w+|[<>=+/%$\u20ac\u00a3]|(?<![^\s(])-(?=\d)")


def _said(text: str) -> set[str]:
    sentences = (" ".join(_PARTS.findall(one)) for one in _ENDS.split(text.casefold()))
    return {one for one in sentences if one}


def names_for(name: str) -> Iterator[str]:
    """The name, and then name-2, name-3 …, each short enough for a name."""
    yield name
    for number in count(2):
        ending = f"-{number}"
        yield f"{name[: 64 - len(ending)].rstrip('-')}{ending}"


def near_pairs(names: Sequence[str], vectors: Vector, least: float) -> list[tuple[str, str]]:
    """Pairs of near-duplicates, closest first, no name in two of them. Blockwise: exact, and
    without a matrix of all against all."""
    found: list[tuple[float, str, str]] = []
    for start in range(0, len(names), _BLOCK):
        scores = vectors[start : start + _BLOCK] @ vectors.T
        rows, columns = np.nonzero(scores >= least)
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            if start + row < column:
                found.append((float(scores[row, column]), names[start + row], names[column]))
    used: set[str] = set()
    pairs: list[tuple[str, str]] = []
    for _, one, other in sorted(found, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if not {one, other} & used:
            used |= {one, other}
            pairs.append((one, other))
    return pairs


def our_records(ledger: Ledger, namespace: str) -> list[SkillRecord]:
    """The live skills that the evolver wrote; not those of people that it only improved."""

    def ours(record: SkillRecord) -> bool:
        if record.source != EVOLVED or record.skill.version == 1:
            return record.source == EVOLVED
        versions = ledger.skill_history(namespace, record.skill.name)
        return all(one.source == EVOLVED for one in versions)

    return [record for record in ledger.live_records(namespace) if ours(record)]


def least_useful(
    records: Iterable[SkillRecord], counts: Mapping[str, SkillCounts], number: int
) -> list[str]:
    """The names of the skills to retire: those that helped least, then those used least, then the
    oldest. `records` are the evolver's own (`our_records`)."""

    def usefulness(record: SkillRecord) -> tuple[int, int, float]:
        known = counts.get(record.skill.id, SkillCounts())
        return known.helped - known.hurt, known.injected, record.created_at.timestamp()

    return [record.skill.name for record in sorted(records, key=usefulness)[: max(0, number)]]
