"""The learner: the thread that judges and evolves, away from the user's runs and from the recorder.

It works when it is woken (a run was stored, somebody gave feedback), when something that waits is
due, and looks now and then for what other processes left in the ledger.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from metaclaw_langgraph._timed import StoppedError
from metaclaw_langgraph.incidents import Incidents

__all__ = ["Learner", "Pass"]

_LOOK_EVERY = 5.0
_BACK_OFF_FIRST = 1.0
_BACK_OFF_MOST = 60.0


@dataclass(frozen=True, slots=True)
class Pass:
    """What one piece of work came to."""

    again: float | None = None
    """Seconds until there may be more to do: 0 for at once, None for nothing that is known of."""
    mine: bool = True
    """False when another process is at it, and nothing was done."""
    failed: bool = False
    """True when somebody who was asked failed, and it was counted."""


class Learner:
    """A daemon thread that repeats `work` until there is nothing left to do."""

    def __init__(self, work: Callable[[bool], Pass], incidents: Incidents) -> None:
        """`work(at_once)` does one piece of work."""
        self._work = work
        self._incidents = incidents
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._asked = 0
        self._answered = 0
        self._failed = 0
        self._closing = False
        self._held_elsewhere = False
        self._back_off = 0.0

    def wake(self) -> None:
        """There may be something to learn."""
        with self._changed:
            self._woken = True
            self._start()
            self._changed.notify_all()

    def learn(self, timeout: float | None) -> bool:
        """Learn from everything that is there now, without waiting for more of it; False when time
        ran out, or the learner failed."""
        with self._changed:
            self._asked += 1
            mine, failed = self._asked, self._failed
            self._start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answered >= mine or self._closing, timeout)
            return self._answered >= mine and self._failed == failed

    def close(self, timeout: float) -> None:
        """End the thread; what was begun and is not stored is left for the next process."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout))

    def _start(self) -> None:
        if self._closing or (self._thread is not None and self._thread.is_alive()):
            return
        thread = threading.Thread(target=self._run, name="metaclaw-learner", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no more threads: tried again when woken next
            self._incidents.add("learning", "no thread", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        pause: float | None = 0.0
        while self._wait(pause):
            asked = self._asked
            try:
                done = self._work(asked > self._answered)
                self._back_off = 0.0
            except StoppedError:
                return
            except Exception as error:
                done = self._fail(error)
            pause, self._held_elsewhere = done.again, not done.mine
            self._failed += done.failed
            if pause != 0 and done.mine:  # nothing more can be done now
                with self._changed:
                    self._answered = max(self._answered, asked)
                    self._changed.notify_all()

    def _fail(self, error: Exception) -> Pass:
        self._incidents.add("learning", "failed", error)
        self._back_off = min(max(_BACK_OFF_FIRST, 2 * self._back_off), _BACK_OFF_MOST)
        return Pass(self._back_off, failed=True)

    def _wait(self, pause: float | None) -> bool:
        """Until there is work; False at the end."""
        most = _BACK_OFF_MOST if self._back_off else _LOOK_EVERY
        until = time.monotonic() + min(most if pause is None else pause, most)
        with self._changed:
            while not self._closing:
                left = until - time.monotonic()
                asked = self._asked > self._answered and not self._held_elsewhere
                if asked or (self._woken and not self._back_off) or left <= 0:
                    break
                self._changed.wait(left)
            self._woken = False
            return not self._closing
