"""Capture: the callback handler that watches one run of a wrapped graph.

It is carried in the config's callbacks, never in a context variable of our own, because streams
that are read in turns would mix those up. It is synchronous and inline: the cheapest kind for
both sync and async graphs. What it sees is kept by reference; see `Run`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager, Callbacks
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent
from langgraph.errors import GraphBubbleUp

from metaclaw_langgraph.errors import error_text
from metaclaw_langgraph.types import TOKENS_KEY
from metaclaw_langgraph.wrapping.run import OpenSpan, Run

__all__ = ["RunHandler", "run_in_callbacks", "run_of", "with_handler", "without_tokens"]

F = TypeVar("F", bound=Callable[..., None])
M = TypeVar("M", bound=BaseMessage)

_CANCELLED = (GeneratorExit, asyncio.CancelledError, KeyboardInterrupt, SystemExit)


def guarded(method: F) -> F:
    """A bug in capture is counted and costs the record, never the run."""

    @functools.wraps(method)
    def call(self: RunHandler, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.run.host.incident("capture", method.__name__, error)

    return cast(F, call)


class RunHandler(GraphCallbackHandler):
    """Feeds one Run. The first event it sees is the run's root; its end closes the run."""

    run_inline = True
    raise_error = False

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def ignore_retriever(self) -> bool:
        return True

    @property
    def ignore_retry(self) -> bool:
        return True

    @property
    def ignore_custom_event(self) -> bool:
        return True

    @guarded
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        span = self._open("chain", run_id, parent_run_id, name or _name(serialized, "chain"))
        span.input = _snapshot(inputs)
        if self.run.root_id == run_id:
            self.run.thread_id = _text_or_none((metadata or {}).get("thread_id"))
            self.run.input = span.input
            self.run.task = self._task(inputs)

    @guarded
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        output = _snapshot(outputs)
        self._close(run_id, output=output)
        if run_id == self.run.root_id:
            self.run.output = output
            self.run.finish("interrupted" if self.run.interrupted else "ok")

    @guarded
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._close(run_id, error=error)
        if run_id == self.run.root_id:
            self._finish_with(error)

    @guarded
    def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        span = self._open("model", run_id, parent_run_id, name or _name(serialized, "model"))
        span.input = list(messages[0]) if messages else []
        span.model = _model_name(metadata, kwargs.get("invocation_params"))
        if self.run.root_id == run_id:
            self.run.input = span.input

    @guarded
    def on_llm_start(
        self,
        serialized: dict[str, Any] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        messages: list[BaseMessage] = [HumanMessage(prompt) for prompt in prompts]
        self.on_chat_model_start(serialized, [messages], run_id=run_id, **kwargs)

    @guarded
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        output, tokens = _response(response)
        self._close(run_id, output=output, tokens=tokens)
        if run_id == self.run.root_id:
            self.run.output = output
            self.run.finish("ok")

    @guarded
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._close(run_id, error=error)
        if run_id == self.run.root_id:
            self._finish_with(error)

    @guarded
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        span = self._open("tool", run_id, parent_run_id, name or _name(serialized, "tool"))
        span.input = inputs if inputs is not None else input_str
        span.call_id = tool_call_id

    @guarded
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._close(run_id, output=output)

    @guarded
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._close(run_id, error=error)

    @guarded
    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        if event.run_id == self.run.root_id:
            self.run.interrupted = True

    def _task(self, inputs: Any) -> str | None:
        try:
            task = self.run.find_task(inputs)
        except Exception as error:
            self.run.host.incident("task", "failed", error)
            return None
        if task is None or isinstance(task, str):
            return task
        self.run.host.incident("task", "no text", f"task= gave a {type(task).__name__}")
        return None

    def _open(self, kind: Any, run_id: UUID, parent: UUID | None, name: str) -> OpenSpan:
        if self.run.root_id is None:
            self.run.root_id = run_id
        span = OpenSpan(run_id, parent, kind, name, time.time_ns())
        self.run.spans[run_id] = span
        return span

    def _close(
        self,
        run_id: UUID,
        *,
        output: Any = None,
        error: BaseException | None = None,
        tokens: dict[str, Any] | None = None,
    ) -> None:
        span = self.run.spans.get(run_id)
        if span is None:
            return
        span.ended_ns = time.time_ns()
        span.output, span.tokens = output, tokens
        span.error = None if error is None else error_text(error)

    def _finish_with(self, error: BaseException) -> None:
        if isinstance(error, _CANCELLED):
            self.run.finish("cancelled")
        elif isinstance(error, GraphBubbleUp):
            self.run.finish("interrupted")
        else:
            self.run.finish("failed", error_text(error))


def run_of(config: RunnableConfig | None) -> Run | None:
    """The run that a call belongs to: by its own callbacks, else by the surrounding call's.

    A call that brings callbacks of its own replaces the inherited ones, but it is still part of
    the run, so the surrounding config is asked as well.
    """
    if config is not None and (run := run_in_callbacks(config.get("callbacks"))) is not None:
        return run
    surrounding = var_child_runnable_config.get()
    return run_in_callbacks(surrounding.get("callbacks")) if surrounding else None


def run_in_callbacks(callbacks: Callbacks) -> Run | None:
    """The run whose handler is among these callbacks."""
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks
    for handler in handlers or ():
        # A task that outlives its run is no longer part of it.
        if isinstance(handler, RunHandler) and handler.run.outcome is None:
            return handler.run
    return None


def with_handler(config: RunnableConfig | None, handler: RunHandler) -> RunnableConfig:
    """A copy of the config whose callbacks include the handler."""
    callbacks = (config or {}).get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        callbacks = callbacks.copy()
        callbacks.add_handler(handler, inherit=True)
    else:
        callbacks = [*(callbacks or ()), handler]
    return {**(config or {}), "callbacks": callbacks}


def _response(response: LLMResult) -> tuple[Any, dict[str, Any] | None]:
    generations: Sequence[Any] = response.generations[0] if response.generations else ()
    if not generations:
        return None, None
    message = getattr(generations[0], "message", None)
    if message is None:
        return generations[0].text, None
    # Popped here, so that the lists of token ids do not end up in the user's checkpoints.
    return message, message.response_metadata.pop(TOKENS_KEY, None)


def _snapshot(value: Any) -> Any:
    """A copy of the outer containers: callers go on appending to the lists they passed or got."""
    if type(value) is dict:
        return {key: list(item) if type(item) is list else item for key, item in value.items()}
    return list(value) if type(value) is list else value


def without_tokens(chunk: M) -> M:
    """A streamed chunk as the caller gets it; what the handler sees keeps its tokens."""
    if TOKENS_KEY not in chunk.response_metadata:
        return chunk
    left = {key: value for key, value in chunk.response_metadata.items() if key != TOKENS_KEY}
    return chunk.model_copy(update={"response_metadata": left})


def _name(serialized: dict[str, Any] | None, default: str) -> str:
    found = (serialized or {}).get("name") or (serialized or {}).get("id") or default
    return str(found[-1] if isinstance(found, list) else found)


def _model_name(metadata: dict[str, Any] | None, params: Any) -> str | None:
    params = params if isinstance(params, dict) else {}
    return _text_or_none(
        (metadata or {}).get("ls_model_name") or params.get("model") or params.get("model_name")
    )


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
