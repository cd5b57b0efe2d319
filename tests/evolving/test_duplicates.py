"""De-duplication: near drafts become versions, names never collide, people's skills stay."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import quality
from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.evolving import duplicates
from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.duplicates import (
    Duplicate,
    least_useful,
    names_for,
    near_pairs,
    our_records,
    placed,
    says_nothing_new,
)
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.ledger import SkillCounts, SkillRecord
from metaclaw_langgraph.skills.embedding import MiniLMInt8, skill_text
from metaclaw_langgraph.types import Skill
from tests.evolving.runs import failure, trajectory
from tests.evolving.support import NAMESPACE, Home, StandInEvolver

SCORE = EvolvingConfig().duplicate_score
BREAD = Skill("bake-bread", "bake a loaf of bread", "Salt it.", 1)


class Shelf:
    def __init__(self, *found: tuple[Skill, float]) -> None:
        self.found = found

    def like(self, skill: Skill, least: float) -> list[tuple[Skill, float]]:
        return [one for one in self.found if one[1] >= least]


def draft(body: str, name: str = "bread", replaces: str | None = None) -> Draft:
    return Draft(Skill(name, "bake bread", body), replaces, ("t1",), "why")


def put(one: Draft, shelf: Shelf, *taken: Skill) -> Draft | Duplicate:
    merge = OfflineEvolver().merge
    return placed(one, shelf, merge, SCORE, {skill.name: skill for skill in taken})


def test_a_near_draft_becomes_the_next_version() -> None:
    done = put(draft("Knead it."), Shelf((BREAD, 0.9)))
    assert isinstance(done, Draft)
    assert (done.skill.name, done.replaces) == ("bake-bread", "bake-bread")
    assert done.skill.body == "Knead it.\nSalt it."
    assert done.skill.description == BREAD.description


def test_a_near_draft_that_says_the_same_is_dropped() -> None:
    assert put(draft("- salt IT"), Shelf((BREAD, 0.9))) == Duplicate("bake-bread", 0.9)


def test_a_far_draft_stands_alone() -> None:
    assert put(draft("Knead it."), Shelf((BREAD, 0.8))) == draft("Knead it.")


def test_a_draft_that_improves_a_known_skill_is_its_next_version_as_it_is() -> None:
    done = put(draft("Knead it.", replaces="bake-bread"), Shelf(), BREAD)
    assert isinstance(done, Draft)
    assert (done.skill.name, done.skill.body) == ("bake-bread", "Knead it.")
    same = put(draft("Salt it.", replaces="bake-bread"), Shelf(), BREAD)
    assert same == Duplicate("bake-bread", 1.0)


def test_a_draft_that_improves_what_is_gone_is_a_new_skill() -> None:
    done = put(draft("Knead it.", replaces="bake-bread"), Shelf())
    assert isinstance(done, Draft)
    assert (done.skill.name, done.replaces) == ("bread", None)


@pytest.mark.parametrize(
    ("new", "old", "nothing_new"),
    [
        ("Salt it.", "Salt it.\nKnead it.", True),
        ("* salt it!\n\n* KNEAD it", "Knead it. Salt it.", True),
        ("Salt it.", "Do not salt it.", False),
        ("Refund without a receipt.", "Never refund without a receipt.", False),
        ("Use <= 5 items", "Use >= 5 items", False),
        ("Heat to -5 degrees", "Heat to 5 degrees", False),
        ("Pay 5%", "Pay 5", False),
        ("Use art.", "Use start.", False),
        ("", "Salt it.", True),
    ],
)
def test_what_says_nothing_new(new: str, old: str, nothing_new: bool) -> None:
    said = says_nothing_new(Skill("a", "a", new), Skill("b", "b", old))
    assert said is nothing_new


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?", fullmatch=True), st.integers(1, 150))
def test_names_never_collide_and_stay_names(name: str, number: int) -> None:
    names = list(itertools.islice(names_for(name), number))
    assert len(set(names)) == number
    assert names[0] == name
    assert all(len(one) <= 64 and not one.endswith("-") for one in names)
    taken = dict.fromkeys(names, BREAD)
    done = placed(draft("x", name), Shelf(), OfflineEvolver().merge, SCORE, taken)
    assert isinstance(done, Draft)
    assert done.skill.name not in taken


@pytest.mark.parametrize("name", ["bake", "b" * 64, "b" * 61])
def test_many_skills_of_one_name_stay_apart(shop: Home, name: str) -> None:
    """As drafts come from tasks in other scripts, which all have the same name."""
    words = itertools.permutations(["red", "green", "blue", "black", "white", "brown"], 3)
    for number, some in enumerate(itertools.islice(words, 14)):
        skill = Skill(name, f"{' '.join(some)} {number}", f"Advice {number}.")
        shop.fail(f"task {number}", "bad", "judge")
        evolver = StandInEvolver(skill)
        shop.evolving(evolver, duplicate_score=1.0, review="auto").evolve(shop.failures())
    live = shop.library.active()
    assert sorted(one.body for one in live) == sorted(f"Advice {n}." for n in range(14))
    assert {one.version for one in live} == {1}


vectors_of = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed))


@settings(max_examples=60)
@given(vectors_of, st.integers(0, 25), st.floats(-0.2, 0.99), st.integers(1, 8))
def test_near_pairs_are_those_of_brute_force(
    dice: np.random.Generator, number: int, least: float, block: int
) -> None:
    rows = dice.normal(size=(number, 3)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    names = [f"skill-{n:02}" for n in range(number)]
    before, duplicates._BLOCK = duplicates._BLOCK, block
    try:
        found = near_pairs(names, rows, least)
    finally:
        duplicates._BLOCK = before
    scores = {
        (names[i], names[j]): float(rows[i] @ rows[j])
        for i, j in itertools.combinations(range(number), 2)
    }
    near = {pair: score for pair, score in scores.items() if score >= least + 1e-5}
    used = [name for pair in found for name in pair]
    assert len(used) == len(set(used))
    assert all(scores[pair] >= least - 1e-5 for pair in found)
    best = [scores[pair] for pair in found]
    assert all(one >= other - 1e-5 for one, other in itertools.pairwise(best))
    for (one, other), score in near.items():  # greedy: a pair is left out for a closer one only
        rivals = [scores[pair] for pair in found if {one, other} & set(pair)]
        assert rivals
        assert max(rivals) >= score - 1e-5


def record(name: str, age: int = 0, source: str = "evolver") -> SkillRecord:
    at = datetime(2026, 3, 1, tzinfo=UTC) - timedelta(days=age)
    return SkillRecord(Skill(name, name, name, 1), source, None, at)


def test_the_least_useful_go_first() -> None:
    counts = {
        "helps@1": SkillCounts(9, 9, 0, 8, 1),
        "hurts@1": SkillCounts(9, 9, 0, 1, 8),
        "used@1": SkillCounts(5, 5),
        "found@1": SkillCounts(5, 0),
    }
    records = [record(n) for n in ("helps", "hurts", "used", "found", "new")]
    records.append(record("old", age=9))
    order = ["hurts", "old", "found", "new", "used", "helps"]
    assert sorted(least_useful(records, counts, 6)) == sorted(order)
    assert least_useful(records, counts, 2) == ["hurts", "old"]
    assert least_useful(records, counts, 6)[-2:] == ["used", "helps"]
    assert least_useful(records, counts, 0) == least_useful(records, counts, -3) == []


def test_what_people_imported_is_theirs_also_when_it_was_improved(shop: Home) -> None:
    shop.put(Skill("theirs", "bake bread", "One."), Skill("improved", "sweep floors", "One."))
    shop.put(Skill("improved", "sweep floors", "Two."), source="evolver")
    shop.put(Skill("ours", "undo commits", "One."), source="evolver")
    shop.put(Skill("ours", "undo commits", "Two."), source="evolver")
    assert [one.skill.id for one in our_records(shop.ledger, NAMESPACE)] == ["ours@2"]


def test_the_library_stays_within_its_limit(shop: Home) -> None:
    shop.put(Skill("theirs", "sweep the floors", "One."))
    for number, task in enumerate(["bake bread", "undo git commits", "write haiku poems"]):
        shop.fail(task, f"Advice {number}.")
        shop.evolving(library_limit=3).evolve(shop.failures())
    assert shop.names() == ["theirs@1", "undo-git-commits@1", "write-haiku-poems@1"]
    gone = shop.ledger.skill_history(NAMESPACE, "bake-bread")
    assert gone[0].skill.body == "Advice 0.", "retired, not deleted"


def test_imported_skills_stay_even_over_the_limit(shop: Home) -> None:
    shop.put(*(Skill(f"theirs-{n}", f"sweep floor {n}", "One.") for n in range(4)))
    shop.fail("bake bread", "Salt it.")
    report = shop.evolving(library_limit=2).evolve(shop.failures())
    assert report.generation == 2
    assert len(shop.names()) == 5


def test_skills_about_different_matters_are_far_from_the_limit(minilm: MiniLMInt8) -> None:
    """No two of the shipped skills would be merged: the nearest are at about 0.58."""
    skills, _ = quality.load()
    rows = minilm.embed_documents([skill_text(skill) for skill in skills])
    assert near_pairs([skill.name for skill in skills], rows, 0.7) == []


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("write a haiku about autumn rain", "please write me a haiku on autumn rain", True),
        ("write a haiku about autumn rain", "compose a haiku about rain in autumn", True),
        ("Convert 90 miles to km", "Convert 90 pounds to kg", False),
        ("How do I refund order 4711?", "Cancel order 4711", False),
        ("write a haiku about autumn rain", "write a haiku about spring snow", False),
    ],
)
def test_corrections_on_the_same_task_are_near_and_others_are_not(
    minilm: MiniLMInt8, one: str, other: str, near: bool
) -> None:
    failures = [failure(trajectory(task=task), "human", "x") for task in (one, other)]
    drafts = [OfflineEvolver().draft([failed], [])[0].skill for failed in failures]
    rows = minilm.embed_documents([skill_text(skill) for skill in drafts])
    assert (float(rows[0] @ rows[1]) >= SCORE) is near
