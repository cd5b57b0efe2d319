"""The recorder: takes finished runs off the caller's hands and stores them.

`put` appends to a bounded queue and returns; the caller never encodes, and never waits for a disk.
One daemon thread turns the runs into rows, stores them in batches, one transaction each, and tells
the learner. Runs that find the queue full go to a second line, which another daemon
thread writes to the spool on disk (`overflow.py`); that line holds at least 4096 runs, however
small the queue is, so a burst loses nothing while the two threads catch up. When the ledger does
not take a batch, its rows go to the spool as well, and from there to the ledger when it is back.
Only when the second line is full too, or the disk refuses, is a run lost, and counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.intake import Intake, RowStore
from metaclaw_langgraph.learning.overflow import Overflow
from metaclaw_langgraph.learning.spool import Row, Spool
from metaclaw_langgraph.wrapping.run import Run

__all__ = ["RecordStore", "Recorder"]

BATCH = 64
_OVERFLOW_LEAST = 4096
_LOOK_AGAIN = 5.0
_BACK_OFF_FIRST = 0.2
_BACK_OFF_MOST = 30.0


class RecordStore(RowStore, Protocol):
    """What the recorder needs: encoding a run, and the ledger when it can be had."""

    def encode(self, run: Run) -> Row:
        """The run as a redacted row of the ledger."""

    def tend(self) -> bool:
        """See to what goes on after storing; True to be asked again in a while."""


class Recorder:
    """A bounded queue and the thread that empties it."""

    def __init__(
        self,
        store: RecordStore,
        incidents: Incidents,
        spool_folder: Path,
        *,
        queue_size: int,
        flush_interval: float,
        stored: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._incidents = incidents
        self.spool = Spool(spool_folder)
        self._intake = Intake(self.spool, store, incidents)
        self._limit = queue_size
        self._interval = flush_interval
        self._stored = stored
        self._clock = clock
        self._queue: deque[Run] = deque()
        self._in_flight: list[Run] = []
        self._working = False
        self._taken = 0
        """How many runs were taken over …"""
        self._ended = 0
        """… and how many of them are stored, spooled or lost."""
        self._spooled = False
        self._emptying = False
        self._changed = threading.Condition()
        self._overflow = Overflow(
            max(queue_size, _OVERFLOW_LEAST), self._spool_overflow, self._changed
        )
        self._thread: threading.Thread | None = None
        self._closing = False
        self._back_off = 0.0
        self._retry_at = 0.0
        self._tend_at: float | None = None

    def put(self, run: Run) -> None:
        """Take a finished run; returns at once."""
        with self._changed:
            room = len(self._queue) < self._limit and not self._closing
            kept = room or self._overflow.put(run)
            self._taken += kept
            if room:
                self._queue.append(run)
            problem = self._start_threads()
            # Only a sleeping thread needs waking; a busy one looks again by itself.
            self._changed.notify_all()
        if not kept:
            self._incidents.add("queue", "lost", "both the queue and its overflow are full")
        elif not room:
            self._incidents.add("queue", "overflow", "the queue is full; run kept in the spool")
        self._report(problem)

    def take_in_spool(self) -> None:
        """Soon store what an earlier process had to leave in the spool, if anything."""
        if self.spool.needs_care():
            self._spooled = True
            self._wake()

    def waiting(self) -> int:
        """How many runs are still on their way to the ledger (the spool not counted)."""
        with self._changed:
            return len(self._queue) + len(self._in_flight) + self._overflow.waiting()

    def flush(self, timeout: float | None) -> bool:
        """Wait until every run put so far is in the ledger; False when time ran out."""
        self._retry_at = 0.0
        self._wake()
        with self._changed:
            upto = self._taken  # what comes meanwhile is not waited for
            return self._changed.wait_for(
                lambda: self._ended >= upto and not (self._spooled or self._emptying), timeout
            )

    def close(self, timeout: float) -> None:
        """Store what is there, end the threads; what is left then goes to the spool."""
        with self._changed:
            self._changed.wait_for(self._idle, timeout)
            self._closing = True
            # A store that hangs may or may not take its batch; the ledger stores nothing twice.
            left = [*self._in_flight, *self._queue, *self._overflow.end()]
            self._queue.clear()
            self._changed.notify_all()
        if left:
            self._spool_rows(self._encode(left))
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _idle(self) -> bool:
        return not self._queue and not self._working and not self._overflow.waiting()

    def _wake(self) -> None:
        """Have the threads look at what there is to do."""
        with self._changed:
            problem = self._start_threads()
            self._changed.notify_all()
        self._report(problem)

    def _start_threads(self) -> RuntimeError | None:
        """Start what has work; what the system says when it gives us no more threads.

        The runs then wait where they are, for a later attempt or for `close`.
        """
        try:
            if (self._queue or self._spooled) and not self._closing:
                self._start()
            self._overflow.start()
        except RuntimeError as error:
            return error
        return None

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._work, name="metaclaw-recorder", daemon=True)
            thread.start()
            self._thread = thread

    def _report(self, problem: RuntimeError | None) -> None:
        if problem is not None:
            self._incidents.add("queue", "no thread", problem)

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                self._handle(self._in_flight)
                self._tend()
            finally:
                with self._changed:
                    self._ended += len(self._in_flight)
                    self._in_flight, self._working = [], False
                    self._changed.notify_all()
            self._collect_more()

    def _wait_for_work(self) -> bool:
        """Take the next batch, an empty one when only the spool waits; False at the end."""
        with self._changed:
            while not self._has_work():
                self._changed.wait(self._pause())
            if self._closing:
                return False
            self._in_flight = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            self._working = True
            return True

    def _has_work(self) -> bool:
        if self._queue or self._closing:
            return True
        due = self._next_look()
        return due is not None and self._clock() >= due

    def _pause(self) -> float | None:
        """Sleep until there is work, but look again at what is not finished when it is time to."""
        due = self._next_look()
        return None if due is None else max(0.0, due - self._clock())

    def _next_look(self) -> float | None:
        """When to look at the spool again, or at what goes on after storing."""
        spool = self._retry_at if self._spooled else None
        return min((at for at in (spool, self._tend_at) if at is not None), default=None)

    def _collect_more(self) -> None:
        """Let a batch gather: one transaction for many runs."""
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._queue) >= BATCH or self._closing, self._interval
            )

    def _handle(self, batch: Sequence[Run]) -> None:
        rows = self._encode(batch)
        if self._clock() < self._retry_at:
            self._spool_rows(rows)
            return
        try:
            self._store.store(rows)
        except Exception as error:  # a bug in there must not cost the rows either
            self._spool_rows(rows)
            # Rows that a working ledger refuses are sorted out from the spool.
            if not rows or not self._store.refuses(error):
                self._wait_longer(error)
            return
        if rows:
            self._stored()
            self._tend_later()
        self._empty_spool()

    def _tend_later(self) -> None:
        if self._tend_at is None:
            self._tend_at = self._clock() + _LOOK_AGAIN

    def _tend(self) -> None:
        if self._tend_at is None or self._clock() < self._tend_at:
            return
        again = False
        try:
            again = self._store.tend()
        except Exception as error:
            self._incidents.add("recorder", "failed", error)
        self._tend_at = self._clock() + _LOOK_AGAIN if again else None

    def _encode(self, runs: Sequence[Run]) -> list[Row]:
        rows = []
        for run in runs:
            try:
                rows.append(self._store.encode(run))
            except Exception as error:
                self._incidents.add("capture", "lost", error)
        return rows

    def _spool_rows(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        try:
            self.spool.put(rows)
            self._spooled = True
        except Exception as error:
            self._incidents.add("ledger", "lost", error, count=len(rows))

    def _spool_overflow(self, runs: Sequence[Run]) -> None:
        """In the overflow's thread."""
        self._spool_rows(self._encode(runs))
        with self._changed:
            self._ended += len(runs)
        self._wake()

    def _empty_spool(self) -> None:
        """Store what is in the spool; a file that is no good does not keep the others waiting."""
        self._emptying = True
        self._spooled = False  # first, so that what is put there meanwhile is not forgotten
        try:
            if self._intake.run():
                self._stored()
                self._tend_later()
        except Exception as error:
            self._spooled = True
            self._wait_longer(error)
            return
        finally:
            self._emptying = False
        self._back_off = self._retry_at = 0.0

    def _wait_longer(self, error: Exception) -> None:
        self._incidents.add("ledger", "unavailable", error)
        self._back_off = min(max(_BACK_OFF_FIRST, self._back_off * 2), _BACK_OFF_MOST)
        self._retry_at = self._clock() + self._back_off
