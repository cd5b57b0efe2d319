"""A loaded model and its sampling loop, on transformers and torch.

The loop is our own because it must give out each token with its log-probability as it is
sampled, which is what training needs later: text that is tokenised again does not line up.

Steps of one model run one at a time. The lock is held for a step, not for an answer: a stream
that its reader leaves half-read must not block the next caller.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.exceptions import ContextOverflowError

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.models.embedded import require
from metaclaw_langgraph.models.text import without_markers

if TYPE_CHECKING:
    import torch

__all__ = ["DType", "Engine", "SampledToken", "Sampling", "load_engine"]

DType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]

_MAX_THREADS = 4
_engines: dict[tuple[Path, str, str], Engine] = {}
_loading = threading.Lock()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens. Temperature 0 takes the likeliest one."""

    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int | None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens: {self.max_new_tokens!r}; allowed: 1 or more")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature: {self.temperature!r}; allowed: 0 or more")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: {self.top_p!r}; allowed: above 0, at most 1")


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token and its log-probability under the model at temperature 1, before top-p."""

    id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Engine:
    """Weights and tokenizer, shared by every chat model of this process with the same directory."""

    model: Any
    tokenizer: Any
    end_ids: frozenset[int]
    context: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the assistant's answer begins."""
        special = [str(token) for token in self.tokenizer.all_special_tokens]
        harmless = [{**m, "content": without_markers(m["content"], special)} for m in messages]
        encoded = self.tokenizer.apply_chat_template(
            harmless, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoded["input_ids"])

    def sample(self, prompt: Sequence[int], sampling: Sampling) -> Iterator[SampledToken]:
        """Sample an answer token by token; an end token, if one comes, is the last."""
        import torch
        from transformers import DynamicCache

        room = self._room(len(prompt))
        cache = DynamicCache(config=self.model.config)
        generator = _generator(torch.device(self.model.device), sampling.seed)
        ids = torch.tensor([list(prompt)], device=self.model.device)
        for _ in range(min(room, sampling.max_new_tokens)):
            token = self._step(ids, cache, sampling, generator)
            yield token
            if token.id in self.end_ids:
                return
            ids = torch.tensor([[token.id]], device=self.model.device)

    def _room(self, used: int) -> int:
        if used >= self.context:
            raise ContextOverflowError(
                f"the prompt has {used} tokens and the model reads {self.context - 1} at most; "
                "shorten the messages"
            )
        return self.context - used

    def _step(
        self, ids: torch.Tensor, cache: Any, sampling: Sampling, generator: torch.Generator
    ) -> SampledToken:
        import torch

        with self.lock, torch.inference_mode(), _few_threads():
            output = self.model(
                input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            logprobs = torch.log_softmax(output.logits[0, -1].float(), dim=-1)
            chosen = _choose(logprobs, sampling, generator)
            return SampledToken(chosen, float(logprobs[chosen]))


def load_engine(model_dir: Path, dtype: DType, device: str) -> Engine:
    """The engine of this directory, loaded at the first call."""
    key = (model_dir.resolve(), dtype, device)
    with _loading:
        if key not in _engines:
            _engines[key] = _load(model_dir, dtype, device)
        return _engines[key]


def _load(model_dir: Path, dtype: DType, device: str) -> Engine:
    require("torch", "transformers")
    for name in ("config.json", "tokenizer.json"):
        if not (model_dir / name).is_file():
            raise ConfigError(
                f"model_dir: {model_dir} has no {name}; "
                "give the directory of a saved transformers model and its tokenizer"
            )
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = _device(device)
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    if not tokenizer.chat_template:
        raise ConfigError(f"model_dir: the tokenizer in {model_dir} has no chat template")
    with _no_progress_bar():
        model: Any = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=_torch_dtype(dtype, place), local_files_only=True
        )
    model.to(place).eval()
    return Engine(model, tokenizer, _end_ids(model, tokenizer), _context(model))


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers import utils

    logging: Any = utils.logging  # its functions are not typed
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _torch_dtype(name: DType, device: torch.device) -> torch.dtype:
    import torch

    if name == "auto":
        # On a CPU without bf16 instructions, bf16 reads a prompt a hundred times slower.
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, tokenizer.eos_token_id) if i is not None)


def _context(model: Any) -> int:
    return int(model.config.max_position_embeddings)


def _generator(device: torch.device, seed: int | None) -> torch.Generator:
    """A generator of this answer's own, so that the process's random state is left alone."""
    import torch

    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def _choose(logprobs: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    import torch

    if sampling.temperature == 0:
        return int(logprobs.argmax())
    probabilities = torch.softmax(logprobs / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        probabilities = _nucleus(probabilities, sampling.top_p)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of likeliest tokens whose probabilities reach `top_p`."""
    ordered, order = probabilities.sort(descending=True)
    beyond = ordered.cumsum(-1) - ordered >= top_p
    return probabilities.index_fill(0, order[beyond], 0.0)


@contextmanager
def _few_threads() -> Iterator[None]:
    """Use at most half of torch's threads for a step, unless OMP_NUM_THREADS says how many.

    Torch's threads spin while they wait for one another: with all cores in use on a busy machine
    an answer takes several times as long. Torch's setting is put back after each step, since
    other parts of the process use it too.
    """
    import torch

    before = torch.get_num_threads()
    wanted = min(_MAX_THREADS, max(1, before // 2))
    if "OMP_NUM_THREADS" in os.environ or before <= wanted:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)
