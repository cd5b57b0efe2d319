"""What can be observed of a graph from outside: each probe runs a fresh graph, returns it all."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from tests.wrapping.graphs import Case

Make = Callable[..., Any]
"""Builds the graph, bare or wrapped, with the saver that it is given."""
Probe = Callable[[Make, Case], Any]
AsyncProbe = Callable[[Make, Case], Awaitable[Any]]

MODES = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]
THREAD: RunnableConfig = {"configurable": {"thread_id": "t1"}}


def outcome(function: Callable[[], Any]) -> Any:
    """The result, or the exception as a result."""
    try:
        return function()
    except Exception as error:
        return [type(error).__name__, str(error)]


async def aoutcome(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except Exception as error:
        return [type(error).__name__, str(error)]


def invoke(make: Make, case: Case) -> Any:
    return outcome(lambda: make(None).invoke(case.input, context=case.context))


def invoke_with_thread(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    return outcome(lambda: graph.invoke(case.input, THREAD, context=case.context))


def stream_in(mode: Any, **kwargs: Any) -> Probe:
    def stream(make: Make, case: Case) -> Any:
        graph = make(InMemorySaver())
        chunks = graph.stream(case.input, THREAD, stream_mode=mode, context=case.context, **kwargs)
        return outcome(lambda: list(chunks))

    return stream


def batch(make: Make, case: Case) -> Any:
    graph = make(None)
    return outcome(lambda: graph.batch([case.input], context=case.context))


def states(make: Make, case: Case) -> Any:
    """State, history, an update by hand, and a continued run."""
    graph = make(InMemorySaver())
    seen = [outcome(lambda: graph.invoke(case.input, THREAD, context=case.context))]
    seen += [graph.get_state(THREAD), list(graph.get_state_history(THREAD))]
    seen.append(outcome(lambda: graph.invoke(None, THREAD, context=case.context)))
    return seen


def time_travel(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    outcome(lambda: graph.invoke(case.input, THREAD, context=case.context))
    earlier = list(graph.get_state_history(THREAD))[-1].config
    again = outcome(lambda: graph.invoke(None, earlier, context=case.context))
    return [again, len(list(graph.get_state_history(THREAD)))]


def update_state(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    values = case.input if isinstance(case.input, dict) else None
    outcome(lambda: graph.update_state(THREAD, values))
    return [graph.get_state(THREAD), [s.next for s in graph.get_state_history(THREAD)]]


def resume(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    first = outcome(lambda: graph.invoke(case.input, THREAD, context=case.context))
    paused = graph.get_state(THREAD)
    command = Command(resume=case.resume)
    chunks = outcome(lambda: list(graph.stream(command, THREAD, stream_mode=["updates", "values"])))
    return [first, paused, chunks, graph.get_state(THREAD)]


def interrupt_before(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    one = outcome(
        lambda: graph.invoke(case.input, THREAD, context=case.context, interrupt_before="*")
    )
    return [one, graph.get_state(THREAD)]


def recursion_limit(make: Make, case: Case) -> Any:
    graph = make(None)
    return outcome(lambda: graph.invoke(case.input, {"recursion_limit": 1}, context=case.context))


def bad_input(make: Make, case: Case) -> Any:
    return outcome(lambda: make(None).invoke(3.5, context=case.context))


def abandoned(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    chunks = graph.stream(case.input, THREAD, context=case.context)
    first = outcome(lambda: next(chunks))
    chunks.close()
    return [first, graph.get_state(THREAD).next]


class Watcher(BaseCallbackHandler):
    """A handler of the user's own: which events arrive, for what, below what."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._names: dict[UUID, str] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, **kw: Any) -> None:
        self._started("chain", kw, inputs)

    def on_chat_model_start(self, serialized: Any, messages: Any, **kw: Any) -> None:
        self._started("model", kw, messages)

    def on_tool_start(self, serialized: Any, input_str: str, **kw: Any) -> None:
        self._started("tool", kw, input_str)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kw: Any) -> None:
        self.seen.append(["end", self._names.get(run_id), outputs])

    def on_llm_end(self, response: Any, *, run_id: UUID, **kw: Any) -> None:
        self.seen.append(["end", self._names.get(run_id), response])

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kw: Any) -> None:
        self.seen.append(["error", self._names.get(run_id), repr(error)])

    def _started(self, kind: str, kw: dict[str, Any], inputs: Any) -> None:
        self._names[kw["run_id"]] = str(kw.get("name"))
        parent = self._names.get(kw.get("parent_run_id") or UUID(int=0))
        self.seen.append([kind, kw.get("name"), parent, kw.get("tags"), kw.get("metadata"), inputs])


