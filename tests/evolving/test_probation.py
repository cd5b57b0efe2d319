"""The sequential test: how often it errs, how soon it finds an effect, and what it says then."""

from __future__ import annotations

import json
import random
from collections import Counter
from math import sqrt
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclaw_langgraph.evolving.probation import Evidence, weigh
from metaclaw_langgraph.ledger.values import Trial

_SIMULATIONS = 300
_LIMIT = 200

trials_of = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=80).map(
    lambda drawn: [Trial(str(n), *one) for n, one in enumerate(drawn)]
)


def simulate(given: float, withheld: float, holdout: float, limit: int = _LIMIT) -> list[Evidence]:
    """Probations of skills with which runs pass at one rate, and without which at another."""
    dice = random.Random(f"{given} {withheld} {holdout}")

    def trial(number: int) -> Trial:
        without = dice.random() < holdout
        return Trial(str(number), without, dice.random() < (withheld if without else given))

    return [
        weigh([trial(number) for number in range(limit)], holdout, limit)
        for _ in range(_SIMULATIONS)
    ]


def rates(found: list[Evidence]) -> dict[str, float]:
    counted = Counter(one.decision for one in found)
    return {decision: number / len(found) for decision, number in counted.items()}


def at_most(share: float) -> float:
    """What a share of that size is exceeded by once in 30,000 times, seeds aside."""
    return share + 4 * sqrt(share * (1 - share) / _SIMULATIONS)


@pytest.mark.parametrize("holdout", [0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("base", [0.02, 0.3, 0.5, 0.9, 0.99])
def test_without_an_effect_it_seldom_finds_one(base: float, holdout: float) -> None:
    found = rates(simulate(base, base, holdout))
    assert found.get("helps", 0) <= at_most(0.05)
    assert found.get("hurts", 0) <= at_most(0.1)
    assert "undecided" not in found


def test_without_an_effect_runs_that_get_worse_in_time_are_no_proof() -> None:
    """The draw is what is tested, so a drift that hits both sides is none of its business."""
    dice = random.Random(7)
    found = []
    for _ in range(_SIMULATIONS):
        trials = [
            Trial(str(n), dice.random() < 0.2, dice.random() < (0.9 if n < 60 else 0.1))
            for n in range(_LIMIT)
        ]
        found.append(weigh(trials, 0.2, _LIMIT))
    assert rates(found).get("helps", 0) <= at_most(0.05)
    assert rates(found).get("hurts", 0) <= at_most(0.1)


def test_a_skill_that_hurts_is_never_said_to_help_more_often_than_by_chance() -> None:
    assert rates(simulate(0.4, 0.5, 0.2)).get("helps", 0) <= at_most(0.05)
    assert rates(simulate(0.5, 0.4, 0.2)).get("hurts", 0) <= at_most(0.1)


@pytest.mark.parametrize(
    ("given", "withheld", "decision", "share", "runs"),
    [
        (0.9, 0.3, "helps", 0.98, 35),
        (0.8, 0.4, "helps", 0.93, 75),
        (0.3, 0.9, "hurts", 0.98, 35),
        (0.2, 0.6, "hurts", 0.93, 65),
    ],
)
def test_a_real_effect_is_found(
    given: float, withheld: float, decision: str, share: float, runs: int
) -> None:
    """At the default holdout of 0.2: how often within 200 runs, and after how many of them."""
    found = simulate(given, withheld, 0.2)
    assert rates(found).get(decision, 0) >= share
    assert median(_runs(one) for one in found) <= runs


@given(trials_of, st.floats(0.01, 0.99))
def test_the_evidence_is_the_same_whenever_it_is_computed(
    trials: list[Trial], holdout: float
) -> None:
    """Weighed after every run or only at the end: the first proof counts."""
    whole = weigh(trials, holdout, 1000)
    assert weigh(list(trials), holdout, 1000) == whole
    one_by_one = [weigh(trials[:n], holdout, 1000) for n in range(len(trials) + 1)]
    decided = [one for one in one_by_one if one.decision != "undecided"]
    assert (decided or one_by_one[-1:])[0] == whole
    assert all(one == whole for one in decided)
    assert whole.helps >= 0
    assert whole.hurts >= 0
    assert _runs(whole) <= len(trials)


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.floats(0.02, 0.98), st.floats(0, 1))
def test_the_mean_of_the_next_factor_is_1_if_the_draw_is_moot(
    passes: list[bool], holdout: float, base: float
) -> None:
    past = [Trial(str(n), n % 3 == 0, passed) for n, passed in enumerate(passes)]
    before = weigh(past, holdout, 1000)
    helps = hurts = 0.0
    for withheld in (False, True):
        for passed in (False, True):
            chance = (holdout if withheld else 1 - holdout) * (base if passed else 1 - base)
            after = weigh([*past, Trial("next", withheld, passed)], holdout, 1000)
            helps += chance * after.helps
            hurts += chance * after.hurts
    if before.decision == "undecided":
        assert helps == pytest.approx(before.helps)
        assert hurts == pytest.approx(before.hurts)


def test_ties_lose_at_the_limit() -> None:
    same = [Trial(str(n), n % 5 == 0, True) for n in range(40)]
    assert weigh(same[:39], 0.2, 40).decision == "undecided"
    assert weigh(same, 0.2, 40).decision == "no difference"
    assert weigh([], 0.2, 1).decision == "undecided"


def test_what_comes_after_the_proof_changes_nothing() -> None:
    good = [Trial(str(n), n % 2 == 0, n % 2 == 1) for n in range(30)]
    proof = weigh(good, 0.5, 200)
    bad = [Trial(f"later-{n}", n % 2 == 1, n % 2 == 1) for n in range(100)]
    assert proof.decision == "helps"
    assert weigh([*good, *bad], 0.5, 200) == proof


def test_the_evidence_as_json() -> None:
    trials = [Trial("a", False, True), Trial("b", True, False), Trial("c", True, True)]
    told = weigh(trials, 0.2, 200).to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["decision"] == "undecided"
    assert [told[key] for key in ("with_passed", "with_failed")] == [1, 0]
    assert [told[key] for key in ("without_passed", "without_failed")] == [1, 1]


def _runs(one: Evidence) -> int:
    return one.with_passed + one.with_failed + one.without_passed + one.without_failed
