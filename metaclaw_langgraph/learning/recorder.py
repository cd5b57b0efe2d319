"""The recorder: takes finished runs off the caller's hands and stores them.

`put` appends to a bounded queue and returns. One daemon thread turns the runs into rows, stores
them in batches, one transaction each, and runs the learning graph on them. When the queue is full,
or the ledger does not take a batch, the rows go to the spool on disk, and from there to the
ledger when it is back. Only when the disk refuses as well is a run lost, and counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.spool import Row, Spool
from metaclaw_langgraph.wrapping.run import Run

__all__ = ["RecordStore", "Recorder"]

BATCH = 64
_BACK_OFF_FIRST = 0.2
_BACK_OFF_MOST = 30.0


class RecordStore(Protocol):
    """What the recorder needs: encoding a run, and the ledger when it can be had."""

    def encode(self, run: Run) -> Row:
        """The run as a redacted row of the ledger."""

    def store(self, rows: Sequence[Row]) -> None:
        """Store in one transaction and save incidents; StoreError when the ledger can't."""

    def learn(self, rows: Sequence[Row]) -> None:
        """Run the learning graph on rows that were stored."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._incidents = incidents
        self.spool = Spool(spool_folder)
        self._limit = queue_size
        self._interval = flush_interval
        self._clock = clock
        self._queue: deque[Run] = deque()
        self._in_flight: list[Run] = []
        self._working = False
        self._spooled = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._back_off = 0.0
        self._retry_at = 0.0

    def put(self, run: Run) -> None:
        """Take a finished run; returns at once unless the queue is full."""
        with self._changed:
            room = len(self._queue) < self._limit and not self._closing
            if room:
                self._queue.append(run)
                self._start()
                # Only a sleeping thread needs waking; a busy one looks again by itself.
                self._changed.notify_all()
        if not room:
            self._incidents.add("queue", "overflow", "the queue is full; run kept in the spool")
            self._spool_rows(self._encode([run]))
            self._wake()

    def take_in_spool(self) -> None:
        """Soon store what an earlier process had to leave in the spool, if anything."""
        if self.spool.files():
            self._spooled = True
            self._wake()

    def waiting(self) -> int:
        """How many runs are still on their way to the ledger (the spool not counted)."""
        with self._changed:
            return len(self._queue) + len(self._in_flight)

    def flush(self, timeout: float | None) -> bool:
        """Wait until every run put so far is in the ledger; False when time ran out."""
        self._retry_at = 0.0
        self._wake()
        with self._changed:
            return self._changed.wait_for(lambda: self._idle() and not self._spooled, timeout)

    def close(self, timeout: float) -> None:
        """Store what is there, end the thread; what is left then goes to the spool."""
        with self._changed:
            self._changed.wait_for(self._idle, timeout)
            self._closing = True
            # A store that hangs may or may not take its batch; the ledger stores nothing twice.
            left = [*self._in_flight, *self._queue]
            self._queue.clear()
            self._changed.notify_all()
        if left:
            self._spool_rows(self._encode(left))
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _idle(self) -> bool:
        return not self._queue and not self._working

    def _wake(self) -> None:
        """Have the thread look at the spool, if something of ours is there."""
        with self._changed:
            if self._spooled and not self._closing:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._work, name="metaclaw-recorder", daemon=True
            )
            self._thread.start()

    def _work(self) -> None:
        while self._wait_for_work():
            try:
                self._handle(self._in_flight)
            finally:
                with self._changed:
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
        retry = self._spooled and self._clock() >= self._retry_at
        return bool(self._queue) or retry or self._closing

    def _pause(self) -> float | None:
        """Sleep until there is work, but look at the spool again when it is time to."""
        return max(0.0, self._retry_at - self._clock()) if self._spooled else None

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
            self._wait_longer(error)
            return
        self._learn(rows)
        self._empty_spool()

    def _encode(self, runs: Sequence[Run]) -> list[Row]:
        rows = []
        for run in runs:
            try:
                rows.append(self._store.encode(run))
            except Exception as error:
                self._incidents.add("capture", "lost", error)
        return rows

    def _learn(self, rows: Sequence[Row]) -> None:
        try:
            self._store.learn(rows)
        except Exception as error:
            self._incidents.add("learning", "failed", error)

    def _spool_rows(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        try:
            self.spool.put(rows)
            self._spooled = True
        except Exception as error:
            self._incidents.add("ledger", "lost", error, count=len(rows))

    def _empty_spool(self) -> None:
        """Store what is in the spool."""
        self._spooled = False  # first, so that what is put there meanwhile is not forgotten
        try:
            for path, rows in self.spool.take():
                self._store.store(rows)
                path.unlink(missing_ok=True)
                self._learn(rows)
        except Exception as error:
            self._spooled = True
            self._wait_longer(error)
            return
        self._back_off = self._retry_at = 0.0

    def _wait_longer(self, error: Exception) -> None:
        self._incidents.add("ledger", "unavailable", error)
        self._back_off = min(max(_BACK_OFF_FIRST, self._back_off * 2), _BACK_OFF_MOST)
        self._retry_at = self._clock() + self._back_off
