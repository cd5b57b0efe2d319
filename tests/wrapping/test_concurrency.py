"""Runs at the same time do not mix: not their skills, messages, threads or namespaces."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from metaclaw_langgraph import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.types import Skill, Trajectory
from tests.wrapping.conftest import Wrap
from tests.wrapping.embedders import TOPICS
from tests.wrapping.support import EchoModel, ask, atalk, conversation, only, stored, talk, texts

RUNS = 100
SPACES = ("red", "blue")
RETRIEVAL = {"top_k": 1, "min_score": 0.9, "deadline": 30, "warmup": 30, "embedder": TOPICS}


class Recalling(EchoModel):
    """Says what is in its system prompt."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        result = super()._generate(messages, *args, **kwargs)
        result.generations[0].message.content = f"{messages[-1].content} <- {_learned(messages)}"
        return result


def _learned(messages: Any) -> str:
    first = str(messages[0].content)
    return first.partition("Remember ")[2].partition(".")[0]


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a skill for every topic in both namespaces."""
    home = tmp_path_factory.mktemp("topics")
    with Ledger.open(MetaClawConfig.load(home=home).resolved_ledger_url) as ledger:
        for space in SPACES:
            skills = [
                Skill(f"topic-{n}", f"For topic-{n}", f"Remember {space} {n}.", 1)
                for n in range(RUNS)
            ]
            ledger.stage_skills(space, [NewSkill(skill) for skill in skills])
            ids = [skill.id for skill in skills]
            ledger.commit_generation(space, expected=0, add=ids, remove=[], reason="test")
    return home


def pair(topics: Path, wrap: Wrap, build: Any) -> dict[str, Any]:
    """Two graphs in two namespaces."""
    return {
        space: wrap(
            build(Recalling(), InMemorySaver()), home=topics, namespace=space, retrieval=RETRIEVAL
        )
        for space in SPACES
    }


def question(number: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(f"about topic-{number}")]}


def thread(space: str, number: int) -> Any:
    return {"configurable": {"thread_id": f"{space}-{number}"}}


def check(space: str, number: int, result: Any) -> None:
    assert texts(result)[-1] == f"about topic-{number} <- {space} {number}"


def check_stored(agents: dict[str, Any], before: set[str]) -> None:
    for space, agent in agents.items():
        found = [one for one in stored(agent, 60) if one.id not in before]
        assert len(found) == RUNS
        for one in found:
            check_one(space, one)


def check_one(space: str, one: Trajectory) -> None:
    number = (one.task or "").removeprefix("about topic-")
    assert one.namespace == space
    assert one.thread_id == f"{space}-{number}"
    assert [(hit.id, hit.injected) for hit in one.skills] == [(f"topic-{number}@1", True)]
    assert len(one.calls) == 1
    assert [m["type"] for m in one.messages] == ["system", "human", "ai"]
    said = [str(m["data"]["content"]) for m in one.messages]  # type: ignore[index,call-overload]
    assert f"Remember {space} {number}." in said[0]
    assert said[1] == f"about topic-{number}"
    assert said[2] == f"about topic-{number} <- {space} {number}"
    assert {span.name for span in one.spans} == {"LangGraph", "answer", "Recalling"}
    assert len(one.spans) == 3


def known(agents: dict[str, Any]) -> set[str]:
    return {one.id for agent in agents.values() for one in stored(agent)}


async def test_parallel_ainvoke(topics: Path, wrap: Wrap) -> None:
    agents = pair(topics, wrap, atalk)
    before = known(agents)

    async def one(space: str, number: int) -> None:
        check(space, number, await agents[space].ainvoke(question(number), thread(space, number)))

    await asyncio.gather(*(one(space, n) for n in range(RUNS) for space in SPACES))
    check_stored(agents, before)


def test_parallel_threads(topics: Path, wrap: Wrap) -> None:
    agents = pair(topics, wrap, talk)
    before = known(agents)
    begin = threading.Barrier(RUNS)

    def one(number: int) -> None:
        begin.wait(60)
        for space in SPACES:
            check(space, number, agents[space].invoke(question(number), thread(space, number)))

    with ThreadPoolExecutor(RUNS) as pool:
        list(pool.map(one, range(RUNS)))
    check_stored(agents, before)


def steps(model: EchoModel) -> Any:
    """Two nodes, so that there is something between them."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def again(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([*state["messages"], HumanMessage("again")])]}

    builder = StateGraph(MessagesState)
    builder.add_sequence([answer, again])
    builder.add_edge(START, "answer")
    return builder.compile()


