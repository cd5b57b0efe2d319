"""Calls of other people's code (judges, models, replays) that may hang, and must not hold us up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

__all__ = ["StoppedError", "Timed", "in_parallel"]

T = TypeVar("T")

_LOOK = 0.1


class StoppedError(Exception):
    """The process is closing; what was begun is left for the next one."""


class Timed:
    """Runs calls for a limited time, until it is stopped."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End all waiting, now and later: nobody waits for a model when the program ends."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def call(self, seconds: float, call: Callable[[], T], what: str) -> T:
        """The call's result; TimeoutError when it takes longer. It then goes on by itself."""
        future = _begun(call, what)
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
    futures = [_begun(call, what) for call in calls]
    wait(futures)
    problems = [future.exception() for future in futures]
    return [
        problem if isinstance(problem, Exception) else future.result()
        for future, problem in zip(futures, problems, strict=True)
    ]


def _begun(call: Callable[[], T], what: str) -> Future[T]:
    """The call, begun in a daemon thread. Not in an executor: those wait for their threads when
    the program ends."""
    future: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except Exception as error:
            future.set_exception(error)
        except BaseException as error:  # somebody's sys.exit ends their call, not our thread
            future.set_exception(RuntimeError(f"{what} ended with {type(error).__name__}"))

    threading.Thread(target=work, name="metaclaw-call", daemon=True).start()
    return future
