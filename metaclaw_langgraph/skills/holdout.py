"""Which live skills are on probation, how often each is withheld, and what takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from metaclaw_langgraph.ledger import Ledger, Probation

__all__ = ["Holdouts"]

# A probation that ends well ends without a new generation; other processes see it a little later.
_READ_AGAIN = 60.0


class Holdouts:
    """The open probations of a namespace, as of a generation; read seldom."""

    def __init__(
        self, ledger: Ledger, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._clock = clock
        self._known: tuple[int, float, Mapping[str, Probation]] = (0, 0.0, {})

    def open(self, generation: int) -> Mapping[str, Probation]:
        """The open probations, by skill id."""
        known, until, found = self._known
        if known != generation or self._clock() > until:
            found = {one.skill_id: one for one in self._ledger.probations(self._namespace)}
            self._known = (generation, self._clock() + _READ_AGAIN, found)
        return found
