"""Gathering the support set: which failures one evolution is made from, and when it is time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.evolving.base import Evolver
from metaclaw_langgraph.evolving.rules import do_not_learn
from metaclaw_langgraph.ledger import Evolution, Failure, Ledger
from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["Gathered", "Gathering"]

_LOOKED_AT = 100
# A thread that never rests must not keep its failures for ever.
_LONGEST_DEBOUNCE = 20


@dataclass(frozen=True, slots=True)
class Gathered:
    """The failures to learn from now; none when it is not time yet."""

    failures: tuple[Failure, ...] = ()
    look_again_in: float | None = None
    """Seconds until those that wait may be due; None when none waits."""


class Gathering:
    """Gathers the failures of one namespace."""

    def __init__(
        self,
        ledger: Ledger,
        namespace: str,
        evolver: Evolver,
        config: EvolvingConfig,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._evolver = evolver
        self._config = config
        self._clock = clock
        self._sorted_out = 0
        """The number of the last verdict whose failure was looked at by the rules."""

    def gather(
        self, *, at_once: bool = False, most: int | None = None, aside: Collection[str] = ()
    ) -> Gathered:
        """The next failures, as many as one evolution takes (or `most`), without those set aside.

        It is time when there are enough of them, when the first has waited long enough, or when
        somebody asks for it to be done at once.
        """
        self._sort_out()
        waiting = [one for one in self._learnable(aside) if one.trajectory.id not in aside]
        if not waiting:
            return Gathered()
        size = most or self._config.support_size
        if at_once:
            return Gathered(tuple(waiting[:size]))
        quiet, busy_for = self._quiet(waiting)
        waits = [self._time_left(failure) for failure in quiet]
        if quiet and (len(quiet) >= size or min(waits) <= 0):
            return Gathered(tuple(quiet[:size]))
        return Gathered(look_again_in=min([*waits, *busy_for]))

    def any_wait(self) -> bool:
        """Whether there is a failure to look at: to learn from it, or to sort it out."""
        return self._ledger.has_failures(self._namespace)

    def _learnable(self, aside: Collection[str]) -> list[Failure]:
        """Those that the evolver can learn from, and more than are set aside if there are."""
        limit = _LOOKED_AT
        while True:
            found = self._read(limit)
            wanted = [one for one in found if self._evolver.wants(one)]
            # Those that it does not want stay, and must not hide the others.
            if len(found) < limit or len(wanted) >= self._config.support_size + len(aside):
                return wanted
            limit *= 2

    def _read(self, limit: int) -> list[Failure]:
        return self._ledger.failures(
            self._namespace, limit=limit, in_words=self._evolver.needs_words
        )

    def _sort_out(self) -> None:
        """Consume what nobody should learn from, with the reason; each is looked at once."""
        while True:
            found, last = self._ledger.failures_after(
                self._namespace, self._sorted_out, limit=_LOOKED_AT
            )
            reasons = {one.trajectory.id: do_not_learn(one) for one in found}
            useless = {id: reason for id, reason in reasons.items() if reason}
            if useless:
                evolution = Evolution(new_id(), "do-not-learn", useless)
                try:
                    self._ledger.record_evolution(self._namespace, evolution)
                except ConflictError:
                    return  # one of them was judged anew or taken; looked at again next time
            self._sorted_out = last
            if len(found) < _LOOKED_AT:
                return

    def _quiet(self, failures: list[Failure]) -> tuple[list[Failure], list[float]]:
        """Those whose threads are quiet, and for how long the others are still busy."""
        threads = {one.trajectory.thread_id for one in failures} - {None}
        active = self._ledger.last_active(self._namespace, [t for t in threads if t])
        now, rest = self._clock(), timedelta(seconds=self._config.thread_debounce)
        quiet: list[Failure] = []
        busy: list[float] = []
        for one in failures:
            last = active.get(one.trajectory.thread_id or "")
            if last is not None and one.verdict.at is not None:
                last = min(last, one.verdict.at + _LONGEST_DEBOUNCE * rest)
            left = (last + rest - now).total_seconds() if last else 0.0
            if left > 0:
                busy.append(left)
            else:
                quiet.append(one)
        return quiet, busy

    def _time_left(self, failure: Failure) -> float:
        since = failure.verdict.at or failure.trajectory.ended_at
        waited = (self._clock() - since).total_seconds()
        return self._config.support_wait - waited
