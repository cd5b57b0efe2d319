"""The index of a namespace's active skills: it follows the ledger, generation by generation.

The ledger is the truth. A `Snapshot` is one generation that the index holds completely; readers
take it once and check every match against its members, so that a run sees exactly one generation
while rows come and go. Additions are written before a snapshot is published. Removals lag by one
sync: they are invisible by the membership check, and their rows go when nobody needs them.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills import chroma
from metaclaw_langgraph.skills.embedding import Embedder, Vector, skill_text, vector_space
from metaclaw_langgraph.skills.stores import Match, MemoryStore, VectorStore

__all__ = ["SkillIndex", "Snapshot", "Stores", "open_index", "rebuild_index", "vector_batches"]

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One generation, completely in the index."""

    generation: int
    members: frozenset[str]


class SkillIndex:
    """The vectors of one namespace, searched. Thread-safe; one writer at a time."""

    def __init__(self, ledger: Ledger, embedder: Embedder, namespace: str, stores: Stores) -> None:
        self.namespace = namespace
        self._ledger = ledger
        self._embedder = embedder
        self._stores = stores
        self._store: VectorStore | None = None
        self._snapshot = Snapshot(0, frozenset())
        self._dead: set[str] = set()
        self._prepared: set[str] = set()
        self._closed = False
        self._syncing = threading.Lock()

    @property
    def snapshot(self) -> Snapshot:
        """The newest generation that is completely here."""
        return self._snapshot

    @property
    def kind(self) -> str:
        """Where the rows are: `chroma`, `chroma server`, `memory`."""
        return self._stores.kind

    def is_near(self, upto: int, rows: int) -> bool:
        """Whether `sync(upto)` writes at most about `rows` rows; an unembedded one counts ten."""
        if self._store is None:
            ids: Collection[str] = self._ledger.members(self.namespace, upto)
        else:
            ids, _ = self._changes(upto)
        if len(ids) > rows:
            return False
        ready = self._ledger.vectors(self.namespace, ids, vector_space(self._embedder))
        return len(ids) + 9 * (len(ids) - len(ready)) <= rows

    def sync(self, upto: int) -> Snapshot:
        """Follow the ledger to generation `upto` (or stay, when already past it)."""
        with self._syncing:
            if self._closed:
                raise StoreError("the skill index is closed; open a new one")
            if upto <= self._snapshot.generation:
                return self._snapshot
            if self._store is None:
                self._open(upto)
            else:
                self._follow(self._store, upto)
            return self._snapshot

    def prepare(self, vectors: Mapping[str, bytes]) -> None:
        """Write rows of skills that are about to become members."""
        with self._syncing:
            if self._store is None or not vectors:
                return
            self._store.upsert(list(vectors), _matrix(vectors.values()))
            self._prepared.update(vectors)

    def search(
        self, snapshot: Snapshot, vector: Vector, k: int, least: float
    ) -> list[Match] | None:
        """The k best members with at least the score `least`.

        None when the snapshot is so old that rows of it may be gone: take a new one.
        """
        store, fetch = self._store, max(4 * k, 20)
        if store is None:
            return []
        while True:
            rows = store.query(vector, fetch)
            if snapshot.generation < store.floor:
                return None
            found = [row for row in rows if row.id in snapshot.members]
            if len(found) >= k or len(rows) < fetch or rows[-1].score < least:
                return [row for row in found[:k] if row.score >= least]
            fetch *= 4

    def rewrite(self) -> int:
        """Write every row again and delete all others; how many rows there are."""
        with self._syncing:
            store, members = self._store, self._snapshot.members
            if store is None:
                return 0
            self._write(store, members)
            self._dead = store.ids() - members
            self._prune(store)
            return len(members)

    def close(self) -> None:
        """Give up the store; another process may then hold the folder."""
        self._closed = True
        with self._syncing:
            self._store = None
            self._stores.close()

    def _open(self, upto: int) -> None:
        """Take or make the collection and reconcile it with the ledger, both ways."""
        members = frozenset(self._ledger.members(self.namespace, upto))
        store = self._stores.open(self._collection(upto))
        present = store.ids()
        self._write(store, members - present)
        self._dead = set(present - members)
        self._store = store
        self._snapshot = Snapshot(upto, members)
        if store.exclusive:
            self._prune(store)

    def _follow(self, store: VectorStore, upto: int) -> None:
        added, removed = self._changes(upto)
        # In a store that others write to, one of them may have pruned what was prepared here.
        self._write(store, added - self._prepared if store.exclusive else added)
        self._prepared.clear()
        self._dead -= added
        self._prune(store)
        self._dead = removed
        members = self._snapshot.members - removed if removed else self._snapshot.members
        self._snapshot = Snapshot(upto, members | added)
        if not store.exclusive and self._ledger.generation(self.namespace) > upto:
            # Another process may just have brought back a row that was pruned here.
            self._follow(store, self._ledger.generation(self.namespace))

    def _changes(self, upto: int) -> tuple[set[str], set[str]]:
        """What is new in, and what is gone from, generation `upto`, against the snapshot."""
        after = self._snapshot.generation
        changes = self._ledger.membership_changes(self.namespace, after, upto)
        added = {
            change.skill_id
            for change in changes
            if change.since > after and (change.until is None or change.until > upto)
        }
        ended = {c.skill_id for c in changes if c.until is not None and c.until <= upto}
        members = self._snapshot.members
        return added - members, (ended - added) & members

    def _prune(self, store: VectorStore) -> None:
        """Delete rows that the snapshot does not need; older snapshots must then be given up."""
        if self._dead:
            store.floor = max(store.floor, self._snapshot.generation)
            store.delete(sorted(self._dead))
            self._dead = set()

    def _write(self, store: VectorStore, ids: Collection[str]) -> None:
        for some, vectors in vector_batches(self._ledger, self._embedder, self.namespace, ids):
            if self._closed:
                raise StoreError("the skill index was closed while it was being built")
            store.upsert(some, vectors)

    def _collection(self, generation: int) -> str:
        """Differs by namespace, by what the vectors mean, and by ledger: rows are never mixed."""
        parts = (vector_space(self._embedder), self._lineage(generation))
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return f"{_prefix(self.namespace)}{digest}"

    def _lineage(self, generation: int) -> str:
        """When the first skill came into this ledger: tells one ledger's ids from another's."""
        for upto in (1, generation):
            changes = self._ledger.membership_changes(self.namespace, 0, upto)
            if changes:
                first = min(changes, key=lambda change: (change.since, change.skill_id)).skill_id
                name = first.rpartition("@")[0]
                oldest = self._ledger.skill_history(self.namespace, name)[0]
                return f"{first} {oldest.created_at.isoformat()}"
        return "empty"


