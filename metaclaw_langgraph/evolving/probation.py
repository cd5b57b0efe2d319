"""Probation: the sequential test that decides whether a skill on trial stays.

A skill that could not be replayed goes live on probation: each run that finds it is drawn, with
the probability `holdout`, to go without it. The draw is random and its odds are known, so whatever
else differs between runs, a skill that changes nothing makes passing independent of the draw.
Under that hypothesis each factor below has the mean 1, and the product (a test martingale) reaches
1/alpha with a probability of at most alpha, however often it is looked at (Ville's inequality).
One product bets on "it helps", another on "it hurts"; each bets only on its own side, which keeps
it valid when the skill does the opposite. This is about trials in the order in which they become
known. A verdict that is corrected changes the past, and everything is weighed anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from metaclaw_langgraph.ledger.values import Trial
from metaclaw_langgraph.types import Json

__all__ = ["Decision", "Evidence", "weigh"]

Decision: TypeAlias = Literal["helps", "hurts", "no difference", "undecided"]

_ALPHA_HELPS = 0.05
# To retire a skill wrongly costs less than to keep one that hurts.
_ALPHA_HURTS = 0.1


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the trials so far say."""

    decision: Decision
    with_passed: int
    with_failed: int
    without_passed: int
    without_failed: int
    helps: float
    """How strongly they speak for it: 20 is proof at 5 %."""
    hurts: float
    """How strongly they speak against it: 10 is proof at 10 %."""

    def to_json(self) -> dict[str, Json]:
        """The same as plain JSON values, for the ledger and MLflow."""
        return {
            "decision": self.decision,
            "with_passed": self.with_passed,
            "with_failed": self.with_failed,
            "without_passed": self.without_passed,
            "without_failed": self.without_failed,
            "e_helps": round(self.helps, 4),
            "e_hurts": round(self.hurts, 4),
        }


class _Arm:
    """The runs with the skill, or those without it: how many passed, and the odds to bet on."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def rate(self) -> float:
        # From earlier runs only, and never 0 or 1: one surprise must not end the bet for good.
        return (self.passed + 0.5) / (self.passed + self.failed + 1)

    def add(self, passed: bool) -> None:
        self.passed += passed
        self.failed += not passed


def weigh(trials: Iterable[Trial], holdout: float, limit: int) -> Evidence:
    """Weigh the trials in their order; after `limit` of them without proof, ties lose."""
    given, withheld = _Arm(), _Arm()
    helps = hurts = 1.0
    decision: Decision = "undecided"
    for count, trial in enumerate(trials, 1):
        rates = given.rate(), withheld.rate()
        helps *= _factor(trial, rates, holdout) if rates[0] > rates[1] else 1.0
        hurts *= _factor(trial, rates, holdout) if rates[0] < rates[1] else 1.0
        (withheld if trial.withheld else given).add(trial.passed)
        if helps >= 1 / _ALPHA_HELPS:
            decision = "helps"
        elif hurts >= 1 / _ALPHA_HURTS:
            decision = "hurts"
        elif count >= limit:
            decision = "no difference"
        if decision != "undecided":
            break
    counts = given.passed, given.failed, withheld.passed, withheld.failed
    return Evidence(decision, *counts, helps=helps, hurts=hurts)


def _factor(trial: Trial, rates: tuple[float, float], holdout: float) -> float:
    """How much likelier this outcome is if the two rates are real than if the draw is moot."""
    given, withheld = rates
    moot = (1 - holdout) * given + holdout * withheld
    rate = withheld if trial.withheld else given
    return rate / moot if trial.passed else (1 - rate) / (1 - moot)
