"""Calls of other people's code (judges, models, replays) that may hang, and must not hold us up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = ["StoppedError", "Timed", "in_parallel"]

T = TypeVar("T")

_LOOK = 0.1


class StoppedError(Exception):
    """The process is closing; what was begun is left for the next one."""


class Timed:
    """Runs calls for a limited time, until it is stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._begun: set[Future[Any]] = set()

    def stop(self) -> None:
        """End all waiting, now and later: nobody waits for a model when the program ends."""
        with self._lock:
            self._stopped.set()

    def join(self, timeout: float) -> None:
        """Wait for calls that go on although nobody waits for them any more."""
        wait(list(self._begun), max(0.0, timeout))

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def call(self, seconds: float, call: Callable[[], T], what: str) -> T:
        """The call's result; TimeoutError when it takes longer. It then goes on by itself."""
        future: Future[T] = Future()
        future.add_done_callback(self._begun.discard)
        with self._lock:  # known before it begins: `join` must not miss it
            if self.stopped:
                raise StoppedError
            self._begun.add(future)
        try:
            _begin(future, call, what)
        except RuntimeError as error:  # no more threads
            future.set_exception(error)
        give_up = time.monotonic() + seconds
        while not future.done():
            if self.stopped:
                raise StoppedError
            left = give_up - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{what} took longer than {seconds:g} s")
            wait([future], min(left, _LOOK))
        return future.result()


def in_parallel(calls: Sequence[Callable[[], T]], what: str) -> list[T | Exception]:
    """What the calls, made at the same time, gave or raised, in their order."""
    futures: list[Future[T]] = [Future() for _ in calls]
    for future, call in zip(futures, calls, strict=True):
        _begin(future, call, what)
    wait(futures)
    problems = [future.exception() for future in futures]
    return [
        problem if isinstance(problem, Exception) else future.result()
        for future, problem in zip(futures, problems, strict=True)
    ]


def _begin(future: Future[T], call: Callable[[], T], what: str) -> None:
    """Begin the call in a daemon thread. Not in an executor: those wait for their threads when
    the program ends."""
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:  # somebody's sys.exit ends their call, not our thread
            future.set_exception(RuntimeError(f"{what} ended with {type(error).__name__}"))

    threading.Thread(target=work, name="metaclaw-call", daemon=True).start()
