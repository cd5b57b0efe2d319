"""The gate: a draft is tried on its own failures and on past successes, with it and without it.

Each task is replayed in pairs. On the failures the draft must win: by a one-sided sign test over
the pairs in which the two sides differ. On the successes it must not lose. Ties lose. A task that
is given the same prompt either way is a tie that need not be run.

The test is about these tasks, under whatever chance is in the model: repeats of a task are pairs
like any others. If the draft made no difference to a task, a model without chance would tie on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Protocol

from metaclaw_langgraph.types import Json, Retrieved, Skill, Trajectory

__all__ = ["Gate", "GateReport", "Tally", "sign_test"]

_ALPHA = 0.1
_LOOKED_AT = 50


class Previews(Protocol):
    """What runs would be given (`SkillSearch` is one)."""

    def preview(self, task: str, *, add: Skill | None = None, drop: str | None = None) -> Retrieved:
        """What a run of this task would be given, with one skill more and one (by name) less."""


@dataclass(slots=True)
class Tally:
    """Pairs of replays: the first of each with the draft, the second without it."""

    pairs: list[tuple[bool, bool]] = field(default_factory=list)
    same_prompt: int = 0
    """Tasks that the draft does not reach: ties that were not run."""
    untold: int = 0
    """Pairs that could not be judged."""

    @property
    def wins(self) -> int:
        return sum(one and not other for one, other in self.pairs)

    @property
    def losses(self) -> int:
        return sum(other and not one for one, other in self.pairs)

    def to_json(self) -> dict[str, Json]:
        """Counts and rates, as plain JSON values."""
        number = len(self.pairs)
        with_it = sum(one for one, _ in self.pairs)
        without = sum(other for _, other in self.pairs)
        return {
            "pairs": number,
            "wins": self.wins,
            "losses": self.losses,
            "pass_rate_with": with_it / number if number else None,
            "pass_rate_without": without / number if number else None,
            "same_prompt": self.same_prompt,
            "untold": self.untold,
        }


@dataclass(frozen=True, slots=True)
class GateReport:
    """What the gate found."""

    won: bool | None
    """None when it could not be told: nothing could be replayed and judged."""
    reason: str
    failures: Tally
    successes: Tally

    def to_json(self) -> dict[str, Json]:
        """The evidence, as plain JSON values."""
        return {
            "won": self.won,
            "reason": self.reason,
            "failures": self.failures.to_json(),
            "successes": self.successes.to_json(),
        }


class Gate:
    """Tries drafts. The side without the draft is run once for all drafts of an evolution."""

    def __init__(
        self,
        previews: Previews,
        passed: Callable[[Trajectory, Retrieved], bool | None],
        *,
        repeats: int,
        successes: int,
    ) -> None:
        self._previews = previews
        self._passed = passed
        self._repeats = repeats
        self._successes = successes
        self._without: dict[tuple[str, str, int], bool | None] = {}

    def try_draft(
        self,
        skill: Skill,
        replaces: str | None,
        failures: Sequence[Trajectory],
        successes: Iterable[Trajectory],
    ) -> GateReport:
        """Replay the failures, and then as many of the successes as the draft reaches."""
        on_failures, on_successes = Tally(), Tally()
        for trajectory in failures:
            self._compare(trajectory, skill, replaces, on_failures)
        won, reason = _verdict(on_failures, on_successes)
        if won:
            tried = 0
            for trajectory in list(successes)[:_LOOKED_AT]:
                if tried >= self._successes:
                    break
                tried += self._compare(trajectory, skill, replaces, on_successes)
            won, reason = _verdict(on_failures, on_successes)
        return GateReport(won, reason, on_failures, on_successes)

    def _compare(
        self, trajectory: Trajectory, skill: Skill, replaces: str | None, tally: Tally
    ) -> bool:
        """Add the pairs of one task; False when the draft does not reach it."""
        task = trajectory.task or ""
        with_it = self._previews.preview(task, add=skill, drop=replaces)
        without = self._previews.preview(task)
        if with_it.block == without.block:
            tally.same_prompt += 1
            return False
        for repeat in range(self._repeats):
            key = (trajectory.id, without.block, repeat)
            if key not in self._without:
                self._without[key] = self._passed(trajectory, without)
            one, other = self._passed(trajectory, with_it), self._without[key]
            if one is None or other is None:
                tally.untold += 1
                if one is None and other is None and repeat == 0:
                    break  # it cannot be replayed at all
            else:
                tally.pairs.append((one, other))
        return True


def sign_test(wins: int, losses: int) -> float:
    """How likely so many wins are if both sides are equally good."""
    number = wins + losses
    return float(sum(comb(number, k) for k in range(wins, number + 1)) / 2**number)


def _verdict(failures: Tally, successes: Tally) -> tuple[bool | None, str]:
    if not failures.pairs:
        if failures.same_prompt and not failures.untold:
            return False, "it is not retrieved for the tasks that it was written for"
        return None, "its tasks could not be replayed and judged"
    wins, losses = failures.wins, failures.losses
    chance = sign_test(wins, losses)
    told = f"{wins} wins, {losses} losses in {len(failures.pairs)} pairs (p = {chance:.3f})"
    if chance > _ALPHA:
        return False, f"no clear win on its own failures: {told}"
    if successes.losses > successes.wins:
        return False, (
            f"it spoils past successes: {successes.losses} losses, {successes.wins} wins "
            f"in {len(successes.pairs)} pairs"
        )
    return True, told
