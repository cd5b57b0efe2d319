"""Runs that the recorder's queue had no room for, on their way to the spool.

Encoding and writing them to disk is the work of a thread of its own: the caller only appends to a
second bounded line. It holds far more runs than a small queue does, so that a burst waits in
memory while the disk catches up; a run that finds this line full as well is lost, and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from metaclaw_langgraph.wrapping.run import Run

__all__ = ["Overflow"]

_BATCH = 64


class Overflow:
    """A bounded line and the thread that spools it; `changed` is the recorder's condition."""

    def __init__(
        self,
        limit: int,
        spool: Callable[[Sequence[Run]], None],
        changed: threading.Condition,
    ) -> None:
        self._limit = limit
        self._spool = spool
        self._changed = changed
        self._line: deque[Run] = deque()
        self._in_flight: list[Run] = []
        self._thread: threading.Thread | None = None
        self._closing = False

    def put(self, run: Run) -> bool:
        """Take the run; False when there is no room. Call with `changed` held, like the rest."""
        if self._closing or len(self._line) >= self._limit:
            return False
        self._line.append(run)
        return True

    def waiting(self) -> int:
        """How many runs are not on disk yet."""
        return len(self._line) + len(self._in_flight)

    def start(self) -> None:
        """See to it that the thread runs if there is work; RuntimeError when it cannot."""
        running = self._thread is not None and self._thread.is_alive()
        if self._line and not running:
            thread = threading.Thread(target=self._work, name="metaclaw-spooler", daemon=True)
            thread.start()
            self._thread = thread

    def end(self) -> list[Run]:
        """Take no more; what is left, with what may not have reached the disk yet."""
        self._closing = True
        left = [*self._in_flight, *self._line]
        self._line.clear()
        return left

    def _work(self) -> None:
        while self._next_batch():
            try:
                self._spool(self._in_flight)
            finally:
                with self._changed:
                    self._in_flight = []
                    self._changed.notify_all()

    def _next_batch(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._line) or self._closing)
            self._in_flight = [self._line.popleft() for _ in range(min(_BATCH, len(self._line)))]
            return bool(self._in_flight)
