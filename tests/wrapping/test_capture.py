"""What a trajectory holds of a run, and what it must not hold."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from metaclaw_langgraph import ConfigError, NotFoundError
from metaclaw_langgraph import runtime as runtimes
from metaclaw_langgraph.learning.plain import SPAN_LIMIT, VALUE_LIMIT
from metaclaw_langgraph.types import Trajectory
from tests.wrapping.conftest import Wrap
from tests.wrapping.graphs import calling, scripted
from tests.wrapping.support import (
    EchoModel,
    ask,
    atalk,
    conversation,
    counted,
    exporter_of,
    only,
    opened,
    stored,
    talk,
    texts,
)

THREAD: Any = {"configurable": {"thread_id": "t1"}}


def content(trajectory: Trajectory, index: int | None) -> Any:
    assert index is not None
    return trajectory.messages[index]["data"]["content"]  # type: ignore[index,call-overload]


# ---------------------------------------------------------------- how it ended


def test_ok(wrap: Wrap) -> None:
    agent = wrap(talk(), namespace="shop")
    started = time.time()
    agent.invoke(ask("hello"), {**THREAD, "run_name": "front desk"})
    one = only(agent)
    assert (one.outcome, one.error, one.role) == ("ok", None, "unjudged")
    assert (one.namespace, one.thread_id, one.task) == ("shop", "t1", "hello")
    assert (one.retrieval, one.generation, one.adapter) == ("empty", 0, None)
    assert started <= one.started_at.timestamp() <= one.ended_at.timestamp() <= time.time()
    (call,) = one.calls
    assert [content(one, index) for index in call.prompt] == ["hello"]
    assert content(one, call.response) == "echo hello"
    assert one.started_at <= call.started_at <= call.ended_at <= one.ended_at
    assert [(s.kind, s.name) for s in one.spans] == [
        ("chain", "front desk"),
        ("chain", "answer"),
        ("model", "EchoModel"),
    ]
    root, node, model = one.spans
    assert (root.parent, node.parent, model.parent) == (None, root.id, node.id)
    assert root.id == one.run_id
    assert one.output["messages"][1]["data"]["content"] == "echo hello"  # type: ignore[index,call-overload]


def test_exception_in_a_node(wrap: Wrap) -> None:
    def broken(state: MessagesState) -> Any:
        raise ValueError("no such order")

    agent = wrap(conversation(broken))
    with pytest.raises(ValueError, match="no such order"):
        agent.invoke(ask("hello"))
    one = only(agent)
    assert (one.outcome, one.error, one.task) == ("failed", "ValueError: no such order", "hello")
    assert one.role == "support"
    assert [span.error for span in one.spans] == ["ValueError: no such order"] * 2
    (verdict,) = agent.metaclaw._store.ledger().verdicts("default", one.id)
    assert (verdict.reward, verdict.source) == (-1.0, "run")


def test_exception_in_a_model(wrap: Wrap) -> None:
    agent = wrap(talk(scripted()))
    with pytest.raises(RuntimeError):
        agent.invoke(ask("hello"))
    (call,) = only(agent).calls
    assert call.error is not None
    assert call.response is None


def test_recursion_limit(wrap: Wrap) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("again", lambda state: {})
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    agent = wrap(builder)
    with pytest.raises(GraphRecursionError):
        agent.invoke(ask("hello"), {"recursion_limit": 3})
    one = only(agent)
    assert (one.outcome, one.role) == ("failed", "support")
    assert (one.error or "").startswith("GraphRecursionError")


def asking(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{interrupt('sure?')}, then")]}


def test_interrupt_and_resume(wrap: Wrap) -> None:
    agent = wrap(conversation(asking, InMemorySaver()))
    agent.invoke(ask("hello"), THREAD)
    assert texts(agent.invoke(Command(resume="yes"), THREAD))[-1] == "yes, then"
    first, second = stored(agent)
    assert (first.outcome, second.outcome) == ("interrupted", "ok")
    assert (first.thread_id, second.thread_id) == ("t1", "t1")
    assert (first.role, second.role) == ("unjudged", "unjudged")
    assert "resume" in json.dumps(second.input)


async def test_interrupt_in_a_subgraph(wrap: Wrap) -> None:
    outer = StateGraph(MessagesState)
    outer.add_node("inner", conversation(asking))
    outer.add_edge(START, "inner")
    agent = wrap(outer.compile(checkpointer=InMemorySaver()))
    await agent.ainvoke(ask("hello"), THREAD)
    await agent.ainvoke(Command(resume="yes"), THREAD)
    assert [one.outcome for one in stored(agent)] == ["interrupted", "ok"]


def test_abandoned_stream(wrap: Wrap) -> None:
    agent = wrap(talk())
    stream = agent.stream(ask("hello"), stream_mode="values")
    next(stream)
    stream.close()
    one = only(agent)
    assert (one.outcome, one.error, one.role) == ("cancelled", None, "unjudged")


def test_a_stream_that_is_never_read_is_no_run(wrap: Wrap) -> None:
    agent = wrap(talk())
    agent.stream(ask("hello"))
    assert stored(agent) == []


async def test_cancelled_task(wrap: Wrap) -> None:
    inside = asyncio.Event()

    async def wait(state: MessagesState) -> Any:
        inside.set()
        await asyncio.Event().wait()

    agent = wrap(conversation(wait))
    task = asyncio.create_task(agent.ainvoke(ask("hello")))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (only(agent).outcome, only(agent).error) == ("cancelled", None)


# ---------------------------------------------------------------- what it did


@tool
def price(item: str) -> str:
    """The price of an item."""
    if item == "moon":
        raise ValueError("not for sale")
    return f"{item} costs 7"


def test_tools(wrap: Wrap) -> None:
    model = scripted(
        AIMessage(
            "",
            tool_calls=[
                {"name": "price", "args": {"item": "tea"}, "id": "c1"},
                {"name": "price", "args": {"item": "cake"}, "id": "c2"},
            ],
        ),
        "Both cost 7.",
    )
    agent = wrap(create_agent(model, [price], system_prompt="Sell."))
    agent.invoke(ask("prices?"))
    one = only(agent)
    found = {tool.call_id: tool for tool in one.tools}
    assert found["c1"].input == {"item": "tea"}
    assert found["c2"].output["data"]["content"] == "cake costs 7"  # type: ignore[index,call-overload]
    assert {tool.error for tool in one.tools} == {None}
    second = one.calls[1]
    prompt = [content(one, index) for index in second.prompt]
    assert prompt[0] == "Sell."
    assert sorted(prompt[-2:]) == ["cake costs 7", "tea costs 7"]
    # Messages that both prompts hold are kept once.
    assert len(one.messages) == len(prompt) + 1


def test_failing_tool(wrap: Wrap) -> None:
    agent = wrap(create_agent(scripted(calling("price", {"item": "moon"}, "c1")), [price]))
    with pytest.raises(ValueError, match="not for sale"):
        agent.invoke(ask("the moon?"))
    one = only(agent)
    assert one.outcome == "failed"
    (failed,) = one.tools
    assert (failed.name, failed.call_id, failed.error) == (
        "price",
        "c1",
        "ValueError: not for sale",
    )


class Offer(BaseModel):
    """An offer."""

    item: str
    price: int


def test_structured_output(wrap: Wrap) -> None:
    model = scripted(calling("Offer", {"item": "tea", "price": 7}, "c1"))
    agent = wrap(create_agent(model, [], response_format=ToolStrategy(Offer)))
    assert agent.invoke(ask("an offer"))["structured_response"] == Offer(item="tea", price=7)
    output: Any = only(agent).output
    assert output["structured_response"] == {"item": "tea", "price": 7}


def test_subgraph(wrap: Wrap) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("inner", talk())
    builder.add_edge(START, "inner")
    agent = wrap(builder)
    agent.invoke(ask("hello"))
    one = only(agent)
    names = {span.id: span.name for span in one.spans}
    model = next(span for span in one.spans if span.kind == "model")
    path, at = [], model
    while at.parent is not None:
        at = next(span for span in one.spans if span.id == at.parent)
        path.append(names[at.id])
    assert path == ["answer", "LangGraph", "inner", "LangGraph"]


def test_model_called_in_a_tool(wrap: Wrap) -> None:
    helper = EchoModel()

    @tool
    def expert(question: str) -> str:
        """Ask an expert."""
        return str(helper.invoke(question).content)

    model = scripted(calling("expert", {"question": "why?"}, "c1"), "Because.")
    agent = wrap(create_agent(model, [expert]))
    agent.invoke(ask("why?"))
    one = only(agent)
    assert len(one.calls) == 3
    asked = next(s for s in one.spans if s.name == "EchoModel")
    parent = next(s for s in one.spans if s.id == asked.parent)
    assert (parent.kind, parent.name) == ("tool", "expert")


def test_parallel_nodes(wrap: Wrap) -> None:
    builder = StateGraph(MessagesState)
    model = EchoModel()

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    for number in range(5):
        builder.add_node(f"n{number}", node)
        builder.add_edge(START, f"n{number}")
    agent = wrap(builder)
    agent.invoke(ask("hello"))
    one = only(agent)
    assert len(one.calls) == 5
    assert sorted(s.name for s in one.spans if s.name.startswith("n")) == [
        f"n{number}" for number in range(5)
    ]


def test_streaming_model(wrap: Wrap) -> None:
    agent = wrap(talk(scripted("one word after the other")))
    chunks = [chunk for chunk, _ in agent.stream(ask("hello"), stream_mode="messages")]
    assert len(chunks) > 5
    one = only(agent)
    (call,) = one.calls
    assert content(one, call.response) == "one word after the other"


async def test_async_run(wrap: Wrap) -> None:
    agent = wrap(atalk(), retrieval={"deadline": 20})
    events = [event async for event in agent.astream_events(ask("hello"), THREAD, version="v2")]
    assert events
    one = only(agent)
    assert (one.outcome, one.thread_id, len(one.calls)) == ("ok", "t1", 1)


def test_graph_without_a_model(wrap: Wrap) -> None:
    class Count(TypedDict):
        number: int

    builder = StateGraph(Count)
    builder.add_node("more", lambda state: {"number": state["number"] + 1})
    builder.add_edge(START, "more")
    agent = wrap(builder)
    assert agent.invoke({"number": 1}) == {"number": 2}
    one = only(agent)
    assert (one.task, one.input, one.output) == (None, {"number": 1}, {"number": 2})
    assert (one.calls, one.tools, one.messages) == ((), (), ())


def test_own_task_function(wrap: Wrap) -> None:
    agent = wrap(talk(), task=lambda value: f"about {len(value['messages'])}")
    agent.invoke(ask("hello"))
    assert only(agent).task == "about 1"


def test_big_values_are_cut(wrap: Wrap) -> None:
    agent = wrap(conversation(lambda state: {}))
    agent.invoke({"messages": [HumanMessage("x" * 1_000_000)]})
    one = only(agent)
    kept = json.dumps(one.input)
    assert len(kept) < 300_000
    assert "more characters" in kept


# ---------------------------------------------------------------- tokens

TOKENS = {"prompt": [1, 2, 3], "completion": [4, 5], "logprobs": [-0.5, -0.25]}


class TokenModel(EchoModel):
    """Gives token ids and logprobs, as the models of this project do."""

    streamed: bool = False

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        result = super()._generate(messages, *args, **kwargs)
        result.generations[0].message.response_metadata = {"metaclaw_tokens": TOKENS, "n": 1}
        return result


class TokenStream(TokenModel):
    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for word in ("echo ", "hello"):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        metadata = {"metaclaw_tokens": TOKENS, "n": 1}
        yield ChatGenerationChunk(message=AIMessageChunk("", response_metadata=metadata))


def check_tokens(agent: Any) -> None:
    (call,) = only(agent).calls
    assert call.prompt_token_ids == (1, 2, 3)
    assert call.token_ids == (4, 5)
    assert call.logprobs == (-0.5, -0.25)
    state = agent.get_state(THREAD).values["messages"][-1]
    assert (state.content, state.response_metadata) == ("echo hello", {"n": 1})
    assert "metaclaw_tokens" not in repr(agent.checkpointer.storage)
    assert "metaclaw_tokens" not in repr(agent.checkpointer.blobs)


@pytest.mark.parametrize("model", [TokenModel, TokenStream])
def test_tokens(model: type[TokenModel], wrap: Wrap) -> None:
    agent = wrap(talk(model(), InMemorySaver()))
    agent.invoke(ask("hello"), THREAD)
    check_tokens(agent)


def test_tokens_of_a_streamed_run(wrap: Wrap) -> None:
    agent = wrap(talk(TokenStream(), InMemorySaver()))
    assert list(agent.stream(ask("hello"), THREAD, stream_mode="messages"))
    check_tokens(agent)


def test_tokens_of_a_node_that_streams(wrap: Wrap) -> None:
    model = TokenStream()

    def answer(state: MessagesState) -> dict[str, Any]:
        first, *rest = model.stream(state["messages"])
        return {"messages": [sum(rest, first)]}

    agent = wrap(conversation(answer, InMemorySaver()))
    agent.invoke(ask("hello"), THREAD)
    check_tokens(agent)


async def test_tokens_of_an_async_node_that_streams(wrap: Wrap) -> None:
    model = TokenStream()

    async def answer(state: MessagesState) -> dict[str, Any]:
        chunks = [chunk async for chunk in model.astream(state["messages"])]
        return {"messages": [sum(chunks[1:], chunks[0])]}

    agent = wrap(conversation(answer, InMemorySaver()))
    await agent.ainvoke(ask("hello"), THREAD)
    check_tokens(agent)


class LogprobModel(EchoModel):
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        result = super()._generate(messages, *args, **kwargs)
        entries = [
            {"token": "token_id:17", "logprob": -1.5},
            {"token": "token_id:4", "logprob": -0.5},
        ]
        result.generations[0].message.response_metadata = {"logprobs": {"content": entries}}
        return result


def test_logprobs_in_openai_form(wrap: Wrap) -> None:
    agent = wrap(talk(LogprobModel()))
    agent.invoke(ask("hello"))
    (call,) = only(agent).calls
    assert (call.token_ids, call.logprobs) == ((17, 4), (-1.5, -0.5))
    assert call.prompt_token_ids is None


# ---------------------------------------------------------------- feedback


def test_feedback(wrap: Wrap) -> None:
    agent = wrap(talk())
    ids = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(4)]
    for number, run_id in enumerate(ids):
        agent.invoke(
            ask(str(number)),
            {"run_id": run_id, "configurable": {"thread_id": f"t{number}"}},
        )
    by_task = {one.task: one.id for one in stored(agent)}
    give = agent.metaclaw.feedback
    assert give(1.0, "good", trajectory_id=by_task["0"], author="ann") == "query"
    assert give(-0.5, "wrong", run_id=ids[1]) == "support"
    assert give(True, thread_id="t2") == "query"
    assert give(False) == "support"
    assert {one.task: one.role for one in stored(agent)} == {
        "0": "query",
        "1": "support",
        "2": "query",
        "3": "support",
    }
    (verdict,) = agent.metaclaw._store.ledger().verdicts("default", by_task["0"])
    assert (verdict.reward, verdict.source, verdict.reason, verdict.author) == (
        1.0,
        "human",
        "good",
        "ann",
    )


def test_bad_feedback(wrap: Wrap) -> None:
    agent = wrap(talk())
    with pytest.raises(NotFoundError, match="yet"):
        agent.metaclaw.feedback(1.0)
    agent.invoke(ask("hello"))
    for reward in (1.5, -2, float("nan")):
        with pytest.raises(ConfigError, match="between -1 and 1"):
            agent.metaclaw.feedback(reward)
    for wanted in ({"trajectory_id": "x"}, {"run_id": "x"}, {"thread_id": "x"}):
        with pytest.raises(NotFoundError, match="'x'"):
            agent.metaclaw.feedback(1.0, **wanted)
    assert only(agent).role == "unjudged"


# ---------------------------------------------------------------- secrets

# Put together here, so that no scanner takes this file for a leak.
CANARIES = {
    "aws": "AKIA" + "QYLPMN5HFIQR7XYA",
    "openai": "sk-" + "proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z",
    "env": "tangerine-" + "lighthouse-42",
}


def test_secrets_are_nowhere_on_disk(
    home: Path, wrap: Wrap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", CANARIES["env"])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    planted = " and ".join(CANARIES.values())

    @tool
    def vault(name: str) -> str:
        """Open the vault."""
        return f"inside: {planted}"

    model = scripted(calling("vault", {"name": planted}, "c1"), f"It holds {planted}.")
    agent = wrap(create_agent(model, [vault]), tracing=True)
    result = agent.invoke(ask(f"My keys are {planted}"))
    assert planted in texts(result)[-1]  # the user's own answer is not touched

    def broken(state: MessagesState) -> Any:
        raise ValueError(f"refused {planted}")

    failing = wrap(conversation(broken), tracing=True)
    with pytest.raises(ValueError, match="refused"):
        failing.invoke(ask("hello"))

    def no_task(value: Any) -> str | None:
        raise ValueError(f"no task in {planted}")

    lost = wrap(talk(), tracing=True, task=no_task)
    lost.invoke(ask("hello"))
    assert lost.metaclaw.flush(10)  # with it, the incident
    agent.metaclaw.feedback(-1, f"it told {planted}")
    assert agent.metaclaw.flush(60, traces=True)
    assert "no task in [redacted:" in repr(agent.metaclaw._store.ledger().incidents("default"))
    assert exporter_of(agent.metaclaw) is not None
    check_files(home)
    assert list((tmp_path / "work").iterdir()) == []  # MLflow likes to write where it is started
    with opened(home) as ledger:
        for one in stored(agent):
            told = json.dumps(asdict(one), default=str) + repr(ledger.verdicts("default", one.id))
            told += repr(ledger.incidents("default"))
            assert [name for name, secret in CANARIES.items() if secret in told] == []
        assert "[redacted:" in json.dumps(asdict(stored(agent)[0]), default=str)


def check_files(home: Path) -> None:
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"ledger.db", "mlflow.db"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        found = [name for name, secret in CANARIES.items() if secret.encode() in content]
        assert found == [], path


def test_secrets_in_the_spool(home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", CANARIES["env"])
    home.mkdir()
    (home / "ledger.db").write_text("not a database " * 100)
    agent = wrap(talk())
    agent.invoke(ask(f"My key is {CANARIES['env']}"))
    assert not agent.metaclaw.flush(1)
    (file,) = (home / "spool").glob("*.jsonl")
    assert CANARIES["env"].encode() not in file.read_bytes()
    (home / "ledger.db").unlink()
    assert "[redacted:" in (only(agent).task or "")


@pytest.mark.parametrize("limit", [SPAN_LIMIT, VALUE_LIMIT])
def test_a_secret_across_a_cut_is_not_kept_in_part(
    limit: int, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", CANARIES["env"])
    agent = wrap(talk())
    for shift in range(2, len(CANARIES["env"]), 5):
        # The envelope of the message takes some room too, so several places are tried.
        agent.invoke(ask("x" * (limit - 400 - shift) + CANARIES["env"] * 40))
    for trajectory in stored(agent):
        assert "[redacted:" in json.dumps(asdict(trajectory), default=str)
        for piece in (CANARIES["env"][:8], CANARIES["env"][-8:]):
            assert piece not in json.dumps(asdict(trajectory), default=str)


# ---------------------------------------------------------------- the caller goes on


def test_what_the_caller_does_afterwards_is_not_recorded(wrap: Wrap) -> None:
    agent = wrap(talk())
    history: list[Any] = [HumanMessage("first", id="u1")]
    result = agent.invoke({"messages": history})
    history.append(HumanMessage("LATER", id="u2"))
    result["messages"].append(HumanMessage("LATER", id="u3"))
    assert "LATER" not in json.dumps(asdict(only(agent)), default=str)


def test_a_state_that_the_caller_keeps_changing_is_still_recorded(wrap: Wrap) -> None:
    shared: dict[str, Any] = {}

    class State(TypedDict):
        box: dict[str, Any]

    builder = StateGraph(State)
    builder.add_node("look", lambda state: {"box": state["box"]})
    builder.add_edge(START, "look")
    agent = wrap(builder)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            shared.update({f"key-{n}": n for n in range(500)})
            shared.clear()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(10):
            agent.invoke({"box": shared})
        assert len(stored(agent)) == 10
    finally:
        stop.set()
        changing.join()


def test_a_task_function_costs_no_runtime(wrap: Wrap) -> None:
    before = len(runtimes._runtimes)
    agents = [wrap(talk(), task=lambda value, n=n: f"task {n}") for n in range(5)]
    assert len(runtimes._runtimes) == before + 1
    for agent in agents:
        agent.invoke(ask("hello"))
    assert [t.task for t in stored(agents[0])] == [f"task {n}" for n in range(5)]


def test_a_task_that_is_no_text_is_counted(wrap: Wrap) -> None:
    agent = wrap(talk(), task=lambda value: 7)
    agent.invoke(ask("hello"))
    assert only(agent).task == "hello"  # found at the model call
    assert counted(agent, "task", "no text") == 1


def test_an_error_that_cannot_be_printed_is_recorded(wrap: Wrap) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def fail(state: MessagesState) -> Any:
        raise Mute

    agent = wrap(conversation(fail))
    with pytest.raises(Mute):
        agent.invoke(ask("hello"))
    assert only(agent).error == "Mute: (its text cannot be had)"


async def test_a_run_inside_a_task_that_outlived_its_run_is_its_own(wrap: Wrap) -> None:
    inner = wrap(atalk())
    left: list[asyncio.Task[Any]] = []

    async def start(state: MessagesState) -> Any:
        async def later() -> None:
            await asyncio.sleep(0.05)
            await inner.ainvoke(ask("later"))

        left.append(asyncio.create_task(later()))
        return {}

    outer = wrap(conversation(start))
    await outer.ainvoke(ask("now"))
    await left[0]
    assert sorted(str(t.task) for t in stored(outer)) == ["later", "now"]
