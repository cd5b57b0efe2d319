"""One model that brings skills along: for people who want no process-wide hook.

`metaclaw_model(model)` is a copy of the model whose class adds the model boundary's two steps.
Inside a graph wrapped with `with_metaclaw(graph, hook=False)` it uses that run's skills; anywhere
else each call is a run, and so a trajectory, of its own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.runtime import Runtime, runtime_for
from metaclaw_langgraph.wrapping.boundary import hooked
from metaclaw_langgraph.wrapping.handler import RunHandler, run_of, with_handler
from metaclaw_langgraph.wrapping.run import Run

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
    """The same, with the runtime given; a model that is skilled already stays as it is.

    Never raises: if the copy cannot be made, the model itself answers, without skills.
    """
    if issubclass(type(model), _Skilled):
        return model
    try:
        clone = copy.copy(model)
        # pydantic's own __setattr__ would take this for a field
        object.__setattr__(clone, "__class__", _skilled_class(type(model), runtime))
    except Exception as error:
        runtime.incident("boundary", "model", error)
        return model
    return clone


class _Skilled:
    """Marks the classes made here."""

    metaclaw: ClassVar[Runtime]


def _skilled_class(base: type[BaseChatModel], runtime: Runtime) -> type[BaseChatModel]:
    made: type[BaseChatModel] | None = runtime.skilled_classes.get(base)
    if made is None:
        body = {
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__annotations__": {"metaclaw": ClassVar[Any]},
            "metaclaw": runtime,
            **hooked(base, _enter),
        }
        metaclass: Any = type(base)
        made = runtime.skilled_classes[base] = metaclass(base.__name__, (_Skilled, base), body)
    return made


def _enter(
    model: BaseChatModel, config: RunnableConfig | None
) -> tuple[Run | None, RunnableConfig | None]:
    """The run around the call, or a new one for the call alone."""
    run = run_of(config)
    if run is not None:
        return run, config
    runtime: Runtime = type(model).metaclaw  # type: ignore[attr-defined]
    try:
        run = runtime.new_run()
        return run, with_handler(ensure_config(config), RunHandler(run))
    except Exception as error:
        runtime.incident("capture", "start", error)
        return None, config
