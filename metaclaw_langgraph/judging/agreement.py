"""How well the judge agrees with people and verifiers: confusion and Cohen's kappa.

Rewards are compared by their sign, bad, neither or good: a person who gives 0.5 and a judge that
gives 1 agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaclaw_langgraph.ledger.values import Agreement
from metaclaw_langgraph.types import Json

__all__ = ["SIGNS", "AgreementReport", "agreement"]

SIGNS = (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class AgreementReport:
    """The figures over the trajectories that were judged twice."""

    n: int
    confusion: Mapping[tuple[int, int], int]
    """How often (the judge's sign, the other's sign) occurred; all nine pairs."""
    observed: float | None
    """The share on which both agree; None when there is nothing to compare."""
    kappa: float | None
    """1: they always agree; 0: as often as by chance; None where chance alone agrees always."""

    def to_json(self) -> dict[str, Json]:
        """A table for MLflow: rows are the judge's signs."""
        rows = {str(j): {str(r): self.confusion[j, r] for r in SIGNS} for j in SIGNS}
        return {"n": self.n, "confusion": rows, "observed": self.observed, "kappa": self.kappa}


def agreement(pairs: Sequence[Agreement]) -> AgreementReport:
    """Compare the judge's verdicts with those of higher rank."""
    counts = Counter((_sign(pair.judge), _sign(pair.reference)) for pair in pairs)
    confusion = {(j, r): counts[j, r] for j in SIGNS for r in SIGNS}
    n = len(pairs)
    same = sum(confusion[sign, sign] for sign in SIGNS)
    return AgreementReport(n, confusion, same / n if n else None, _kappa(confusion, n, same))


def _kappa(confusion: Mapping[tuple[int, int], int], n: int, same: int) -> float | None:
    """(observed - chance) / (1 - chance), in whole numbers until the division."""
    chance = sum(
        sum(confusion[sign, other] for other in SIGNS)
        * sum(confusion[other, sign] for other in SIGNS)
        for sign in SIGNS
    )
    return (n * same - chance) / (n * n - chance) if n * n > chance else None


def _sign(reward: float) -> int:
    return (reward > 0) - (reward < 0)
