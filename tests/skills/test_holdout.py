"""Skills on probation: withheld by lot, replaced by what they displaced, and counted."""

from __future__ import annotations

import random
from concurrent.futures import Future
from datetime import UTC, datetime
from math import sqrt

import pytest

from metaclaw_langgraph.learning.trajectories import trajectory_of
from metaclaw_langgraph.ledger import Ledger, Probation
from metaclaw_langgraph.skills.holdout import Holdouts
from metaclaw_langgraph.skills.library import Record, SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from metaclaw_langgraph.types import Retrieved, Skill, SkillHit, Trajectory, Verdict
from metaclaw_langgraph.wrapping.run import Run
from tests.skills.conftest import NAMESPACE, Retrieve, put, skill

TASK = "bake a loaf of bread"
BREAD = skill("bake-bread", "bake a loaf of bread")
ROLLS = skill("bake-rolls", "bake a dozen of rolls")
CAKE = skill("bake-cake", "bake a cake for me")


def on_trial(
    library: SkillLibrary, *skills: Skill, holdout: float = 0.5, fallback: str | None = None
) -> int:
    def record(ids: object) -> Record:
        return Record(probation=[Probation(ids[s.name], holdout, fallback) for s in skills])  # type: ignore[index]

    done = library.put(skills, reason="test", source="evolver", record=record)
    return done.generation


def shown(found: Retrieved) -> list[tuple[str, str]]:
    """Each hit and what became of it."""
    how = {(True, False): "injected", (False, True): "withheld", (False, False): "found"}
    return [(hit.id, how[hit.injected, hit.withheld]) for hit in found.hits]


def drawing(retriever: SkillRetriever, *lots: float) -> SkillRetriever:
    """Draw these lots; one more is an error."""
    drawn = iter(lots)
    retriever._random = lambda: next(drawn)
    return retriever


