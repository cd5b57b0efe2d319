"""A home with a real ledger, a real Chroma and, where the model does not matter, toy vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from metaclaw_langgraph.config import RetrievalConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import Embedder, MiniLMInt8, Vector
from metaclaw_langgraph.skills.index import open_index
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from metaclaw_langgraph.types import Skill

NAMESPACE = "shop"


class WordEmbedder:
    """Each word has a fixed random direction; a text is their sum. Quick, and alike is alike."""

    dim = 32

    def __init__(self, id: str = "words-1", salt: str = "") -> None:
        self.id = id
        self.salt = salt
        self.queries: list[str] = []
        self.documents: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        self.documents += texts
        return np.stack([self._embed(text) for text in texts])

    def embed_query(self, text: str) -> Vector:
        self.queries.append(text)
        return self._embed(text)

    def _embed(self, text: str) -> Vector:
        words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        total = sum((self._word(word) for word in words), np.zeros(self.dim)) + 1e-6
        vector: Vector = (total / np.linalg.norm(total)).astype(np.float32)
        return vector

    def _word(self, word: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        seed = int.from_bytes(hashlib.sha256(f"{self.salt}{word}".encode()).digest()[:8])
        return np.random.default_rng(seed).normal(size=self.dim)


Retrieve = Callable[..., SkillRetriever]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.close()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture(scope="session")
def minilm() -> MiniLMInt8:
    return MiniLMInt8()


@pytest.fixture
def library(ledger: Ledger, embedder: WordEmbedder) -> SkillLibrary:
    return SkillLibrary(ledger, lambda: embedder, NAMESPACE, redactor=Redactor())


@pytest.fixture
def retriever(tmp_path: Path, ledger: Ledger, embedder: WordEmbedder) -> Iterator[Retrieve]:
    """Make retrievers on the home; all are closed at the end."""
    made: list[SkillRetriever] = []

    def make(
        model: Embedder = embedder,
        *,
        namespace: str = NAMESPACE,
        url: str | None = None,
        **config: object,
    ) -> SkillRetriever:
        settings = RetrievalConfig.model_validate({"min_score": 0.2, "deadline": 5.0, **config})
        made.append(
            SkillRetriever(
                ledger,
                lambda: model,
                lambda chosen: open_index(ledger, chosen, namespace, tmp_path, url),
                settings,
                namespace,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def skill(name: str, description: str = "", body: str = "Do it well.") -> Skill:
    return Skill(name, description or f"How to {name.replace('-', ' ')}", body)


def put(library: SkillLibrary, *skills: Skill) -> int:
    return library.put(skills, reason="test", source="test").generation


def write_skill(folder: Path, name: str, text: str | None = None, **fields: str) -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    description = fields.get("description", f"How to {name}")
    body = fields.get("body", "Do it well.")
    path.write_text(text or f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n")
    return path
