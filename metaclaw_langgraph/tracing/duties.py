"""What the exporter has to do: a list of duties that do not stand in one another's way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Duty", "Task"]

_RETRY_FIRST = 1.0
_RETRY_MOST = 60.0


class Duty(Protocol):
    """One kind of thing that goes from the ledger to MLflow, or from MLflow to the ledger."""

    @property
    def name(self) -> str:
        """What it is called in the log and in incidents."""

    @property
    def every(self) -> float:
        """How many seconds to wait, when there was nothing to do, before it is asked again."""

    def run(self) -> bool:
        """Do a bounded piece of work; whether there was something to do.

        It may raise; it is then asked again later, and must not do twice what it has done.
        """

    def pending(self) -> bool:
        """Whether the ledger holds work for it; asked when the exporter is about to end."""


class Task:
    """A duty, and when it is its turn again."""

    def __init__(self, duty: Duty, clock: Callable[[], float] = time.monotonic) -> None:
        self.duty = duty
        self._clock = clock
        self._not_before = 0.0
        self._retry = _RETRY_FIRST

    @property
    def due(self) -> bool:
        return self._clock() >= self._not_before

    @property
    def well(self) -> bool:
        """Whether it did not fail the last time."""
        return self._retry == _RETRY_FIRST

    def run(self) -> bool:
        """Run the duty; whether there was something to do. What it raises is the caller's."""
        busy = self.duty.run()
        self._retry = _RETRY_FIRST
        self._not_before = 0.0 if busy else self._clock() + self.duty.every
        return busy

    def put_off(self) -> None:
        """It failed: wait, and longer each time."""
        self._not_before = self._clock() + self._retry
        self._retry = min(self._retry * 2, _RETRY_MOST)
