"""What went wrong while the user's runs went on: counted, kept, shown by `metaclaw status`.

Learning never raises into a run, so this is where its failures go. Counts are kept in memory and
moved to the ledger when it can be written; until then they are not forgotten.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

from metaclaw_langgraph.errors import error_text
from metaclaw_langgraph.ledger.values import Incident
from metaclaw_langgraph.redaction import Redactor

__all__ = ["Incidents"]

_logger = logging.getLogger("metaclaw")
# The ledger redacts a message before it cuts it shorter; a secret must not be cut in two before.
_MESSAGE_LIMIT = 10_000


class Incidents:
    """A thread-safe tally by part (retrieval, ledger, …) and kind (missed, failed, lost, …)."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self._redactor = redactor or Redactor()
        self._lock = threading.Lock()
        self._unsaved: dict[tuple[str, str], Incident] = {}
        self._total: dict[tuple[str, str], Incident] = {}

    def add(self, part: str, kind: str, error: BaseException | str, count: int = 1) -> None:
        """Count one; the first of its kind is also logged as a warning."""
        message = error if isinstance(error, str) else error_text(error)
        new = Incident(part, kind, count, message[:_MESSAGE_LIMIT], datetime.now(UTC))
        with self._lock:
            first = (part, kind) not in self._total
            for tally in (self._unsaved, self._total):
                tally[part, kind] = _added(tally.get((part, kind)), new)
        level = logging.WARNING if first else logging.DEBUG
        if _logger.isEnabledFor(level):
            # Words of our own hold no secret; what was raised elsewhere may.
            ours = isinstance(error, str)
            shown = new.message if ours else self._redactor.text(new.message)
            _logger.log(level, "%s %s: %s", part, kind, shown)

    def take(self) -> list[Incident]:
        """What has not been saved yet; the caller saves it or gives it back."""
        with self._lock:
            taken = list(self._unsaved.values())
            self._unsaved.clear()
        return taken

    def give_back(self, incidents: list[Incident]) -> None:
        """Keep for later what could not be saved now."""
        with self._lock:
            for incident in incidents:
                key = (incident.part, incident.kind)
                newer = self._unsaved.get(key)
                self._unsaved[key] = _added(incident, newer) if newer else incident

    def unsaved(self) -> list[Incident]:
        """What only this process knows of so far."""
        with self._lock:
            return list(self._unsaved.values())

    def total(self) -> list[Incident]:
        """Everything that this process has counted."""
        with self._lock:
            return list(self._total.values())


def _added(old: Incident | None, new: Incident) -> Incident:
    count = new.count + (old.count if old else 0)
    return Incident(new.part, new.kind, count, new.message, new.at)
