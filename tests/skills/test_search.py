"""Searching outside a run: what a run would find, what is alike, what a run would be given."""

from __future__ import annotations

import pytest

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.types import Retrieved
from tests.skills.conftest import Retrieve, put, skill

TASK = "bake a loaf of bread"
BREAD = skill("bake-bread", "bake a loaf of bread")
ROLLS = skill("bake-rolls", "bake a dozen of rolls")
GIT = skill("undo-commit", "undo the last git commit")


def ids(found: Retrieved) -> list[str]:
    return [hit.id for hit in found.hits]


def test_an_empty_library(retriever: Retrieve) -> None:
    search = retriever().search()
    assert search.for_task(TASK, 5) == []
    assert search.like(BREAD, 0.0) == []
    assert search.preview(TASK) == Retrieved(0, (), "")
    assert ids(search.preview(TASK, add=BREAD)) == ["bake-bread@0"]


def test_the_skills_for_a_task_are_those_that_a_run_finds(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, BREAD, ROLLS, GIT)
    one = retriever(top_k=2)
    search = one.search()
    assert [found.id for found in search.for_task(TASK, 2)] == ids(one.retrieve(TASK))
    assert search.preview(TASK) == one.retrieve(TASK)


def test_alike_in_the_library_and_beside_it(library: SkillLibrary, retriever: Retrieve) -> None:
    put(library, BREAD, GIT)
    search = retriever().search()
    new = skill("bake-bread", "bake a loaf of rye bread", "Another text.")
    ((found, score),) = search.like(new, 0.6)
    assert found.id == "bake-bread@1"
    assert score < 1.0
    assert search.like(BREAD, 0.6)[0][1] == pytest.approx(1.0, abs=1e-3)
    ((beside, other),) = search.alike(new, [BREAD, GIT], 0.6)
    assert beside == BREAD
    assert other == pytest.approx(score, abs=1e-3)
    assert search.alike(new, [], 0.0) == []


def test_a_preview_with_a_draft_is_what_a_run_gets_when_it_is_live(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, ROLLS, GIT)
    one = retriever(top_k=2)
    before = one.search().preview(TASK, add=BREAD)
    put(library, BREAD)
    after = one.retrieve(TASK)
    assert [hit.id.partition("@")[0] for hit in before.hits] == ["bake-bread", "bake-rolls"]
    assert [hit.id.partition("@")[0] for hit in after.hits] == ["bake-bread", "bake-rolls"]
    assert before.block.partition("\n")[2] == after.block.partition("\n")[2]


def test_a_preview_drops_the_version_that_is_replaced(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, BREAD, ROLLS, GIT)
    search = retriever(top_k=2).search()
    better = skill("bake-bread", "bake a loaf of bread", "Better.")
    found = search.preview(TASK, add=better, drop="bake-bread")
    assert ids(found) == ["bake-bread@0", "bake-rolls@1"]
    assert "Do it well." not in found.block.split("</skill>")[0]
    assert ids(search.preview(TASK, drop="bake-bread"))[0] == "bake-rolls@1"


def test_a_draft_that_the_task_does_not_find_changes_nothing(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, BREAD)
    search = retriever(min_score=0.5).search()
    assert search.preview(TASK, add=GIT) == search.preview(TASK)


def test_it_follows_the_ledger(ledger: Ledger, library: SkillLibrary, retriever: Retrieve) -> None:
    put(library, ROLLS)
    search = retriever().search()
    assert [one.id for one in search.for_task(TASK, 1)] == ["bake-rolls@1"]
    put(library, BREAD)
    assert [one.id for one in search.for_task(TASK, 1)] == ["bake-bread@1"]
    library.retire(["bake-bread"])
    assert [one.id for one in search.for_task(TASK, 1)] == ["bake-rolls@1"]
