"""What every vector store must do, run on each of them; and what an index does with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills import chroma
from metaclaw_langgraph.skills.embedding import Vector
from metaclaw_langgraph.skills.index import open_index
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.stores import MemoryStore, VectorStore
from tests.skills.conftest import NAMESPACE, WordEmbedder, put, skill

DIM = 8
Make = Callable[[], VectorStore]


@pytest.fixture(scope="module", params=["memory", "chroma"])
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    if request.param == "memory":
        yield lambda: MemoryStore(DIM)
        return
    client = chroma.open_folder(tmp_path_factory.mktemp("home"))
    assert client is not None
    yield lambda: client.store(f"test-{uuid4()}")
    client.close()


def vectors(seeds: list[int]) -> Vector:
    rows = np.stack([np.random.default_rng(seed).normal(size=DIM) for seed in seeds])
    normal: Vector = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return normal


STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 99), min_size=1, max_size=4),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=25)
@given(STEPS)
def test_a_store_is_a_dictionary_with_a_nearest_first_search(
    make: Make, steps: list[tuple[bool, dict[str, int]]]
) -> None:
    store, rows = make(), dict[str, int]()
    for is_upsert, items in steps:
        if is_upsert:
            store.upsert(list(items), vectors(list(items.values())))
            rows |= items
        else:
            store.delete(list(items))
            rows = {id: seed for id, seed in rows.items() if id not in items}
    assert store.ids() == set(rows)
    query = vectors([1000])[0]
    found = store.query(query, 50)
    assert {match.id for match in found} == set(rows)
    for match in found:
        assert match.score == pytest.approx(vectors([rows[match.id]])[0] @ query, abs=1e-4)
    scores = [round(match.score, 5) for match in found]
    assert scores == sorted(scores, reverse=True)
    assert store.query(query, 2) == found[:2] or len({*scores[:3]}) < 3


def test_a_search_returns_no_more_than_asked_for(make: Make) -> None:
    store = make()
    store.upsert([f"r{n}" for n in range(3000)], vectors(list(range(3000))))
    assert len(store.query(vectors([5])[0], 20)) == 20
    assert store.query(vectors([5])[0], 20)[0].id == "r5"
    store.delete([f"r{n}" for n in range(2990)])
    assert store.ids() == {f"r{n}" for n in range(2990, 3000)}
    assert len(store.query(vectors([5])[0], 20)) == 10


def test_a_snapshot_whose_rows_may_be_gone_is_given_up(
    tmp_path: Path, ledger: Ledger, embedder: WordEmbedder, library: SkillLibrary
) -> None:
    put(library, skill("a"), skill("b"))
    index = open_index(ledger, embedder, NAMESPACE, tmp_path)
    first = index.sync(1)
    task = embedder.embed_query("how to")
    second = index.sync(library.retire(["a"]))
    found = index.search(first, task, 5, -1)
    assert found is not None
    assert {match.id for match in found} == {"a@1", "b@1"}
    index.sync(put(library, skill("c")))
    assert index.search(first, task, 5, -1) is None
    assert index.search(second, task, 5, -1) is not None
    index.close()


def test_two_indexes_of_one_process_share_the_folder(
    tmp_path: Path, ledger: Ledger, embedder: WordEmbedder, library: SkillLibrary
) -> None:
    put(library, skill("a"))
    one = open_index(ledger, embedder, NAMESPACE, tmp_path)
    two = open_index(ledger, embedder, NAMESPACE, tmp_path)
    assert one.sync(1) == two.sync(1)
    assert one.kind == two.kind == "chroma"
    one.close()
    found = two.search(two.snapshot, embedder.embed_query("how to a"), 5, -1)
    assert found is not None
    assert [match.id for match in found] == ["a@1"]
    assert chroma.remove_folder(tmp_path) is False
    two.close()
    assert chroma.remove_folder(tmp_path) is True
