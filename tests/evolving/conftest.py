"""A home with a real ledger, a real Chroma and the real embedder, or a quick one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph._timed import Timed
from metaclaw_langgraph.config import RetrievalConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import Embedder, MiniLMInt8
from metaclaw_langgraph.skills.index import open_index
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from tests.evolving.support import NAMESPACE, Home
from tests.skills.conftest import WordEmbedder
from tests.wrapping.conftest import _no_settings_from_outside, home, wrap

__all__ = ["_no_settings_from_outside", "home", "wrap"]

MakeHome = Callable[..., Home]


@pytest.fixture(scope="session")
def minilm() -> MiniLMInt8:
    return MiniLMInt8()


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[MakeHome]:
    """Make homes on the test's folder; all are closed at the end."""
    made: list[Home] = []

    def make(embedder: Embedder, **retrieval: Any) -> Home:
        folder = tmp_path / f"home-{len(made)}"
        folder.mkdir()
        ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
        config = RetrievalConfig.model_validate({"deadline": 5.0, **retrieval})
        retriever = SkillRetriever(
            ledger,
            lambda: embedder,
            lambda chosen: open_index(ledger, chosen, NAMESPACE, folder),
            config,
            NAMESPACE,
        )
        search = retriever.search()
        library = SkillLibrary(
            ledger, lambda: embedder, NAMESPACE, redactor=Redactor(), index=search.index
        )
        made.append(Home(ledger, library, retriever, Timed()))
        return made[-1]

    yield make
    for one in made:
        one.retriever.close()
        one.ledger.close()


@pytest.fixture
def shop(make_home: MakeHome) -> Home:
    """A home with a quick embedder: alike is what has the same words."""
    return make_home(WordEmbedder(), min_score=0.2)


@pytest.fixture
def real_shop(make_home: MakeHome, minilm: MiniLMInt8) -> Home:
    """A home with the embedder that users have."""
    return make_home(minilm)
