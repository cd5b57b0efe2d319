"""Confusion and Cohen's kappa."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metaclaw_langgraph.judging.agreement import SIGNS, agreement
from metaclaw_langgraph.ledger.values import Agreement

REWARDS = st.sampled_from([-1.0, -0.3, 0.0, 0.2, 1.0])
PAIRS = st.lists(st.builds(Agreement, st.just("t"), REWARDS, REWARDS, st.just("human")))


def pairs(judge: float, reference: float, count: int) -> list[Agreement]:
    return [Agreement(f"t{n}", judge, reference, "human") for n in range(count)]


def test_a_case_counted_by_hand() -> None:
    # 50 runs: 20 both good, 15 both bad, 5 + 10 apart. Observed 35/50 = 0.7; by chance
    # (25 * 30 + 25 * 20) / 2500 = 0.5; kappa (0.7 - 0.5) / (1 - 0.5) = 0.4.
    found = agreement(
        [*pairs(1, 1, 20), *pairs(1, -1, 5), *pairs(-1, 0.5, 10), *pairs(-1, -0.1, 15)]
    )
    assert (found.n, found.observed) == (50, 0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.confusion[1, 1] == 20
    assert found.confusion[1, -1] == 5
    assert found.confusion[-1, 1] == 10
    assert found.confusion[-1, -1] == 15
    assert found.confusion[0, 0] == 0


def test_nothing_to_compare() -> None:
    found = agreement([])
    assert (found.n, found.observed, found.kappa) == (0, None, None)


def test_kappa_is_undefined_where_chance_agrees_always() -> None:
    found = agreement(pairs(1, 1, 3))
    assert (found.observed, found.kappa) == (1.0, None)


def test_as_json() -> None:
    found = agreement([*pairs(1, 1, 2), *pairs(-1, 1, 1), *pairs(0, -1, 1)])
    assert json.loads(json.dumps(found.to_json())) == {
        "n": 4,
        "confusion": {
            "-1": {"-1": 0, "0": 0, "1": 1},
            "0": {"-1": 1, "0": 0, "1": 0},
            "1": {"-1": 0, "0": 0, "1": 2},
        },
        "observed": 0.5,
        "kappa": pytest.approx((0.5 - 7 / 16) / (1 - 7 / 16)),
    }


@settings(deadline=None)
@given(PAIRS)
def test_kappa_is_that_of_scikit_learn(given: list[Agreement]) -> None:
    from sklearn.metrics import cohen_kappa_score  # type: ignore[import-untyped]

    found = agreement(given)
    assert sum(found.confusion.values()) == found.n == len(given)
    assume(found.kappa is not None)

    def signs(values: list[float]) -> list[int]:
        return [int(value > 0) - int(value < 0) for value in values]

    expected = cohen_kappa_score(
        signs([one.judge for one in given]),
        signs([one.reference for one in given]),
        labels=list(SIGNS),
    )
    assert found.kappa == pytest.approx(expected)
