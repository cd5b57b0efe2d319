"""Chroma: the folder that one process holds, or a server by URL.

Chroma's folder is not safe for two processes (rows are lost, deleted ones come back), so a file
lock beside it decides who holds it. Within a process everybody shares one client, and one
`ChromaStore` for each collection.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
from filelock import FileLock, Timeout

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.skills.embedding import Vector
from metaclaw_langgraph.skills.stores import Match, best_first

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.config import Settings

__all__ = [
    "ChromaClient",
    "ChromaStore",
    "chroma_folder",
    "connect",
    "open_folder",
    "remove_folder",
]

_LARGEST_BATCH = 1000


class ChromaStore:
    """One collection. Cosine distance; no metadata, since filters on it are slow."""

    def __init__(self, client: ClientAPI, name: str, *, exclusive: bool) -> None:
        self.kind = "chroma" if exclusive else "chroma server"
        self.exclusive = exclusive
        self.floor = 0
        self._batch = min(client.get_max_batch_size(), _LARGEST_BATCH)
        self._collection = client.get_or_create_collection(
            name, embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    def ids(self) -> set[str]:
        with chroma_errors("read"):
            return set(self._collection.get(include=[])["ids"])

    def upsert(self, ids: Sequence[str], vectors: Vector) -> None:
        with chroma_errors("written"):
            for start in range(0, len(ids), self._batch):
                part = slice(start, start + self._batch)
                self._collection.upsert(ids=list(ids[part]), embeddings=vectors[part])

    def delete(self, ids: Sequence[str]) -> None:
        with chroma_errors("written"):
            for start in range(0, len(ids), self._batch):
                self._collection.delete(ids=list(ids[start : start + self._batch]))

    def query(self, vector: Vector, k: int) -> list[Match]:
        with chroma_errors("searched"):
            found = self._collection.query(
                query_embeddings=vector[np.newaxis], n_results=k, include=["distances"]
            )
        distances = found["distances"] or [[]]
        pairs = zip(found["ids"][0], distances[0], strict=True)
        return best_first(Match(id, 1.0 - distance) for id, distance in pairs)

    def close(self) -> None:
        """The client is closed, not its collections."""


class ChromaClient:
    """A client and its stores, shared by all of its users in this process."""

    def __init__(self, client: ClientAPI, lock: FileLock | None) -> None:
        self.exclusive = lock is not None
        self.users = 0
        self._client = client
        self._lock = lock
        self._stores: dict[str, ChromaStore] = {}
        self._opening = threading.Lock()

    def store(self, name: str) -> ChromaStore:
        with self._opening, chroma_errors("opened"):
            if name not in self._stores:
                self._stores[name] = ChromaStore(self._client, name, exclusive=self.exclusive)
            return self._stores[name]

    def drop_others(self, prefix: str, keep: str) -> None:
        """Delete the collections with this prefix except one: they belong to other models."""
        with self._opening, chroma_errors("written"):
            for collection in self._client.list_collections():
                name = collection.name
                if name.startswith(prefix) and name != keep and name not in self._stores:
                    self._client.delete_collection(name)

    def close(self) -> None:
        """Give it up; the last user closes Chroma and frees the folder."""
        with _registry_lock:
            self.users -= 1
            if self.users > 0:
                return
            for key in [key for key, client in _folders.items() if client is self]:
                del _folders[key]
            self._client.close()  # type: ignore[attr-defined]  # both kinds of client have it
            if self._lock is not None:
                self._lock.release()


# The process is part of the key: a forked child must not use its parent's client.
_folders: dict[tuple[int, Path], ChromaClient] = {}
_registry_lock = threading.Lock()


def chroma_folder(home: Path) -> Path:
    """Where the embedded Chroma lives."""
    return home / "chroma"


def open_folder(home: Path) -> ChromaClient | None:
    """The embedded Chroma of `home`; None when another process holds it."""
    key = (os.getpid(), home.resolve())
    with _registry_lock:
        if key not in _folders:
            opened = _open_folder(home)
            if opened is None:
                return None
            _folders[key] = opened
        _folders[key].users += 1
        return _folders[key]


def remove_folder(home: Path) -> bool:
    """Delete the embedded Chroma of `home`; False when a process (this one too) is using it."""
    with _registry_lock:
        lock = _take_lock(home)
        if lock is None:
            return False
        try:
            if chroma_folder(home).exists():
                shutil.rmtree(chroma_folder(home))
        finally:
            lock.release()
    return True


def connect(url: str) -> ChromaClient:
    """A client of the Chroma server at `url`."""
    import chromadb

    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 8000)
    try:
        client = chromadb.HttpClient(
            host=parts.hostname or "", port=port, ssl=secure, settings=_settings()
        )
    except Exception as error:
        raise StoreError(
            f"the Chroma server at {url} cannot be reached; start it or correct chroma_url"
        ) from error
    opened = ChromaClient(client, None)
    opened.users = 1
    return opened


@contextmanager
def chroma_errors(verb: str) -> Iterator[None]:
    """Chroma raises many types, some of them bare; callers need one."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise StoreError(
            f"the skill index (Chroma) cannot be {verb}: {first}; "
            "`metaclaw skills reindex` rebuilds it from the ledger"
        ) from error


def _open_folder(home: Path) -> ChromaClient | None:
    lock = _take_lock(home)
    if lock is None:
        return None
    try:
        import chromadb

        with chroma_errors("opened"):
            client = chromadb.PersistentClient(str(chroma_folder(home)), _settings())
    except BaseException:
        _forget(chroma_folder(home))
        lock.release()
        raise
    return ChromaClient(client, lock)


def _forget(folder: Path) -> None:
    """Chroma keeps a client that failed to start and gives it to the next who asks."""
    from chromadb.api.shared_system_client import SharedSystemClient

    SharedSystemClient._identifier_to_system.pop(str(folder), None)


def _take_lock(home: Path) -> FileLock | None:
    """The lock of the Chroma folder, taken; None when it is held elsewhere."""
    lock = FileLock(home / "chroma.lock", thread_local=False, fallback_to_soft=False)
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except OSError as error:
        raise StoreError(
            f"{home} cannot be written ({error.strerror}); make it writable or set METACLAW_HOME"
        ) from error
    return lock


def _settings() -> Settings:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False)
