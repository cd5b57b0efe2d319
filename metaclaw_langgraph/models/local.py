"""`LocalChatModel`: a LangChain chat model that runs in this process.

With no arguments it is the embedded model, so that everything works from a bare installation.
Each answer carries its exact token ids and log-probabilities for training: see `record_tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel, agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.models.embedded import MODEL_NAME, embedded_model_dir, require
from metaclaw_langgraph.models.engine import (
    DType,
    Engine,
    SampledToken,
    Sampling,
    load_engine,
)
from metaclaw_langgraph.models.text import TextStream, template_messages
from metaclaw_langgraph.types import TOKENS_KEY

__all__ = ["LocalChatModel"]

FinishReason: TypeAlias = Literal["stop", "length"]


@dataclass(slots=True)
class _Answer:
    """One answer while it is made."""

    prompt: list[int]
    text: TextStream
    tokens: list[SampledToken] = field(default_factory=list)
    finish: FinishReason = "length"


class LocalChatModel(BaseChatModel):
    """A chat model on transformers and torch, loaded at its first call.

    Instances with the same `model_dir`, `dtype` and `device` share the weights.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model_dir: Path | None = None
    """A directory that `AutoModelForCausalLM.from_pretrained` reads; None: the embedded model."""
    home: Path | None = None
    """Where the embedded model is kept; None: the configured MetaClaw home."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Also accepted as `max_tokens`, LangChain's name for it."""
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """0 takes the likeliest token each time."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int | None = None
    """Makes each call with temperature > 0 repeatable."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these; a call's own `stop` replaces them."""
    dtype: DType = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    device: str = "auto"
    """auto: a CUDA GPU if there is one, else the CPU."""
    streaming: bool = False
    """Whether `invoke` also goes token by token through the callbacks."""
    record_tokens: bool = True
    """Put `{"prompt", "completion", "logprobs"}` into `response_metadata["metaclaw_tokens"]`.

    `completion` holds every sampled token id, the end token and the tokens of a stop word
    included; `logprobs` their log-probabilities under the model at temperature 1 and without
    top-p, whatever the sampling settings were.
    """

    _engine: Engine | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _accept_max_tokens(cls, values: Any) -> Any:
        return _renamed(values) if isinstance(values, dict) else values

    @property
    def model_name(self) -> str:
        """The directory's name."""
        return MODEL_NAME if self.model_dir is None else self.model_dir.name

    @property
    def _llm_type(self) -> str:
        return "metaclaw-local"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        names = ("max_new_tokens", "temperature", "top_p", "seed", "stop", "dtype")
        # The directory tells apart, in a cache, two models of the same name.
        return {
            "model_name": self.model_name,
            "model_dir": str(self.model_dir or ""),
            **{name: getattr(self, name) for name in names},
        }

    def load(self) -> None:
        """Convert and load the model now rather than at the first call."""
        self._loaded()

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Refused: the embedded model was not trained to call tools."""
        raise NotImplementedError(
            "LocalChatModel cannot call tools: its chat template has no place for them; "
            "use it in graphs without tools, or use another chat model there"
        )

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own tokens of a text."""
        return list(self._loaded().tokenizer(text, add_special_tokens=False)["input_ids"])

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or list(self.stop) or None, **kwargs)
        params["ls_provider"] = "metaclaw"
        params["ls_max_tokens"] = kwargs.get("max_new_tokens", self.max_new_tokens)
        return params

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer = self._begin(messages, stop)
        text = "".join(self._run(answer, self._sampling(kwargs)))
        metadata = self._metadata(answer)
        message = AIMessage(text, response_metadata=metadata, usage_metadata=_usage(answer))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._begin(messages, stop)
        for text in self._run(answer, self._sampling(kwargs)):
            yield _reported(AIMessageChunk(content=text), run_manager)
        last = AIMessageChunk(
            content="",
            response_metadata=self._metadata(answer),
            usage_metadata=_usage(answer),
            chunk_position="last",
        )
        yield _reported(last, run_manager)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        # Token by token, so that a cancelled call stops working at the next token.
        return await agenerate_from_stream(self._astream(messages, stop, None, **kwargs))

    def _loaded(self) -> Engine:
        if self._engine is None:
            # Before the conversion: without these the converted model is of no use.
            require("torch", "transformers")
            folder = self.model_dir or embedded_model_dir(self.home or _configured_home())
            self._engine = load_engine(folder, self.dtype, self.device)
        return self._engine

    def _begin(self, messages: Sequence[BaseMessage], stop: Sequence[str] | None) -> _Answer:
        engine = self._loaded()
        prompt = engine.prompt_ids(template_messages(messages))
        words = self.stop if stop is None else stop
        return _Answer(prompt, TextStream(engine.tokenizer.backend_tokenizer, words))

    def _run(self, answer: _Answer, sampling: Sampling) -> Iterator[str]:
        """Sample the answer, giving out its text piece by piece."""
        engine = self._loaded()
        for token in engine.sample(answer.prompt, sampling):
            answer.tokens.append(token)
            piece = "" if token.id in engine.end_ids else answer.text.push(token.id)
            if token.id in engine.end_ids or answer.text.stopped:
                answer.finish = "stop"
            if piece:
                yield piece
            if answer.finish == "stop":
                break
        if rest := answer.text.finish():
            yield rest

    def _sampling(self, kwargs: dict[str, Any]) -> Sampling:
        """The settings of one call: the model's own, or those given with the call."""
        given = _renamed(kwargs)
        names = ("max_new_tokens", "temperature", "top_p", "seed")
        if unknown := sorted(given.keys() - set(names)):
            raise ConfigError(
                f"unknown option {', '.join(unknown)} in a call of LocalChatModel; "
                f"allowed: {', '.join(names)}, stop"
            )
        return Sampling(**{name: given.get(name, getattr(self, name)) for name in names})

    def _metadata(self, answer: _Answer) -> dict[str, Any]:
        metadata: dict[str, Any] = {"model_name": self.model_name, "finish_reason": answer.finish}
        if self.record_tokens:
            metadata[TOKENS_KEY] = {
                "prompt": answer.prompt,
                "completion": [token.id for token in answer.tokens],
                "logprobs": [token.logprob for token in answer.tokens],
            }
        return metadata


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """The options with LangChain's standard name for the token limit replaced by ours."""
    return {("max_new_tokens" if key == "max_tokens" else key): options[key] for key in options}


def _configured_home() -> Path:
    from metaclaw_langgraph.config import MetaClawConfig

    return MetaClawConfig.load().home


def _usage(answer: _Answer) -> UsageMetadata:
    read, written = len(answer.prompt), len(answer.tokens)
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _reported(
    message: AIMessageChunk, run_manager: CallbackManagerForLLMRun | None
) -> ChatGenerationChunk:
    # LangChain reports tokens itself and then passes no manager; direct callers may pass one.
    chunk = ChatGenerationChunk(message=message)
    if run_manager:
        run_manager.on_llm_new_token(str(message.content), chunk=chunk)
    return chunk
