"""Searching the live skills outside a run: for the evolver and the gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.block import compose, section
from metaclaw_langgraph.skills.embedding import Embedder, Vector, skill_text
from metaclaw_langgraph.skills.index import SkillIndex, Snapshot
from metaclaw_langgraph.skills.stores import Match, best_first
from metaclaw_langgraph.types import Retrieved, Skill

if TYPE_CHECKING:
    from metaclaw_langgraph.config import RetrievalConfig

__all__ = ["SkillSearch"]


class SkillSearch:
    """Looks up live skills by what they mean, in the current generation."""

    def __init__(
        self, ledger: Ledger, embedder: Embedder, index: SkillIndex, config: RetrievalConfig
    ) -> None:
        self.embedder = embedder
        self.index = index
        self._ledger = ledger
        self._config = config

    def for_task(self, task: str, k: int) -> list[Skill]:
        """The skills that a run of this task would find, best first."""
        _, matches = self._search(self.embedder.embed_query(task), k, self._config.min_score)
        return [skill for skill, _ in self._skills(matches)]

    def like(self, skill: Skill, least: float, k: int = 3) -> list[tuple[Skill, float]]:
        """The live skills that are about the same as this one, best first, with their scores."""
        vector = self.embedder.embed_documents([skill_text(skill)])[0]
        _, matches = self._search(vector, k, least)
        return self._skills(matches)

    def alike(
        self, skill: Skill, others: Sequence[Skill], least: float
    ) -> list[tuple[Skill, float]]:
        """Those of the others that are about the same, with their scores."""
        if not others:
            return []
        rows = self.embedder.embed_documents([skill_text(one) for one in (skill, *others)])
        scores = [float(row @ rows[0]) for row in rows[1:]]
        return [(one, score) for one, score in zip(others, scores, strict=True) if score >= least]

    def preview(self, task: str, *, add: Skill | None = None, drop: str | None = None) -> Retrieved:
        """What a run of this task would be given, with one skill more and one (by name) less."""
        config, vector = self._config, self.embedder.embed_query(task)
        snapshot, matches = self._search(vector, config.top_k + 1, config.min_score)
        skills = dict(zip(matches, self._skills(matches), strict=True))
        matches = [match for match in matches if skills[match][0].name != drop]
        sections = {match.id: section(skills[match][0]) for match in matches}
        if add is not None:
            row = self.embedder.embed_documents([skill_text(add)])[0]
            mine = Match(add.id, float(row @ vector))
            sections[add.id] = section(add)
            matches = best_first([*matches, mine] if mine.score >= config.min_score else matches)
        return compose(config, snapshot.generation, matches, sections)

    def _search(self, vector: Vector, k: int, least: float) -> tuple[Snapshot, list[Match]]:
        snapshot = self.index.sync(self._ledger.generation(self.index.namespace))
        while True:
            found = self.index.search(snapshot, vector, k, least)
            if found is not None:
                return snapshot, found
            snapshot = self.index.snapshot

    def _skills(self, matches: list[Match]) -> list[tuple[Skill, float]]:
        found = self._ledger.skills(self.index.namespace, [match.id for match in matches])
        return [(found[match.id], match.score) for match in matches]
