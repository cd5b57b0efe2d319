"""Threads belong to the user: what a bare graph saved a wrapped one resumes, and the reverse.

What is checkpointed is the same with and without the wrapping, also when skills are injected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from metaclaw_langgraph import MetaClawConfig
from tests.wrapping.conftest import Wrap
from tests.wrapping.embedders import TOPICS
from tests.wrapping.graphs import GRAPHS
from tests.wrapping.normal import comparable
from tests.wrapping.skilled_home import SKILL_TEXT, add_skill
from tests.wrapping.support import EchoModel, ask, stored, texts

THREAD: RunnableConfig = {"configurable": {"thread_id": "t1"}}
RETRIEVAL = {"min_score": -1, "deadline": 20, "warmup": 20, "embedder": TOPICS}
Saver = BaseCheckpointSaver[Any]
Order = Literal["bare first", "wrapped first"]


@contextmanager
def memory(folder: Path) -> Iterator[Callable[[], Saver]]:
    saver = InMemorySaver()
    yield lambda: saver


@contextmanager
def sqlite(folder: Path) -> Iterator[Callable[[], Saver]]:
    """A file, opened anew for each graph: as after a restart."""
    opened: list[sqlite3.Connection] = []

    def saver() -> Saver:
        opened.append(sqlite3.connect(folder / "threads.db", check_same_thread=False))
        return SqliteSaver(opened[-1])

    try:
        yield saver
    finally:
        for connection in opened:
            connection.close()


@pytest.fixture(params=[memory, sqlite])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Saver]]:
    with request.param(tmp_path) as make:
        yield make


@asynccontextmanager
async def asqlite(folder: Path) -> AsyncIterator[Saver]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
        yield saver


@pytest.fixture
def skilled(home: Path) -> None:
    add_skill(MetaClawConfig.load(home=home))


@pytest.fixture
def skilled_wrap(skilled: None, wrap: Wrap) -> Wrap:
    """Every prompt gets a skill."""
    return lambda graph: wrap(graph, retrieval=RETRIEVAL)


@pytest.fixture(params=["bare first", "wrapped first"])
def pair(request: pytest.FixtureRequest, skilled_wrap: Wrap) -> tuple[Wrap, Wrap]:
    """How the graph is built before and after the restart."""

    def bare(graph: Any) -> Any:
        return graph

    return (bare, skilled_wrap) if request.param == "bare first" else (skilled_wrap, bare)


def careful(saver: Any, model: EchoModel | None = None) -> Any:
    """Answers, asks a person, answers again."""
    chosen = model or EchoModel()

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [chosen.invoke(state["messages"])]}

    def approve(state: MessagesState) -> Command[Literal["act", "__end__"]]:
        said = interrupt("may I?")
        return Command(goto="act" if said == "yes" else END)

    def act(state: MessagesState) -> dict[str, Any]:
        return {"messages": [chosen.invoke([*state["messages"], HumanMessage("act")])]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_node("approve", approve)
    builder.add_node("act", act)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "approve")
    return builder.compile(checkpointer=saver)


def test_resume_an_interrupt(saver: Callable[[], Saver], pair: tuple[Wrap, Wrap]) -> None:
    before, after = pair
    first = before(careful(saver())).invoke(ask("one"), THREAD)
    assert first["__interrupt__"][0].value == "may I?"
    second = after(careful(saver()))
    assert second.get_state(THREAD).next == ("approve",)
    assert texts(second.invoke(Command(resume="yes"), THREAD)) == ["one", "echo one", "echo act"]
    assert second.get_state(THREAD).next == ()


def test_continue_a_conversation(saver: Callable[[], Saver], pair: tuple[Wrap, Wrap]) -> None:
    before, after = pair
    first = before(careful(saver()))
    first.invoke(ask("one"), THREAD)
    first.invoke(Command(resume="no"), THREAD)
    second = after(careful(saver()))
    second.invoke(ask("two"), THREAD)
    assert texts(second.get_state(THREAD).values) == ["one", "echo one", "two", "echo two"]
    third = before(careful(saver()))
    assert texts(third.invoke(Command(resume="yes"), THREAD))[-1] == "echo act"


def test_travel_in_time(saver: Callable[[], Saver], pair: tuple[Wrap, Wrap]) -> None:
    before, after = pair
    first = before(careful(saver()))
    first.invoke(ask("one"), THREAD)
    first.invoke(Command(resume="yes"), THREAD)
    second = after(careful(saver()))
    history = list(second.get_state_history(THREAD))
    assert len(history) == len(list(before(careful(saver())).get_state_history(THREAD)))
    earlier = next(state for state in history if state.next == ("approve",))
    again = second.invoke(None, earlier.config)
    assert again["__interrupt__"][0].value == "may I?"
    assert texts(second.invoke(Command(resume="yes"), THREAD))[-1] == "echo act"


def test_update_state(saver: Callable[[], Saver], pair: tuple[Wrap, Wrap]) -> None:
    before, after = pair
    before(careful(saver())).invoke(ask("one"), THREAD)
    second = after(careful(saver()))
    second.update_state(THREAD, {"messages": [AIMessage("mended")]}, as_node="answer")
    third = before(careful(saver()))
    assert texts(third.get_state(THREAD).values) == ["one", "echo one", "mended"]
    assert texts(third.invoke(Command(resume="yes"), THREAD))[-2:] == ["mended", "echo act"]


@pytest.mark.parametrize("in_memory", [True, False])
async def test_async(in_memory: bool, tmp_path: Path, pair: tuple[Wrap, Wrap]) -> None:
    before, after = pair
    kept = InMemorySaver()

    @asynccontextmanager
    async def saver() -> AsyncIterator[Saver]:
        if in_memory:
            yield kept
            return
        async with asqlite(tmp_path) as opened:
            yield opened

    async with saver() as opened:
        first = await before(careful(opened)).ainvoke(ask("one"), THREAD)
        assert first["__interrupt__"]
    async with saver() as opened:
        second = after(careful(opened))
        await second.aupdate_state(THREAD, {"messages": [AIMessage("mended")]}, as_node="answer")
        resumed = await second.ainvoke(Command(resume="yes"), THREAD)
        assert texts(resumed) == ["one", "echo one", "mended", "echo act"]
        earlier = [s async for s in second.aget_state_history(THREAD) if s.next == ("approve",)]
        assert (await second.ainvoke(None, earlier[-1].config))["__interrupt__"]
    async with saver() as opened:
        third = before(careful(opened))
        await third.ainvoke(Command(resume="no"), THREAD)
        await third.ainvoke(ask("two"), THREAD)
        assert texts((await third.aget_state(THREAD)).values)[-2:] == ["two", "echo two"]


@pytest.mark.parametrize("name", GRAPHS)
def test_checkpoints_are_the_same_with_skills(name: str, skilled_wrap: Wrap) -> None:
    case = GRAPHS[name]
    bare, wrapped = InMemorySaver(), InMemorySaver()
    case.build(bare).invoke(case.input, THREAD, context=case.context)
    agent = skilled_wrap(case.build(wrapped))
    agent.invoke(case.input, THREAD, context=case.context)
    was, now = (comparable(list(s.list(None)), ordered=case.ordered) for s in (bare, wrapped))
    assert settled(now) == settled(was)
    (trajectory,) = stored(agent)
    assert [hit.injected for hit in trajectory.skills] == [True]


def settled(value: Any) -> Any:
    """Without ids of tool messages: a bare graph too saves them with or without, as it happens."""
    if isinstance(value, dict):
        kept = {key: settled(item) for key, item in value.items()}
        return {**kept, "id": "<id>"} if "tool_call_id" in kept else kept
    return [settled(item) for item in value] if isinstance(value, list) else value


def test_a_system_prompt_in_the_state_stays_as_it_was(skilled_wrap: Wrap) -> None:
    model = EchoModel()
    agent = skilled_wrap(careful(InMemorySaver(), model))
    sent = SystemMessage("Be kind.", id="s1")
    agent.invoke({"messages": [sent, *ask("one")["messages"]]}, THREAD)
    agent.invoke(Command(resume="yes"), THREAD)
    for prompt in model.system_prompts():
        assert prompt.startswith("Be kind.\n\n<metaclaw_skills ")
        assert prompt.count(SKILL_TEXT) == 1
    assert sent.content == "Be kind."
    assert texts(agent.get_state(THREAD).values) == ["Be kind.", "one", "echo one", "echo act"]


def test_no_trace_of_us_in_the_database(tmp_path: Path, skilled_wrap: Wrap) -> None:
    """Byte for byte: neither a name of ours, nor a skill's text, nor token ids."""
    model = EchoModel()
    path = tmp_path / "threads.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        agent = skilled_wrap(careful(SqliteSaver(connection), model))
        agent.invoke(ask("one"), THREAD)
        agent.invoke(Command(resume="yes"), THREAD)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert all(SKILL_TEXT in prompt for prompt in model.system_prompts())
    content = path.read_bytes().lower()
    assert b"echo one" in content
    assert b"metaclaw" not in content
    assert SKILL_TEXT.lower().encode() not in content
