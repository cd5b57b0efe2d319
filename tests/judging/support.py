"""Chat models that stand in for a paid API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field, PrivateAttr

Said = str | AIMessage | Exception


class ProseModel(BaseChatModel):
    """Gives out its answers one by one, whoever asks first; has no structured output."""

    answers: list[Any]
    prompts: list[list[BaseMessage]] = Field(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with self._lock:
            self.prompts.append(messages)
            said = self.answers[(len(self.prompts) - 1) % len(self.answers)]
        if isinstance(said, Exception):
            raise said
        message = said if isinstance(said, AIMessage) else AIMessage(said)
        return ChatResult(generations=[ChatGeneration(message=message)])


class ToolModel(ProseModel):
    """The same with tool calling, and so with LangChain's own structured output."""

    tools: list[Any] = Field(default_factory=list)

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        self.tools.extend(tools)
        return self.bind()


class Refusal(Exception):
    """What a client raises when the server answers 400."""

    status_code = 400


class RefusingModel(ProseModel):
    """Takes tools, and its server then refuses them."""

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any], **kwargs: Any
    ) -> Runnable[Any, AIMessage]:
        refusing = ProseModel(answers=[Refusal("tools are not supported")])
        return refusing.bind()


def votes(*outcomes: int, steps: Sequence[int] = ()) -> list[Said]:
    """Answers in plain JSON."""
    return [vote(outcome, steps) for outcome in outcomes]


def vote(outcome: int, steps: Sequence[int] = (), reason: str | None = None) -> str:
    scored = [{"step": number, "score": score} for number, score in enumerate(steps, 1)]
    said = reason or f"because {outcome}"
    return json.dumps({"reason": said, "steps": scored, "outcome": outcome})


def called(name: str, **args: Any) -> AIMessage:
    """An answer through a tool call."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "c"}])