class Stores:
    """Opens the store of an index when it is first needed, and closes what it opened."""

    def __init__(self, namespace: str, dim: int, connect: Callable[[], chroma.ChromaClient | None]):
        self._namespace = namespace
        self._dim = dim
        self._connect = connect
        self._client: chroma.ChromaClient | None = None
        self.kind = "closed"

    def open(self, collection: str) -> VectorStore:
        self._client = self._connect()
        if self._client is None:
            self.kind = MemoryStore.kind
            return MemoryStore(self._dim)
        store = self._client.store(collection)
        self.kind = store.kind
        if store.exclusive:
            self._client.drop_others(_prefix(self._namespace), collection)
        return store

    def close(self) -> None:
        client, self._client = self._client, None
        self.kind = "closed"
        if client is not None:
            client.close()


def open_index(
    ledger: Ledger, embedder: Embedder, namespace: str, home: Path, chroma_url: str | None = None
) -> SkillIndex:
    """The index of a namespace: on the server, else in the home's folder, else in memory."""

    def connect() -> chroma.ChromaClient | None:
        return chroma.connect(chroma_url) if chroma_url else chroma.open_folder(home)

    return SkillIndex(ledger, embedder, namespace, Stores(namespace, embedder.dim, connect))


def rebuild_index(
    ledger: Ledger, embedder: Embedder, namespace: str, home: Path, chroma_url: str | None = None
) -> int:
    """Make the index anew from the ledger; how many rows it has.

    An embedded Chroma is deleted first, whatever state it is in. That takes the rows of the
    home's other namespaces too: each comes back when its namespace is next used.
    """
    if chroma_url is None and not chroma.remove_folder(home):
        raise StoreError(
            f"a running process holds the skill index in {home} and keeps it in step with the "
            "ledger; stop it to rebuild the index"
        )
    index = open_index(ledger, embedder, namespace, home, chroma_url)
    try:
        index.sync(ledger.generation(namespace))
        return index.rewrite() if chroma_url else len(index.snapshot.members)
    finally:
        index.close()


def vector_batches(
    ledger: Ledger, embedder: Embedder, namespace: str, ids: Collection[str]
) -> Iterator[tuple[list[str], Vector]]:
    """The vectors of skills from the ledger, in batches; those it lacks are made and stored."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), _BATCH):
        some = ordered[start : start + _BATCH]
        found = ledger.vectors(namespace, some, vector_space(embedder))
        missing = [id for id in some if id not in found]
        if missing:
            found.update(_embed(ledger, embedder, namespace, missing))
        yield some, _matrix([found[id] for id in some])


def _embed(ledger: Ledger, embedder: Embedder, namespace: str, ids: list[str]) -> dict[str, bytes]:
    skills = ledger.skills(namespace, ids)
    vectors = embedder.embed_documents([skill_text(skills[id]) for id in ids])
    made = {id: vectors[row].astype("<f4").tobytes() for row, id in enumerate(ids)}
    ledger.put_vectors(namespace, vector_space(embedder), made)
    return made


def _matrix(vectors: Collection[bytes]) -> Vector:
    return np.stack([np.frombuffer(vector, dtype="<f4") for vector in vectors]).astype(np.float32)


def _prefix(namespace: str) -> str:
    # The length keeps a namespace apart from one that begins with its name.
    return f"mc-{len(namespace)}-{namespace}-"
