"""The model boundary: where skills join the prompt.

Every chat model call in a run passes `BaseChatModel`, whatever built it: closures, chains,
structured output, retries, models made inside a node, tools that call a model, nested agents. The
methods are replaced once per process; a call outside a wrapped run passes straight through. Only
the messages that go to the model change: the graph's state, and so what is checkpointed, does not.

People who do not want a process-wide hook use `metaclaw_model` or `MetaClawMiddleware`, which
put the same two steps on one model only.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, closing
from typing import Any, TypeAlias

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from metaclaw_langgraph.wrapping.handler import run_of, without_tokens
from metaclaw_langgraph.wrapping.run import Run

__all__ = ["Enter", "append_block", "hooked", "install_hook"]

MARKER = "<metaclaw_skills "
"""Begins the skills block; a prompt that has it is not given another one."""

Enter: TypeAlias = Callable[
    [BaseChatModel, RunnableConfig | None], tuple[Run | None, RunnableConfig | None]
]
"""Says to which run a call belongs, and with which config it goes on."""

_MARK = "__metaclaw__"
_install_lock = threading.Lock()


def add_skills(run: Run, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages with the run's skills; unchanged when there are none or anything fails."""
    try:
        return append_block(messages, run.skills(messages))
    except Exception as error:
        run.host.incident("boundary", "inject", error)
        return list(messages)


async def aadd_skills(run: Run, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """As `add_skills`, for async callers."""
    try:
        return append_block(messages, await run.askills(messages))
    except Exception as error:
        run.host.incident("boundary", "inject", error)
        return list(messages)


def append_block(messages: Sequence[BaseMessage], block: str) -> list[BaseMessage]:
    """Put the block below the graph's own system prompt, in new message objects."""
    result = list(messages)
    if not block or any(_has_block(m) for m in result):
        return result
    for at, message in enumerate(result):
        if isinstance(message, SystemMessage):
            result[at] = message.model_copy(update={"content": _joined(message.content, block)})
            return result
    return [SystemMessage(block), *result]


def _joined(content: str | list[Any], block: str) -> str | list[Any]:
    if isinstance(content, str):
        return f"{content}\n\n{block}" if content else block
    return [*content, {"type": "text", "text": block}]


def _has_block(message: BaseMessage) -> bool:
    return isinstance(message, SystemMessage) and MARKER in str(message.content)


def install_hook() -> None:
    """Replace the entry points of `BaseChatModel`, once per process."""
    with _install_lock:
        if not hasattr(BaseChatModel.generate, _MARK):
            for name, method in hooked(BaseChatModel, _surrounding).items():
                setattr(BaseChatModel, name, method)


def hooked(cls: type, enter: Enter) -> dict[str, Callable[..., Any]]:
    """The entry points of a chat model's class, with skills for the runs that `enter` finds."""
    methods = {
        name: wrap(getattr(cls, name), enter)
        for name, wrap in _WRAPPERS.items()
        if hasattr(cls, name)
    }
    for method in methods.values():
        setattr(method, _MARK, True)
    return methods


def _surrounding(
    model: BaseChatModel, config: RunnableConfig | None
) -> tuple[Run | None, RunnableConfig | None]:
    return run_of(config), config


def _messages(model: BaseChatModel, value: Any) -> list[BaseMessage]:
    return model._convert_input(value).to_messages()


def _generate(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate(
        self: BaseChatModel,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Any = None,
        **kwargs: Any,
    ) -> Any:
        run, config = enter(self, {"callbacks": callbacks})
        if run is not None:
            messages = [add_skills(run, each) for each in messages]
        return original(self, messages, stop, (config or {}).get("callbacks"), **kwargs)

    return generate


def _agenerate(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    async def agenerate(
        self: BaseChatModel,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Any = None,
        **kwargs: Any,
    ) -> Any:
        run, config = enter(self, {"callbacks": callbacks})
        if run is not None:
            messages = [await aadd_skills(run, each) for each in messages]
        return await original(self, messages, stop, (config or {}).get("callbacks"), **kwargs)

    return agenerate


def _stream(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    def stream(
        self: BaseChatModel, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        run, config = enter(self, config)
        if run is None:
            yield from original(self, input, config, **kwargs)
            return
        input = add_skills(run, _messages(self, input))
        with closing(original(self, input, config, **kwargs)) as chunks:
            for chunk in chunks:
                yield without_tokens(chunk)

    return stream


def _astream(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    async def astream(
        self: BaseChatModel, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        run, config = enter(self, config)
        if run is not None:
            input = await aadd_skills(run, _messages(self, input))
        async with aclosing(original(self, input, config, **kwargs)) as chunks:
            async for chunk in chunks:
                yield chunk if run is None else without_tokens(chunk)

    return astream


def _stream_v3(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    def stream_v3(
        self: BaseChatModel, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        run, config = enter(self, config)
        if run is not None:
            input = add_skills(run, _messages(self, input))
        return original(self, input, config, **kwargs)

    return stream_v3


def _astream_v3(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(original)
    async def astream_v3(
        self: BaseChatModel, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        run, config = enter(self, config)
        if run is not None:
            input = await aadd_skills(run, _messages(self, input))
        return await original(self, input, config, **kwargs)

    return astream_v3


_WRAPPERS: dict[str, Callable[[Callable[..., Any], Enter], Callable[..., Any]]] = {
    "generate": _generate,
    "agenerate": _agenerate,
    "stream": _stream,
    "astream": _astream,
    "_chat_model_stream_v3": _stream_v3,
    "_achat_model_stream_v3": _astream_v3,
}
