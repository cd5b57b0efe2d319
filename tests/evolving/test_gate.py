"""The gate: a draft must win on its own failures and must not spoil successes; ties lose."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest  # type: ignore[import-untyped]

from metaclaw_langgraph.evolving.gate import Gate, GateReport, sign_test
from metaclaw_langgraph.types import Retrieved, Skill, Trajectory
from tests.evolving.runs import trajectory
from tests.evolving.support import Home

DRAFT = Skill("bake-bread", "bake a loaf of bread", "Salt it.")
FAILED = trajectory(id="failed", task="bake a loaf of bread")
PASSED = trajectory(id="passed", task="bake a loaf of rye bread")

Replay = Callable[[Trajectory, Retrieved], bool | None]


class Trials:
    """Answers for replays, and remembers which were asked for."""

    def __init__(self, answer: Callable[[str, bool], bool | None]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, run: Trajectory, skills: Retrieved) -> bool | None:
        self.asked.append((run.id, "Salt it." in skills.block))
        return self.answer(*self.asked[-1])


def tried(
    shop: Home,
    trials: Replay,
    failures: list[Trajectory] | None = None,
    successes: list[Trajectory] | None = None,
    draft: Skill = DRAFT,
    replaces: str | None = None,
    **options: int,
) -> GateReport:
    gate = Gate(shop.retriever.search(), trials, **{"repeats": 4, "successes": 4, **options})
    return gate.try_draft(draft, replaces, failures or [FAILED], successes or [])


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_the_binomial_test(wins: int, losses: int) -> None:
    if wins + losses:
        expected = binomtest(wins, wins + losses, 0.5, alternative="greater").pvalue
        assert sign_test(wins, losses) == pytest.approx(expected)
    else:
        assert sign_test(0, 0) == 1.0


def test_a_draft_that_wins_goes_through(shop: Home) -> None:
    trials = Trials(lambda id, given: given)
    report = tried(shop, trials, successes=[PASSED])
    assert report.won is True
    assert report.reason == "4 wins, 0 losses in 4 pairs (p = 0.062)"
    assert trials.asked.count(("failed", True)) == trials.asked.count(("failed", False)) == 4
    told = report.to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["failures"] == {
        "pairs": 4,
        "wins": 4,
        "losses": 0,
        "pass_rate_with": 1.0,
        "pass_rate_without": 0.0,
        "same_prompt": 0,
        "untold": 0,
    }


@pytest.mark.parametrize("both", [True, False])
def test_ties_lose(shop: Home, both: bool) -> None:
    trials = Trials(lambda id, given: both)
    report = tried(shop, trials, successes=[PASSED])
    assert report.won is False
    assert report.reason.startswith("no clear win on its own failures: 0 wins, 0 losses")
    assert all(id == "failed" for id, _ in trials.asked), "it had lost before the successes"


def test_a_win_must_be_clear(shop: Home) -> None:
    won = iter([True, True, True, False])
    report = tried(shop, Trials(lambda id, given: given and next(won)))
    assert (report.won, report.failures.wins) == (False, 3)
    won = iter([True] * 7 + [False])
    other = trajectory(id="other", task="bake bread")
    report = tried(shop, Trials(lambda id, given: given and next(won)), [FAILED, other])
    assert (report.won, report.failures.wins) == (True, 7)


def test_a_draft_that_spoils_successes_loses(shop: Home) -> None:
    trials = Trials(lambda id, given: given if id == "failed" else not given)
    report = tried(shop, trials, successes=[PASSED])
    assert report.won is False
    assert report.reason == "it spoils past successes: 4 losses, 0 wins in 4 pairs"


def test_only_so_many_successes_are_tried_and_only_those_that_it_reaches(shop: Home) -> None:
    trials = Trials(lambda id, given: given or id != "failed")
    far = [trajectory(id=f"far-{n}", task=f"undo git commit {n}") for n in range(10)]
    near = [trajectory(id=f"near-{n}", task=f"bake bread {n}") for n in range(10)]
    gate = Gate(shop.retriever.search(), trials, repeats=4, successes=3)
    report = gate.try_draft(DRAFT, None, [FAILED], [*far, *near])
    assert report.won is True
    assert {id for id, _ in trials.asked} == {"failed", "near-0", "near-1", "near-2"}
    assert report.successes.same_prompt == 10


def test_a_draft_that_its_own_task_does_not_find_loses_without_a_replay(shop: Home) -> None:
    trials = Trials(lambda id, given: given)
    draft = Skill("undo-commit", "undo the last git commit", "Salt it.")
    report = tried(shop, trials, draft=draft)
    assert report.won is False
    assert report.reason == "it is not retrieved for the tasks that it was written for"
    assert trials.asked == []


def test_what_cannot_be_judged_cannot_be_told(shop: Home) -> None:
    trials = Trials(lambda id, given: None)
    report = tried(shop, trials)
    assert report.won is None
    assert len(trials.asked) == 2, "given up after the first pair"
    assert report.to_json()["failures"]["pass_rate_with"] is None  # type: ignore[index, call-overload]


def test_pairs_that_cannot_be_judged_are_no_ties(shop: Home) -> None:
    said = iter([None, True, True, True, True])
    trials = Trials(lambda id, given: next(said) if given else False)
    report = tried(shop, trials, repeats=5)
    assert (report.won, report.failures.untold, report.failures.wins) == (True, 1, 4)


def test_the_side_without_is_run_once_for_several_drafts(shop: Home) -> None:
    trials = Trials(lambda id, given: given)
    gate = Gate(shop.retriever.search(), trials, repeats=4, successes=0)
    for name in ("bake-bread", "bake-loaf", "bread"):
        assert gate.try_draft(Skill(name, "bake bread", "Salt it."), None, [FAILED], []).won
    assert trials.asked.count(("failed", False)) == 4
    assert trials.asked.count(("failed", True)) == 12


def test_a_better_version_is_compared_with_the_one_that_is_live(shop: Home) -> None:
    shop.put(Skill("bake-bread", "bake a loaf of bread", "Never knead."))
    blocks: list[str] = []

    def passed(run: Trajectory, skills: Retrieved) -> bool:
        blocks.append(skills.block)
        return "Salt it." in skills.block

    report = tried(shop, passed, replaces="bake-bread")
    assert report.won is True
    for block in blocks:
        assert ("Salt it." in block) != ("Never knead." in block)