def check_interleaved(agent: Any, said: dict[int, list[str]]) -> None:
    for number, seen in said.items():
        learned = f"red {number}"
        assert seen == [f"about topic-{number} <- {learned}", f"again <- {learned}"]
    for one in stored(agent):
        number = (one.task or "").removeprefix("about topic-")
        assert [hit.id for hit in one.skills] == [f"topic-{number}@1"]
        assert len(one.calls) == 2
        assert len(one.spans) == 5


def test_streams_read_in_turns(topics: Path, wrap: Wrap, tmp_path: Path) -> None:
    agent = wrap(
        steps(Recalling()),
        home=topics,
        ledger_url=copied_ledger(topics, tmp_path),
        namespace="red",
        retrieval=RETRIEVAL,
    )
    streams = {n: agent.stream(question(n), stream_mode="updates") for n in range(4)}
    said: dict[int, list[str]] = {n: [] for n in streams}
    for _ in range(2):
        for number, stream in streams.items():
            (update,) = next(stream).values()
            said[number].append(texts(update)[-1])
    for stream in reversed(streams.values()):
        assert list(stream) == []
    check_interleaved(agent, said)
    assert {one.outcome for one in stored(agent)} == {"ok"}


async def test_async_streams_read_in_turns(topics: Path, wrap: Wrap, tmp_path: Path) -> None:
    agent = wrap(
        steps(Recalling()),
        home=topics,
        ledger_url=copied_ledger(topics, tmp_path),
        namespace="red",
        retrieval=RETRIEVAL,
    )
    streams = {n: agent.astream(question(n), stream_mode="updates") for n in range(4)}
    said: dict[int, list[str]] = {n: [] for n in streams}
    for _ in range(2):
        for number, stream in streams.items():
            (update,) = (await anext(stream)).values()
            said[number].append(texts(update)[-1])
    for stream in streams.values():
        assert [chunk async for chunk in stream] == []
    check_interleaved(agent, said)
    assert {one.outcome for one in stored(agent)} == {"ok"}


def copied_ledger(topics: Path, tmp_path: Path) -> str:
    """The same skills, without the runs of other tests."""
    with Ledger.open(f"sqlite:///{topics / 'ledger.db'}") as ledger:
        skills = ledger.active_skills("red")
    url = f"sqlite:///{tmp_path / 'own.db'}"
    with Ledger.open(url) as ledger:
        ledger.stage_skills("red", [NewSkill(skill) for skill in skills])
        ids = [skill.id for skill in skills]
        ledger.commit_generation("red", expected=0, add=ids, remove=[], reason="test")
    return url


def test_nested_wrapped_graphs_give_one_trajectory(wrap: Wrap) -> None:
    inner = wrap(talk(), namespace="inner")

    def delegate(state: MessagesState) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"][-1:]}

    outer = wrap(conversation(delegate), namespace="outer")
    assert texts(outer.invoke(ask("hello"))) == ["hello", "echo hello"]
    one = only(outer)
    assert [span.name for span in one.spans] == [
        "LangGraph",
        "answer",
        "LangGraph",
        "answer",
        "EchoModel",
    ]
    assert stored(inner) == []


def test_a_wrapped_graph_as_a_node(wrap: Wrap) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("inner", wrap(talk(), namespace="inner"))
    builder.add_edge(START, "inner")
    bare_outside = builder.compile()
    outer = wrap(builder, namespace="outer")
    assert texts(outer.invoke(ask("hello"))) == ["hello", "echo hello"]
    assert [call.error for call in only(outer).calls] == [None]
    assert texts(bare_outside.invoke(ask("alone"))) == ["alone", "echo alone"]
    inner = wrap(talk(), namespace="inner")
    assert only(inner).task == "alone"


def test_batch_gives_one_trajectory_for_each_input(wrap: Wrap) -> None:
    agent = wrap(talk())
    results = agent.batch([ask(str(n)) for n in range(5)], [thread("t", n) for n in range(5)])
    assert [texts(one)[-1] for one in results] == [f"echo {n}" for n in range(5)]
    found = {(one.task, one.thread_id, len(one.calls)) for one in stored(agent)}
    assert found == {(str(n), f"t-{n}", 1) for n in range(5)}


async def test_abatch_gives_one_trajectory_for_each_input(wrap: Wrap) -> None:
    agent = wrap(atalk())
    results = await agent.abatch([ask(str(n)) for n in range(5)])
    assert [texts(one)[-1] for one in results] == [f"echo {n}" for n in range(5)]
    assert sorted(one.task or "" for one in stored(agent)) == [str(n) for n in range(5)]
