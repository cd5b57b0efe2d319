"""`with_metaclaw`: any LangGraph graph, with skills in and trajectories out.

The result is an instance of a subclass of the graph's own class, built from the same attributes,
so that everything that takes a graph takes it: subgraph nodes, `langgraph dev`, `isinstance`.
Only `stream` and `astream` are overridden, to add one callback handler to the config: invoke,
batch and all event streams go through these two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.graph import Graph
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.runtime import Runtime, runtime_for
from metaclaw_langgraph.wrapping.boundary import install_hook
from metaclaw_langgraph.wrapping.drawing import draw_loop
from metaclaw_langgraph.wrapping.handler import RunHandler, run_of, with_handler
from metaclaw_langgraph.wrapping.start import with_retrieval
from metaclaw_langgraph.wrapping.task import TaskFunction, task_of_input

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig
    from metaclaw_langgraph.evolving.replay import Replay
    from metaclaw_langgraph.learning.parts import EvolverLike, JudgeLike

    class WrappedGraph(Pregel[Any, Any, Any, Any]):
        """A graph with its runtime: the type that `with_metaclaw` returns."""

        metaclaw: ClassVar[Runtime]


__all__ = ["with_metaclaw"]


def with_metaclaw(
    graph: StateGraph[Any, Any, Any, Any] | Pregel[Any, Any, Any, Any],
    config: MetaClawConfig | None = None,
    *,
    task: TaskFunction | None = None,
    judge: JudgeLike | None = None,
    evolver: EvolverLike | None = None,
    replay: Replay | bool = False,
    **settings: Any,
) -> WrappedGraph:
    """Wrap a graph so that it learns from its runs; use the result as you used the graph.

    Args:
        graph: A `StateGraph` (compiled for you), a compiled graph, the agent that `create_agent`
            or deepagents returned, or an `@entrypoint`. A wrapped graph is returned as it is.
        config: Settings, if you have built them; else they are read from `metaclaw.toml`, the
            environment and `settings`.
        task: How to find the user's request in the graph's input, if the input is unusual.
        judge: Who says whether a run was good: your own check, a function of the trajectory that
            returns a bool, a reward or (reward, what was wrong); a chat model; any `Judge`; or
            several of these. `judging.model` in the settings names a chat model instead.
        evolver: The chat model that writes skills, or any `Evolver`; else `evolving.model`, else
            corrections in words become skills without a model.
        replay: True if your graph may be run again with a recorded input, without harm: it has no
            side effects. Skills are then proven by replays before they go live. Or a function of
            (trajectory, config) that does it in a safe place, and passes the config on.
        **settings: Single settings, for instance `namespace="support-agent"`.
    """
    if isinstance(graph, _Wrapped):
        _learn_with(graph, judge, evolver, replay, task)
        return graph  # type: ignore[return-value]
    if isinstance(graph, StateGraph):
        graph = graph.compile()
    if not isinstance(graph, Pregel):
        raise ConfigError(
            f"with_metaclaw takes a StateGraph, a compiled graph or an @entrypoint, "
            f"not {type(graph).__name__}; pass the graph itself"
        )
    runtime = runtime_for(config, begin=False, **settings)
    if runtime.config.hook:
        install_hook()
    cls = _wrapped_class(type(graph), runtime, task or task_of_input)
    wrapped = cls.__new__(cls)
    wrapped.__dict__.update(graph.__dict__, nodes=with_retrieval(graph.nodes))
    _learn_with(wrapped, judge, evolver, replay, task)
    return wrapped  # type: ignore[return-value]


def _learn_with(
    wrapped: _Wrapped,
    judge: JudgeLike | None,
    evolver: EvolverLike | None,
    replay: Replay | bool,
    task: TaskFunction | None,
) -> None:
    runtime = wrapped.metaclaw
    if judge is not None or evolver is not None or replay:
        runtime.learn_with(
            judge=judge, evolver=evolver, replay=_replay(wrapped, replay), find_task=task
        )
    runtime.begin_learning()


def _replay(wrapped: Pregel[Any, Any, Any, Any], given: Replay | bool) -> Replay | None:
    if given is True:
        from metaclaw_langgraph.evolving.replay import graph_replay

        return graph_replay(wrapped)
    if given and not callable(given):
        raise ConfigError(
            f"replay= takes True, or a function of (trajectory, config), not {type(given).__name__}"
        )
    return given or None


class _Wrapped(Pregel[Any, Any, Any, Any]):
    """What a wrapped graph adds to its own class. The runtime is the class's, so copies keep it."""

    metaclaw: ClassVar[Runtime]
    _metaclaw_task: ClassVar[TaskFunction]

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        return super().stream(input, self._observed(config), **kwargs)

    def astream(  # the base is an async generator, so this returns one
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        return super().astream(input, self._observed(config), **kwargs)

    def get_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Graph:
        bare = super().get_graph(config, xray=xray)
        return draw_loop(bare) if self.metaclaw.config.draw else bare

    async def aget_graph(
        self, config: RunnableConfig | None = None, *, xray: int | bool = False
    ) -> Graph:
        bare = await super().aget_graph(config, xray=xray)
        return draw_loop(bare) if self.metaclaw.config.draw else bare

    def _observed(self, config: RunnableConfig | None) -> RunnableConfig | None:
        """The config with a handler for a new run; as it is inside a run that is watched."""
        try:
            if run_of(config) is not None or run_of(self.config) is not None:
                return config
            run = self.metaclaw.new_run(type(self)._metaclaw_task)
            return with_handler(config, RunHandler(run))
        except Exception as error:
            self.metaclaw.incident("capture", "start", error)
            return config


def _wrapped_class(
    base: type[Pregel[Any, Any, Any, Any]], runtime: Runtime, task: TaskFunction
) -> type[_Wrapped]:
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "metaclaw": runtime,
        "_metaclaw_task": staticmethod(task),
    }
    return type(base.__name__, (_Wrapped, base), body)