def callbacks(make: Make, case: Case) -> Any:
    watcher = Watcher()
    config: RunnableConfig = {
        "callbacks": [watcher],
        "tags": ["mine"],
        "metadata": {"who": "me"},
        "run_name": "named",
    }
    outcome(lambda: make(None).invoke(case.input, config, context=case.context))
    return watcher.seen


def as_node(make: Make, case: Case) -> Any:
    """Used as a node of another graph, seen from outside with subgraphs=True."""
    graph = make(None)
    schema = graph.builder.state_schema if hasattr(graph, "builder") else list
    builder = StateGraph(schema)
    builder.add_node("child", graph)
    builder.add_edge(START, "child")
    outer = builder.compile(checkpointer=InMemorySaver())
    chunks = outer.stream(
        case.input,
        THREAD,
        stream_mode=["updates", "messages"],
        subgraphs=True,
        context=case.context,
    )
    return [outcome(lambda: list(chunks)), [s.next for s in outer.get_state_history(THREAD)]]


def schemas(make: Make, case: Case) -> Any:
    graph = make(None)
    return [
        graph.get_input_jsonschema(),
        graph.get_output_jsonschema(),
        graph.get_context_jsonschema(),
        graph.get_graph().draw_mermaid(),
        graph.get_graph(xray=True).to_json(),
        graph.name,
        type(graph).__name__,
        sorted(graph.nodes),
        sorted(graph.channels),
    ]


def copies(make: Make, case: Case) -> Any:
    """`with_config` and `copy` make graphs that run the same."""
    graph = make(None).with_config(tags=["copied"]).copy()
    return outcome(lambda: graph.invoke(case.input, context=case.context))


def events_v3(make: Make, case: Case) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = make(InMemorySaver()).stream_events(
            case.input, THREAD, version="v3", context=case.context
        )
        return outcome(lambda: [list(run), run.output])


async def ainvoke(make: Make, case: Case) -> Any:
    return await aoutcome(make(None).ainvoke(case.input, context=case.context))


def astream_in(mode: Any, **kwargs: Any) -> AsyncProbe:
    async def astream(make: Make, case: Case) -> Any:
        graph = make(InMemorySaver())

        async def collect() -> Any:
            chunks = graph.astream(
                case.input, THREAD, stream_mode=mode, context=case.context, **kwargs
            )
            return [chunk async for chunk in chunks]

        return await aoutcome(collect())

    return astream


async def abatch(make: Make, case: Case) -> Any:
    return await aoutcome(make(None).abatch([case.input], context=case.context))


async def astates(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    seen = [await aoutcome(graph.ainvoke(case.input, THREAD, context=case.context))]
    seen.append(await graph.aget_state(THREAD))
    seen.append([state async for state in graph.aget_state_history(THREAD)])
    return seen


async def aresume(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())
    first = await aoutcome(graph.ainvoke(case.input, THREAD, context=case.context))
    second = await aoutcome(graph.ainvoke(Command(resume=case.resume), THREAD))
    return [first, second, await graph.aget_state(THREAD)]


async def events_v2(make: Make, case: Case) -> Any:
    graph = make(InMemorySaver())

    async def collect() -> Any:
        found = graph.astream_events(case.input, THREAD, version="v2", context=case.context)
        return [event async for event in found]

    return await aoutcome(collect())


async def aevents_v3(make: Make, case: Case) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        async def collect() -> Any:
            run = await make(InMemorySaver()).astream_events(
                case.input, THREAD, version="v3", context=case.context
            )
            return [[event async for event in run], await run.output()]

        return await aoutcome(collect())


PROBES: dict[str, Probe] = {
    "invoke": invoke,
    "invoke_with_thread": invoke_with_thread,
    **{f"stream_{mode}": stream_in(mode) for mode in MODES},
    "stream_all_subgraphs": stream_in(MODES[:-1], subgraphs=True),
    "stream_v2": stream_in("updates", version="v2"),
    "stream_exit": stream_in("values", durability="exit"),
    "batch": batch,
    "states": states,
    "time_travel": time_travel,
    "update_state": update_state,
    "resume": resume,
    "interrupt_before": interrupt_before,
    "recursion_limit": recursion_limit,
    "bad_input": bad_input,
    "abandoned": abandoned,
    "callbacks": callbacks,
    "as_node": as_node,
    "schemas": schemas,
    "copies": copies,
    "events_v3": events_v3,
}
ASYNC_PROBES: dict[str, AsyncProbe] = {
    "ainvoke": ainvoke,
    **{f"astream_{mode}": astream_in(mode) for mode in MODES},
    "astream_all_subgraphs": astream_in(MODES[:-1], subgraphs=True),
    "abatch": abatch,
    "astates": astates,
    "aresume": aresume,
    "events_v2": events_v2,
    "aevents_v3": aevents_v3,
}
