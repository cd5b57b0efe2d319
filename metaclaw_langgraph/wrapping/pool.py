"""Threads for skill look-ups, which a hanging store cannot pile up or keep the process alive.

The standard executors join their threads when the interpreter exits; one look-up that hangs would
then hang the user's program. These are daemon threads. When every one of them has been busy for
longer than the deadline, new look-ups are refused at once, so that a dead store costs a run
nothing rather than one deadline each.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["LookupPool", "PoolStuckError"]

T = TypeVar("T")


class PoolStuckError(RuntimeError):
    """Every thread has been waiting for the store for longer than the deadline."""


class LookupPool(Generic[T]):
    """A few daemon threads; `submit` never blocks."""

    def __init__(self, name: str, *, threads: int, stuck_after: float) -> None:
        self._name = name
        self._stuck_after = stuck_after
        self._jobs: queue.SimpleQueue[tuple[Future[T], Callable[[], T]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._size = threads
        self._busy_since: dict[int, float] = {}
        self._closed = False

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run the job soon; raises PoolStuckError when that is hopeless."""
        with self._lock:
            if self._closed:
                raise PoolStuckError("the pool is closed")
            self._refuse_if_stuck()
            if len(self._threads) < self._size:
                self._start_thread()
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def close(self, timeout: float) -> None:
        """Let the threads end; one that hangs for longer is left behind as a daemon."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._jobs.put(None)
        give_up = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    def _refuse_if_stuck(self) -> None:
        since = list(self._busy_since.values())
        if len(since) == self._size and time.monotonic() - max(since) > self._stuck_after:
            raise PoolStuckError(
                f"{self._size} look-ups have hung for over {self._stuck_after:g} s"
            )

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        me = threading.get_ident()
        while (item := self._jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            with self._lock:
                self._busy_since[me] = time.monotonic()
            try:
                future.set_result(job())
            except BaseException as error:  # handed to whoever waits for the future
                future.set_exception(error)
            finally:
                with self._lock:
                    self._busy_since.pop(me, None)