def test_the_share_of_runs_without_it_is_the_holdout(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    on_trial(library, BREAD, holdout=0.2)
    one = retriever()
    one._random = random.Random(3).random
    number = 4000
    withheld = sum(one.retrieve(TASK).hits[0].withheld for _ in range(number))
    assert abs(withheld / number - 0.2) < 4 * sqrt(0.2 * 0.8 / number)


def test_what_is_withheld_leaves_its_place_to_the_next_best(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, ROLLS, CAKE)
    on_trial(library, BREAD)
    one = drawing(retriever(top_k=2), 0.9, 0.1)
    given, without = one.retrieve(TASK), one.retrieve(TASK)
    assert shown(given) == [("bake-bread@1", "injected"), ("bake-rolls@1", "injected")]
    assert shown(without) == [
        ("bake-bread@1", "withheld"),
        ("bake-rolls@1", "injected"),
        ("bake-cake@1", "injected"),
    ]
    assert 'name="bake-bread"' not in without.block
    assert without.hits[0].score == given.hits[0].score
    assert without.generation == given.generation == 2


def test_the_version_that_it_replaced_is_given_instead(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, skill("bake-bread", "bake a loaf of bread", "Old advice."), ROLLS)
    better = skill("bake-bread", "bake a loaf of bread", "New advice.")
    on_trial(library, better, fallback="bake-bread@1")
    one = drawing(retriever(top_k=1), 0.9, 0.1)
    given, without = one.retrieve(TASK), one.retrieve(TASK)
    assert shown(given) == [("bake-bread@2", "injected")]
    assert shown(without) == [("bake-bread@2", "withheld"), ("bake-bread@1", "injected")]
    assert ("New advice." in given.block, "Old advice." in given.block) == (True, False)
    assert ("New advice." in without.block, "Old advice." in without.block) == (False, True)


def test_a_cached_answer_is_drawn_anew(library: SkillLibrary, retriever: Retrieve) -> None:
    on_trial(library, BREAD)
    one = drawing(retriever(), 0.1, 0.9, 0.1)
    found = [one.retrieve(TASK).hits[0].withheld for _ in range(3)]
    assert found == [True, False, True]


def test_a_skill_that_the_budget_shuts_out_is_not_drawn(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, ROLLS)
    on_trial(library, skill("bake-bread", "bake a loaf of bread", "x" * 4000))
    one = drawing(retriever(token_budget=200))
    assert shown(one.retrieve(TASK)) == [("bake-bread@1", "found"), ("bake-rolls@1", "injected")]


def test_a_skill_that_is_not_found_is_not_drawn(library: SkillLibrary, retriever: Retrieve) -> None:
    put(library, ROLLS)
    on_trial(library, skill("undo-commit", "undo the last git commit"))
    assert shown(drawing(retriever(top_k=1)).retrieve(TASK)) == [("bake-rolls@1", "injected")]


def test_what_takes_a_place_is_drawn_as_well(library: SkillLibrary, retriever: Retrieve) -> None:
    """Else it would be given to all those runs, and its own odds would not be what they seem."""
    put(library, CAKE)
    on_trial(library, BREAD, ROLLS)
    one = drawing(retriever(top_k=1), 0.1, 0.1, 0.1, 0.9)
    assert shown(one.retrieve(TASK)) == [
        ("bake-bread@1", "withheld"),
        ("bake-rolls@1", "withheld"),
        ("bake-cake@1", "injected"),
    ]
    assert shown(one.retrieve(TASK)) == [("bake-bread@1", "withheld"), ("bake-rolls@1", "injected")]


def test_what_finds_room_by_the_draw_of_another_is_drawn_as_well(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    long = skill("bake-bread", "bake a loaf of bread", "x" * 600)
    on_trial(library, long, skill("bake-rolls", "bake a dozen of rolls", "y" * 600))
    one = drawing(retriever(token_budget=280), 0.9, 0.1, 0.1)
    assert shown(one.retrieve(TASK)) == [("bake-bread@1", "injected"), ("bake-rolls@1", "found")]
    assert shown(one.retrieve(TASK)) == [("bake-bread@1", "withheld"), ("bake-rolls@1", "withheld")]


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_whoever_could_be_given_is_withheld_with_its_own_odds(
    library: SkillLibrary, retriever: Retrieve, top_k: int
) -> None:
    """The share of the withheld among the injected and withheld, for each of three on trial."""
    on_trial(library, BREAD, ROLLS, CAKE, holdout=0.3)
    one = retriever(top_k=top_k)
    one._random = random.Random(top_k).random
    seen = [pair for _ in range(4000) for pair in shown(one.retrieve(TASK))]
    for name in ("bake-bread@1", "bake-rolls@1", "bake-cake@1"):
        mine = [how for id, how in seen if id == name]
        assert len(mine) > 300
        assert abs(mine.count("withheld") / len(mine) - 0.3) < 4 * sqrt(0.21 / len(mine))


def test_uses_are_counted_as_trials(
    ledger: Ledger, library: SkillLibrary, retriever: Retrieve
) -> None:
    on_trial(library, BREAD)
    one = drawing(retriever(), 0.1, 0.9)
    for number, reward in enumerate((1.0, -1.0)):
        found, at = one.retrieve(TASK), datetime.now(UTC)
        run = Trajectory(
            f"run-{number}", NAMESPACE, None, TASK, at, at, "ok", None, found.generation, None,
            "hit", found.hits, None, None,
        )  # fmt: skip
        ledger.add_trajectories([run])
        ledger.add_verdict(NAMESPACE, run.id, Verdict(reward, "verifier"))
    trials = ledger.trials(NAMESPACE, "bake-bread@1")
    assert [(one.withheld, one.passed) for one in trials] == [(True, True), (False, False)]


def test_a_probation_that_ended_is_noticed(
    ledger: Ledger, library: SkillLibrary, retriever: Retrieve
) -> None:
    """At once with the next generation, else within a minute."""
    on_trial(library, BREAD)
    time = 100.0
    holdouts = Holdouts(ledger, NAMESPACE, lambda: time)
    assert list(holdouts.open(1)) == ["bake-bread@1"]
    ledger.close_probation(NAMESPACE, Probation("bake-bread@1", 0.5, state="kept"))
    time = 159.0
    assert list(holdouts.open(1)) == ["bake-bread@1"]
    time = 161.0
    assert holdouts.open(1) == {}
    on_trial(library, ROLLS)
    assert list(holdouts.open(2)) == ["bake-rolls@1"]


def test_a_rollback_ends_the_drawing(library: SkillLibrary, retriever: Retrieve) -> None:
    put(library, BREAD)
    better = skill("bake-bread", "bake a loaf of bread", "New advice.")
    on_trial(library, better, fallback="bake-bread@1")
    one = drawing(retriever(), 0.1)
    assert shown(one.retrieve(TASK))[0] == ("bake-bread@2", "withheld")
    library.rollback(1)
    assert shown(one.retrieve(TASK)) == [("bake-bread@1", "injected")]


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_that_asks_no_model_is_no_trial(asked: bool) -> None:
    """It was given nothing, so nothing was withheld either: it must not count on one side only."""

    class Host:
        namespace, deadline = "agent", 1.0

        def look_up(self, task: str | None) -> Future[Retrieved]:
            raise NotImplementedError

        def record(self, run: Run) -> None: ...

        def incident(self, part: str, kind: str, error: BaseException | str) -> None: ...

    hits = SkillHit("a@1", 0.9, True), SkillHit("b@1", 0.8, False, withheld=True)
    run = Run(Host(), retrieval="hit", retrieved=Retrieved(1, hits, "block"))
    if asked:
        assert run.skills([]) == "block"
    run.finish("failed", "boom")
    kept = [(hit.injected, hit.withheld) for hit in trajectory_of(run, str).skills]
    assert kept == ([(True, False), (False, True)] if asked else [(False, False)] * 2)
