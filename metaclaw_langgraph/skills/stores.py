"""Where vectors are searched: the seam between the skill index and what holds its rows.

`MemoryStore` is for processes that do not hold the Chroma folder (Chroma's folder serves one
process). It is a plain exact search: it is built from the ledger's vectors in milliseconds, while
an in-memory Chroma would take a minute for 100,000 skills and is shared by everything in the
process that asks Chroma for one, the user's own code included.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from metaclaw_langgraph.skills.embedding import Vector

__all__ = ["Match", "MemoryStore", "VectorStore", "best_first"]


class Match(NamedTuple):
    """A row near the query; `score` is the cosine similarity."""

    id: str
    score: float


def best_first(matches: Iterable[Match]) -> list[Match]:
    """In order of score. Scores that differ only by rounding are ordered by id."""
    return sorted(matches, key=lambda match: (-round(match.score, 5), match.id))


class VectorStore(Protocol):
    """Rows of (id, vector) and the nearest of them. Thread-safe."""

    kind: str
    """What it is, for people: `chroma`, `chroma server`, `memory`."""
    exclusive: bool
    """True when no other process writes to it."""
    floor: int
    """Rows that only generations below this one need may be gone."""

    def ids(self) -> set[str]:
        """The ids of all rows."""

    def upsert(self, ids: Sequence[str], vectors: Vector) -> None:
        """Add rows, or replace those with the same id."""

    def delete(self, ids: Sequence[str]) -> None:
        """Remove rows; ids that are not there are ignored."""

    def query(self, vector: Vector, k: int) -> list[Match]:
        """The k nearest rows, best first; all rows when there are fewer."""

    def close(self) -> None:
        """Release what it holds."""


class MemoryStore:
    """Exact search over one matrix.

    New rows go behind the published ones and removals make a new matrix, so that readers, who
    take what is published once, need no lock.
    """

    kind = "memory"
    exclusive = True

    def __init__(self, dim: int) -> None:
        self.floor = 0
        self._buffer: Vector = np.empty((64, dim), dtype=np.float32)
        self._published: tuple[list[str], Vector] = ([], self._buffer[:0])
        self._known: set[str] = set()
        self._writing = threading.Lock()

    def ids(self) -> set[str]:
        with self._writing:
            return set(self._known)

    def upsert(self, ids: Sequence[str], vectors: Vector) -> None:
        with self._writing:
            self._remove(self._known.intersection(ids))
            names, matrix = self._published
            used, needed = len(matrix), len(matrix) + len(ids)
            if needed > len(self._buffer):
                self._buffer = np.empty((2 * needed, matrix.shape[1]), dtype=np.float32)
                self._buffer[:used] = matrix
            self._buffer[used:needed] = vectors
            names.extend(ids)
            self._known.update(ids)
            self._published = names, self._buffer[:needed]

    def delete(self, ids: Sequence[str]) -> None:
        with self._writing:
            self._remove(self._known.intersection(ids))

    def query(self, vector: Vector, k: int) -> list[Match]:
        names, matrix = self._published
        scores = matrix @ vector
        near = np.argpartition(-scores, k)[:k] if k < len(scores) else np.arange(len(scores))
        return best_first(Match(names[row], float(scores[row])) for row in near)

    def close(self) -> None:
        """Nothing to release."""

    def _remove(self, ids: set[str]) -> None:
        if not ids:
            return
        names, matrix = self._published
        keep = [row for row, name in enumerate(names) if name not in ids]
        self._buffer = matrix[keep]
        self._published = [names[row] for row in keep], self._buffer
        self._known -= ids
