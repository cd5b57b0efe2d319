"""Taking in the spool: what waited on disk goes to the ledger, what is no good is set aside.

A file that cannot be read, or whose rows a working ledger refuses, must not keep the others
waiting; only a ledger that does not work means waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.spool import Row, Spool
from metaclaw_langgraph.ledger.values import Incident

__all__ = ["Intake", "RowStore"]


class RowStore(Protocol):
    """The ledger, when it can be had."""

    def store(self, rows: Sequence[Row]) -> None:
        """Store in one transaction and save incidents; raises when the ledger can't."""

    def refuses(self, error: Exception) -> bool:
        """Whether it was raised because of what was to be stored, and the ledger itself works."""

    def add_incidents(self, namespace: str, incidents: Sequence[Incident]) -> None:
        """Add incidents that an earlier process could not save."""


class Intake:
    """Empties a spool into a store."""

    def __init__(self, spool: Spool, store: RowStore, incidents: Incidents) -> None:
        self._spool = spool
        self._store = store
        self._incidents = incidents

    def run(self) -> int:
        """How many rows were stored; raises when the ledger does not work."""
        stored = sum(self._rows(path) for path in self._spool.files())
        for path in self._spool.incident_files():
            self._old_incidents(path)
        self._spool.remove_abandoned()
        return stored

    def _rows(self, path: Path) -> int:
        try:
            rows = self._spool.read(path)
        except FileNotFoundError:
            return 0  # another process was faster
        except Exception as error:
            self._set_aside(path, error)
            return 0
        stored, problem = self._store_good(rows)
        if problem is None:
            self._remove(path)
        else:
            self._set_aside(path, problem)
        return len(stored)

    def _store_good(self, rows: Sequence[Row]) -> tuple[Sequence[Row], Exception | None]:
        """Store all at once or, if the ledger refuses that, each that it takes."""
        problem = self._refusal(rows)
        if problem is None or len(rows) < 2:
            return ([] if problem else rows), problem
        problems = [self._refusal([row]) for row in rows]
        stored = [row for row, refused in zip(rows, problems, strict=True) if refused is None]
        return stored, next((one for one in problems if one is not None), None)

    def _refusal(self, rows: Sequence[Row]) -> Exception | None:
        """Store; why a working ledger does not take the rows. Raises when it does not work."""
        try:
            self._store.store(rows)
        except Exception as error:
            if self._store.refuses(error):
                return error
            raise
        return None

    def _old_incidents(self, path: Path) -> None:
        try:
            claimed = self._spool.claim(path)
        except OSError:
            return  # another process was faster
        try:
            namespace, incidents = self._spool.read_incidents(claimed)
        except Exception as error:
            self._set_aside(self._spool.give_back(claimed, path), error)
            return
        try:
            self._store.add_incidents(namespace, incidents)
        except Exception as error:
            self._spool.give_back(claimed, path)
            if not self._store.refuses(error):
                raise
            self._set_aside(path, error)
        else:
            self._remove(claimed)

    def _set_aside(self, path: Path, error: Exception) -> None:
        said = StoreError(f"{path.name}: {type(error).__name__}: {error}")
        self._incidents.add("spool", "set aside", said)
        try:
            self._spool.set_aside(path)
        except OSError as problem:
            self._incidents.add("spool", "not moved", problem)

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:  # read again some day; the ledger has these rows
            self._incidents.add("spool", "not removed", problem)
