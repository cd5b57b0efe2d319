"""One model that brings skills along: for people who want no process-wide hook.

`metaclaw_model(model)` is a copy of the model whose class adds the model boundary's two steps.
Inside a graph wrapped with `with_metaclaw(graph, hook=False)` it uses that run's skills; anywhere
else each call is a run, and so a trajectory, of its own.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.runtime import Runtime, runtime_for
from metaclaw_langgraph.wrapping.boundary import aadd_skills, add_skills
from metaclaw_langgraph.wrapping.handler import RunHandler, run_of, with_handler, without_tokens
from metaclaw_langgraph.wrapping.run import Run
from metaclaw_langgraph.wrapping.task import task_of_messages

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig

__all__ = ["metaclaw_model"]

M = TypeVar("M", bound=BaseChatModel)


def metaclaw_model(model: M, config: MetaClawConfig | None = None, **settings: Any) -> M:
    """A copy of the chat model that injects skills into its own calls and records them."""
    given: object = model
    if not isinstance(given, BaseChatModel):
        raise ConfigError(
            f"metaclaw_model takes a LangChain chat model, not {type(given).__name__}; "
            "wrap the model before bind_tools or with_structured_output"
        )
    return skilled(model, runtime_for(config, **settings))


def skilled(model: M, runtime: Runtime) -> M:
    """The same, with the runtime given; a model that is skilled already stays as it is."""
    if issubclass(type(model), _SkilledModel):
        return model
    clone = copy.copy(model)
    # pydantic's own __setattr__ would take this for a field
    object.__setattr__(clone, "__class__", _skilled_class(type(model), runtime))
    return clone


class _SkilledModel:
    """Overrides the entry points of a chat model's class."""

    metaclaw: ClassVar[Runtime]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        messages, run, config = self._prepare(input, config)
        return super().invoke(add_skills(run, messages), config, **kwargs)  # type: ignore[misc]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        messages, run, config = self._prepare(input, config)
        messages = await aadd_skills(run, messages)
        return await super().ainvoke(messages, config, **kwargs)  # type: ignore[misc]

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        messages, run, config = self._prepare(input, config)
        messages = add_skills(run, messages)
        with closing(super().stream(messages, config, **kwargs)) as chunks:  # type: ignore[misc]
            for chunk in chunks:
                yield without_tokens(chunk)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        messages, run, config = self._prepare(input, config)
        messages = await aadd_skills(run, messages)
        async with aclosing(super().astream(messages, config, **kwargs)) as chunks:  # type: ignore[misc]
            async for chunk in chunks:
                yield without_tokens(chunk)

    def _prepare(
        self, input: Any, config: RunnableConfig | None
    ) -> tuple[list[BaseMessage], Run, RunnableConfig | None]:
        messages: list[BaseMessage] = self._convert_input(input).to_messages()  # type: ignore[attr-defined]
        run = run_of(config)
        if run is None:
            run = self.metaclaw.new_run()
            run.task = task_of_messages(messages)
            config = with_handler(ensure_config(config), RunHandler(run))
        return messages, run, config


@functools.lru_cache(maxsize=256)
def _skilled_class(base: type[BaseChatModel], runtime: Runtime) -> type[BaseChatModel]:
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__annotations__": {"metaclaw": ClassVar[Any]},
        "metaclaw": runtime,
    }
    metaclass: Any = type(base)
    made: type[BaseChatModel] = metaclass(base.__name__, (_SkilledModel, base), body)
    return made
