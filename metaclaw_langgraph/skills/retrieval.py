"""From the task of a run to the skills that it is given, in one generation.

The hot path is one read of the ledger's pointer, the embedding, one search, and look-ups in
memory. Whatever takes long (loading, building or following a big change) happens once, in the
background if it can: meanwhile runs get the last generation that is completely indexed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger, Probation
from metaclaw_langgraph.skills.block import compose, section
from metaclaw_langgraph.skills.embedding import Embedder, Remembering, Vector, load_embedder
from metaclaw_langgraph.skills.holdout import Holdouts
from metaclaw_langgraph.skills.index import SkillIndex, Snapshot, open_index
from metaclaw_langgraph.skills.search import SkillSearch
from metaclaw_langgraph.skills.stores import Match
from metaclaw_langgraph.types import Retrieved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metaclaw_langgraph.config import MetaClawConfig, RetrievalConfig

__all__ = ["SkillRetriever", "open_retriever"]

# About how many rows a run may wait for.
_NEAR = 100
_CACHED_TASKS = 256
_CACHED_SECTIONS = 4096
_LONGEST_TASK = 16_384
# How many more are looked for, to take the places of those that are withheld.
_SPARE = 5


class _Found(NamedTuple):
    """What a task finds in one generation: the matches, some to spare, and the whole answer."""

    matches: Sequence[Match]
    answer: Retrieved


class SkillRetriever:
    """Finds the skills of a namespace for a task. Thread-safe; usable after a fork."""

    def __init__(
        self,
        ledger: Ledger,
        embedder_factory: Callable[[], Embedder],
        index_factory: Callable[[Embedder], SkillIndex],
        config: RetrievalConfig,
        namespace: str,
    ) -> None:
        self.namespace = namespace
        self._ledger = ledger
        self._embedder_factory = embedder_factory
        self._index_factory = index_factory
        self._config = config
        self._index: SkillIndex | None = None
        self._embedder: Embedder | None = None
        self._failure: Exception | None = None
        self._random = random.random
        self._reset()

    @property
    def index(self) -> SkillIndex | None:
        """The index, once it is loaded."""
        return self._index

    def retrieve(self, task: str | None) -> Retrieved:
        """The skills for a task. May raise; the caller decides how long to wait."""
        if self._pid != os.getpid():
            self._reset()
        generation = self._ledger.generation(self.namespace)
        task = (task or "").strip()[:_LONGEST_TASK]
        if not task or generation == 0:
            return Retrieved(generation, (), "")
        index = self._load(self._config.deadline)
        snapshot = self._follow(index, generation)
        if not snapshot.members:
            return Retrieved(snapshot.generation, (), "")
        found = self._answers.get((snapshot.generation, task))
        if found is None:
            found = self._find(index, snapshot, self._embed(task))
            self._remember(task, found)
        return self._draw(found)

    def search(self) -> SkillSearch:
        """The same skills, searched outside a run; loads what it needs."""
        index = self._load(-1)
        assert self._embedder is not None
        return SkillSearch(self._ledger, self._embedder, index, self._config)

    def warm(self) -> None:
        """Load the embedding model and bring the index up to date; waits until it is done."""
        if self._pid != os.getpid():
            self._reset()
        index = self._load(-1)
        import_module("chromadb")  # slow, and needed at once when the first skill comes
        index.sync(self._ledger.generation(self.namespace))
        self._embed("warm")

    def close(self) -> None:
        """Give up the index and its lock. The next call loads them again."""
        with self._loading.held(-1, "is still being loaded"):
            index, self._index = self._index, None
            if index is not None:
                index.close()

    def _reset(self) -> None:
        """A fresh start: a forked child can use none of its parent's locks, threads and rows."""
        self._pid = os.getpid()
        self._loading = _Turn()
        self._following = _Turn()
        self._working = False
        self._failure = None
        self._index = None
        self._embedder = None
        self._embed: Callable[[str], Vector] = _not_loaded
        self._sections: dict[str, str] = {}
        self._answers: dict[tuple[int, str], _Found] = {}
        self._holdouts = Holdouts(self._ledger, self.namespace)

    def _remember(self, task: str, found: _Found) -> None:
        """The same task in the same generation finds the same skills."""
        if len(self._answers) >= _CACHED_TASKS:
            self._answers = {}
        self._answers[found.answer.generation, task] = found

    def _draw(self, found: _Found) -> Retrieved:
        """The answer for one run: skills on probation are withheld from a share of them."""
        answer, withheld = found.answer, dict[str, str | None]()
        probations = self._holdouts.open(answer.generation)
        seen: set[str] = set()
        # One by one, best first: what takes the place of one that is withheld is drawn as well.
        while drawn := self._next_drawn(answer, probations, seen):
            withheld[drawn] = probations[drawn].fallback
            matches = list(_with_fallbacks(found.matches, withheld))
            texts = self._texts([match.id for match in matches])
            answer = compose(self._config, answer.generation, matches, texts, withheld)
        return answer

    def _next_drawn(
        self, answer: Retrieved, probations: Mapping[str, Probation], seen: set[str]
    ) -> str | None:
        """The first injected skill that the lot falls on; each is drawn once for a run."""
        for hit in answer.hits:
            if hit.injected and hit.id in probations and hit.id not in seen:
                seen.add(hit.id)
                if self._drawn(probations[hit.id]):
                    return hit.id
        return None

    def _drawn(self, probation: Probation) -> bool:
        return self._random() < probation.holdout

    def _load(self, patience: float) -> SkillIndex:
        """The index, loaded by the first caller; others wait for it at most `patience` seconds."""
        if self._index is not None:
            return self._index
        with self._loading.held(patience, "is still being loaded"):
            if self._embedder is None:
                self._embedder = Remembering(self._embedder_factory(), _CACHED_TASKS)
                self._embed = self._embedder.embed_query
            if self._index is None:
                self._index = self._index_factory(self._embedder)
            return self._index

    def _follow(self, index: SkillIndex, generation: int) -> Snapshot:
        """The snapshot to answer from: the newest, unless getting there takes long."""
        if index.snapshot.generation >= generation:
            return index.snapshot
        if not self._working:
            with self._following.held(self._config.deadline, "is being brought up to date"):
                if index.is_near(generation, _NEAR):
                    return index.sync(generation)
                self._start_worker(index, generation)
        return self._last_complete(index)

    def _start_worker(self, index: SkillIndex, generation: int) -> None:
        if not self._working:
            self._working = True
            work = threading.Thread(target=self._work, args=(index, generation), daemon=True)
            work.start()

    def _work(self, index: SkillIndex, generation: int) -> None:
        try:
            index.sync(generation)
        except Exception as error:  # told to the next caller, who then tries again
            self._failure = error
        finally:
            self._working = False

    def _last_complete(self, index: SkillIndex) -> Snapshot:
        """What can be answered while the index is catching up in the background."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise StoreError(f"the skill index could not follow the ledger: {failure}") from failure
        if index.snapshot.generation == 0:
            raise StoreError("the skill index is still being built from the ledger; try again soon")
        return index.snapshot

    def _find(self, index: SkillIndex, snapshot: Snapshot, vector: Vector) -> _Found:
        config = self._config
        spare = min(len(self._holdouts.open(snapshot.generation)), _SPARE)
        while True:
            matches = index.search(snapshot, vector, config.top_k + spare, config.min_score)
            if matches is not None:
                break
            snapshot = index.snapshot
        texts = self._texts([match.id for match in matches])
        return _Found(matches, compose(config, snapshot.generation, matches, texts))

    def _texts(self, ids: Iterable[str]) -> dict[str, str]:
        """The prompt text of skills. A version never changes, so it is read once."""
        cache = self._sections
        texts = {id: cache[id] for id in ids if id in cache}
        missing = [id for id in ids if id not in texts]
        if missing:
            skills = self._ledger.skills(self.namespace, missing)
            texts.update((id, section(skill)) for id, skill in skills.items())
            self._sections = texts if len(cache) > _CACHED_SECTIONS else {**cache, **texts}
        return texts


def _with_fallbacks(
    matches: Iterable[Match], withheld: Mapping[str, str | None]
) -> Iterator[Match]:
    """The matches, and behind each that is withheld the version that it replaced."""
    for match in matches:
        yield match
        fallback = withheld.get(match.id)
        if fallback is not None:
            yield Match(fallback, match.score)


def open_retriever(ledger: Ledger, config: MetaClawConfig) -> SkillRetriever:
    """The retriever of the configured namespace, on the configured model and index."""

    def index(embedder: Embedder) -> SkillIndex:
        return open_index(ledger, embedder, config.namespace, config.home, config.chroma_url)

    return SkillRetriever(
        ledger,
        lambda: load_embedder(config.retrieval.embedder),
        index,
        config.retrieval,
        config.namespace,
    )


class _Turn:
    """A lock that is waited for at most `patience` seconds from when its holder took it.

    So a holder that hangs costs the runs of one moment their patience, and later ones nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0

    @contextmanager
    def held(self, patience: float, state: str) -> Iterator[None]:
        """Hold it; StoreError when it cannot be had in time. A negative patience has no end."""
        left = patience
        if patience >= 0 and self._lock.locked():
            left = max(0.0, patience - (time.monotonic() - self._since))
        if not self._lock.acquire(timeout=left):
            raise StoreError(f"the skill index {state}; try again soon")
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._lock.release()


def _not_loaded(task: str) -> Vector:
    raise RuntimeError("the embedding model is loaded before it is used")
