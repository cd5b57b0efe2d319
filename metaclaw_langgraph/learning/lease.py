"""One learner at a time for a namespace, whichever process or machine it runs on.

The lease saves work; it is not what keeps data right: a failure is consumed once, by the ledger,
whoever thinks that it holds the lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["leased"]

_SECONDS = 30.0


@contextmanager
def leased(ledger: Ledger, namespace: str, name: str) -> Iterator[bool]:
    """Hold the lease, renewed while the block runs; False when somebody else has it."""
    holder = f"{os.getpid()}-{new_id()}"
    if not ledger.acquire_lease(namespace, name, holder, _SECONDS):
        yield False
        return
    done = threading.Event()

    def renew() -> None:
        while not done.wait(_SECONDS / 3):
            with suppress(Exception):  # then it runs out, and somebody else may take over
                ledger.acquire_lease(namespace, name, holder, _SECONDS)

    threading.Thread(target=renew, name="metaclaw-lease", daemon=True).start()
    try:
        yield True
    finally:
        done.set()
        with suppress(Exception):
            ledger.release_lease(namespace, name, holder)
