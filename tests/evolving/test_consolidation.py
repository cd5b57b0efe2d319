"""Consolidation: near-duplicates among our own skills become one, in one generation."""

from __future__ import annotations

from typing import Any

from metaclaw_langgraph.types import Skill
from tests.evolving.support import NAMESPACE, Home

BREAD = Skill("bread", "bake a loaf of bread", "Salt it.")
LOAF = Skill("a-loaf", "bake a loaf of bread", "Knead it.")
GIT = Skill("undo-commit", "undo the last git commit", "Use reset.")
_SCORE: dict[str, Any] = {"duplicate_score": 0.75}


def test_two_become_one_on_probation(shop: Home) -> None:
    shop.put(BREAD, GIT, source="evolver")
    shop.put(LOAF, source="evolver")
    done = shop.evolving(**_SCORE).consolidate()
    assert done.merged == (("bread", "a-loaf"),)
    assert done.generation == shop.ledger.generation(NAMESPACE) == 3
    assert shop.names() == ["bread@2", "undo-commit@1"]
    assert shop.library.active()[0].body == "Knead it.\nSalt it.", "the newer one first"
    (probation,) = shop.ledger.probations(NAMESPACE)
    assert (probation.skill_id, probation.fallback) == ("bread@2", "bread@1")
    record = shop.library.history()[0]
    assert record.reason == "merged a-loaf into bread"
    assert record.details == {"source": "consolidation"}
    assert shop.evolving(**_SCORE).consolidate().merged == ()


def test_one_that_says_nothing_new_only_goes(shop: Home) -> None:
    shop.put(Skill("bread", "bake a loaf of bread", "Salt it.\nKnead it."), source="evolver")
    shop.put(LOAF, source="evolver")
    done = shop.evolving(**_SCORE).consolidate()
    assert (done.merged, done.generation) == ((("bread", "a-loaf"),), 3)
    assert shop.names() == ["bread@1"]
    assert shop.ledger.probations(NAMESPACE) == []


def test_what_people_imported_is_left_alone(shop: Home) -> None:
    shop.put(BREAD)
    shop.put(LOAF, source="evolver")
    assert shop.evolving(**_SCORE).consolidate().merged == ()
    shop.put(Skill("bread", "bake a loaf of bread", "Better."), source="evolver")
    assert shop.evolving(**_SCORE).consolidate().merged == ()
    assert shop.names() == ["a-loaf@1", "bread@2"]


def test_far_ones_and_few_are_left_alone(shop: Home) -> None:
    assert shop.evolving().consolidate().generation is None
    shop.put(BREAD, source="evolver")
    assert shop.evolving().consolidate().generation is None
    shop.put(GIT, source="evolver")
    assert shop.evolving().consolidate().generation is None
    assert shop.ledger.generation(NAMESPACE) == 2


def test_a_merged_text_that_the_guard_does_not_like_is_not_made(shop: Home) -> None:
    shop.put(Skill("bread", "bake a loaf of bread", "a" * 2500), source="evolver")
    shop.put(Skill("a-loaf", "bake a loaf of bread", "b" * 2500), source="evolver")
    assert shop.evolving(**_SCORE).consolidate().generation is None
    assert shop.names() == ["a-loaf@1", "bread@1"]
