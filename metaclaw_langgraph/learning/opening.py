"""One ledger for all threads of a runtime, opened when first needed and again after it failed.

Opening may take long: another process may be migrating, or a server may not answer. So a thread of
its own does it while others wait, and whoever waits is let go when the runtime closes.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future, InvalidStateError, wait

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor

__all__ = ["LedgerHandle"]

_LET_OPEN_SECONDS = 1.0


class LedgerHandle:
    """The ledger at a URL, open or not. Thread-safe; may be used again after `close`."""

    def __init__(self, url: str, redactor: Redactor) -> None:
        self._url = url
        self._redactor = redactor
        self._lock = threading.Lock()
        self._future: Future[Ledger] | None = None

    def get(self) -> Ledger:
        """The open ledger; StoreError while it cannot be opened, or when closed meanwhile."""
        with self._lock:
            future = self._future
            begin = future is None or (future.done() and future.exception() is not None)
            if begin or future is None:
                future = self._future = Future()
        if begin:
            self._begin(future)
        try:
            return future.result()
        except CancelledError:
            raise StoreError("the ledger was still being opened when MetaClaw closed") from None

    def current(self) -> Ledger | None:
        """The ledger if it is open; does not open it."""
        with self._lock:
            future = self._future
        if future is None or not future.done() or future.cancelled() or future.exception():
            return None
        return future.result()

    def close(self, timeout: float) -> None:
        """Close the ledger, or give up opening it."""
        with self._lock:
            future, self._future = self._future, None
        if future is None:
            return
        wait([future], min(max(timeout, 0.0), _LET_OPEN_SECONDS))
        if not future.cancel() and future.exception() is None:
            future.result().close()

    def _begin(self, future: Future[Ledger]) -> None:
        thread = threading.Thread(
            target=self._open, args=(future,), name="metaclaw-ledger", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads: then here
            self._open(future)

    def _open(self, future: Future[Ledger]) -> None:
        try:
            ledger = Ledger.open(self._url, redactor=self._redactor)
        except BaseException as error:
            if not future.cancelled():
                future.set_exception(error)
            return
        try:
            future.set_result(ledger)
        except InvalidStateError:  # nobody waits any more
            ledger.close()
