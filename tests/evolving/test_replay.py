"""Replays of real graphs: the same input, the skills on trial, and no trace of it afterwards."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.evolving.replay import Replay, Replayer, graph_replay, restored
from metaclaw_langgraph.learning.plain import Plain
from metaclaw_langgraph.types import Retrieved, SkillHit, Trajectory, Verdict
from tests.wrapping.conftest import Wrap
from tests.wrapping.graphs import calling, scripted
from tests.wrapping.support import EchoModel, ask, atalk, conversation, only, stored, talk

SKILLS = Retrieved(3, (SkillHit("bake-bread@0", 0.8, True),), "<metaclaw_skills>Salt it.")
NO_SKILLS = Retrieved(3, (), "")
PASSED = Verdict(1.0, "verifier")


class Judge:
    """Keeps what it is shown."""

    def __init__(self, verdict: Verdict | None = PASSED) -> None:
        self.verdict = verdict
        self.shown: list[Trajectory] = []

    def __call__(self, trajectory: Trajectory) -> Verdict | None:
        self.shown.append(trajectory)
        return self.verdict


def replayer(
    replay: Replay, judge: Judge | None = None, timeout: float = 30.0, timed: Timed | None = None
) -> Replayer:
    return Replayer(
        replay,
        judge or Judge(),
        "shop",
        timed=timed or Timed(),
        timeout=timeout,
        redact=lambda text: text,
    )


def recorded(agent: Any, given: Any = None, config: RunnableConfig | None = None) -> Trajectory:
    agent.invoke(given or ask("bake bread"), config)
    return only(agent)


INPUTS: list[Any] = [
    {"messages": [HumanMessage("bake bread", id="u1")]},
    {
        "messages": [
            SystemMessage("Be kind.", id="s"),
            HumanMessage([{"type": "text", "text": "two parts"}], id="u"),
            AIMessage("", id="a", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c1"}]),
            ToolMessage("2", tool_call_id="c1", id="t", artifact={"raw": [1]}),
        ],
        "depth": {"nested": {"list": [1, 2.5, None, True, "x"], "message": HumanMessage("in")}},
    },
    {"question": "What is 6 times 7?", "options": {"type": "order", "data": {"number": 4711}}},
    {"type": "human", "data": {"name": "the user's own table"}},
    "a plain text",
    None,
    [1, {"a": []}],
]


@pytest.mark.parametrize("given", INPUTS, ids=str)
def test_a_recorded_input_is_restored(given: Any) -> None:
    assert restored(Plain(lambda text: text).value(given)) == given


@pytest.mark.parametrize(
    "given",
    [
        {"messages": [("user", "bake bread")]},
        {"messages": [{"role": "user", "content": "bake bread"}]},
        {"messages": "bake bread"},
    ],
    ids=str,
)
def test_short_forms_of_messages_replay_too(wrap: Wrap, given: Any) -> None:
    model, judge = EchoModel(), Judge()
    agent = wrap(talk(model))
    assert replayer(graph_replay(agent), judge).passed(recorded(agent, given), SKILLS) is True
    first, again = (prompt[-1] for prompt in model.prompts)
    assert first.content == again.content == "bake bread"
    assert judge.shown[0].task == "bake bread"


def test_a_replay_is_given_the_skills_on_trial_and_judged(wrap: Wrap) -> None:
    model, judge = EchoModel(), Judge()
    agent = wrap(talk(model))
    run = recorded(agent)
    assert replayer(graph_replay(agent), judge).passed(run, SKILLS) is True
    assert replayer(graph_replay(agent), judge).passed(run, NO_SKILLS) is True
    assert ["Salt it." in prompt for prompt in model.system_prompts()] == [False, True, False]
    shown = judge.shown[0]
    assert (shown.task, shown.outcome, shown.skills) == (run.task, "ok", SKILLS.hits)
    assert shown.output is not None
    assert shown.id != run.id


@pytest.mark.parametrize(
    ("reward", "passed"), [(1.0, True), (0.1, True), (0.0, False), (-1, False)]
)
def test_a_replay_passes_by_its_verdict(wrap: Wrap, reward: float, passed: bool) -> None:
    agent = wrap(talk())
    judge = Judge(Verdict(reward, "verifier"))
    assert replayer(graph_replay(agent), judge).passed(recorded(agent), SKILLS) is passed


def test_without_a_verdict_nobody_knows(wrap: Wrap) -> None:
    agent = wrap(talk())
    assert replayer(graph_replay(agent), Judge(None)).passed(recorded(agent), SKILLS) is None


def test_nothing_of_a_replay_is_stored(wrap: Wrap) -> None:
    """Neither in the ledger nor in the user's threads."""
    saver = InMemorySaver()
    agent = wrap(talk(saver=saver))
    run = recorded(agent, config={"configurable": {"thread_id": "theirs"}})
    before = {thread: len(list(saver.list(None))) for thread in saver.storage}
    judge = Judge()
    assert replayer(graph_replay(agent), judge).passed(run, SKILLS) is True
    assert {thread: len(list(saver.list(None))) for thread in saver.storage} == before
    assert list(saver.storage) == ["theirs"]
    assert len(judge.shown) == 1
    assert [one.id for one in stored(agent)] == [run.id]
    agent.invoke(ask("once more"), {"configurable": {"thread_id": "theirs"}})
    assert len(agent.get_state({"configurable": {"thread_id": "theirs"}}).values["messages"]) == 4


def test_a_replay_inside_another_graph_is_not_a_part_of_it(wrap: Wrap) -> None:
    """The learning graph may have a checkpointer, and its config is in the context."""
    saver, model = InMemorySaver(), EchoModel()
    agent = wrap(talk(model))
    paused = wrap(conversation(lambda state: {"messages": [interrupt("go on?")]}))
    run, found = recorded(agent), list[bool | None]()

    def learn(state: MessagesState) -> dict[str, Any]:
        found.append(replayer(graph_replay(agent)).passed(run, SKILLS))
        found.append(replayer(graph_replay(paused)).passed(run, SKILLS))
        return {}

    outer: Any = StateGraph(MessagesState)
    outer.add_node("learn", learn)
    outer.add_edge(START, "learn")
    outer.add_edge("learn", END)
    config: RunnableConfig = {"configurable": {"thread_id": "learning"}}
    outer.compile(checkpointer=saver).invoke({"messages": []}, config)
    assert found == [True, None]
    assert list(saver.storage["learning"]) == [""], "no checkpoints of subgraphs"
    assert "Salt it." in model.system_prompts()[-1]


def test_an_async_graph_is_replayed(wrap: Wrap) -> None:
    model, judge = EchoModel(), Judge()
    agent = wrap(atalk(model))
    asyncio.run(agent.ainvoke(ask("bake bread")))
    assert replayer(graph_replay(agent), judge).passed(only(agent), SKILLS) is True
    assert judge.shown[0].outcome == "ok"
    assert "Salt it." in model.system_prompts()[-1]


def test_an_agent_with_async_tools_is_replayed(wrap: Wrap) -> None:
    @tool
    async def oven(degrees: int) -> str:
        """Heat the oven."""
        return f"{degrees} degrees"

    answers = [calling("oven", {"degrees": 200}, "c1"), AIMessage("It is hot.")]
    agent = wrap(create_agent(scripted(*answers, *answers), [oven]))
    asyncio.run(agent.ainvoke(ask("heat the oven")))
    judge = Judge()
    assert replayer(graph_replay(agent), judge).passed(only(agent), SKILLS) is True
    assert [one.error for one in judge.shown[0].tools] == [None]
    assert "200 degrees" in str(judge.shown[0].messages)


@pytest.mark.parametrize("is_async", [False, True])
def test_the_users_own_replay(wrap: Wrap, is_async: bool) -> None:
    model, seen = EchoModel(), list[str]()
    agent = wrap(talk(model))
    run = recorded(agent)

    def replay(trajectory: Trajectory, config: RunnableConfig) -> Any:
        seen.append(trajectory.id)
        return agent.invoke(ask("in a sandbox"), config)

    async def areplay(trajectory: Trajectory, config: RunnableConfig) -> Any:
        seen.append(trajectory.id)
        return await agent.ainvoke(ask("in a sandbox"), config)

    judge = Judge()
    assert replayer(areplay if is_async else replay, judge).passed(run, SKILLS) is True
    assert seen == [run.id]
    assert "Salt it." in model.system_prompts()[-1]
    assert judge.shown[0].task == "in a sandbox"
    assert [one.id for one in stored(agent)] == [run.id]


def test_a_replay_that_ignores_the_config_says_nothing(wrap: Wrap) -> None:
    agent, judge = wrap(talk()), Judge()
    run = recorded(agent)
    assert replayer(lambda run, config: agent.invoke(ask("x")), judge).passed(run, SKILLS) is None
    assert replayer(lambda run, config: "no graph at all", judge).passed(run, SKILLS) is None
    assert judge.shown == []


def test_a_replay_that_does_not_get_as_far_as_the_graph_says_nothing(wrap: Wrap) -> None:
    run = recorded(wrap(talk()))

    def broken(run: Trajectory, config: RunnableConfig) -> Any:
        raise KeyError("sandbox")

    assert replayer(broken).passed(run, SKILLS) is None


@pytest.mark.parametrize(
    ("error", "passed"),
    [
        (ValueError("no such recipe"), False),
        (ConnectionError("connection refused"), None),
        (TimeoutError("read timed out"), None),
    ],
    ids=repr,
)
def test_a_graph_that_raises(wrap: Wrap, error: Exception, passed: bool | None) -> None:
    """A mistake is a failure; an outage says nothing about the skill."""

    def node(state: MessagesState) -> Any:
        raise error

    agent = wrap(conversation(node))
    with pytest.raises(type(error)):
        agent.invoke(ask("bake bread"))
    assert replayer(graph_replay(agent)).passed(only(agent), SKILLS) is passed


def test_a_replay_that_hangs_is_given_up(wrap: Wrap) -> None:
    hang, entered = threading.Event(), threading.Event()

    def node(state: MessagesState) -> Any:
        entered.set()
        hang.wait(60)
        return {}

    run = replace(recorded(wrap(talk())), input=ask("x"))
    agent = wrap(conversation(node))
    try:
        assert replayer(graph_replay(agent), timeout=0.5).passed(run, SKILLS) is None
        assert entered.is_set()
    finally:
        hang.set()


def test_a_replay_ends_when_the_program_does(wrap: Wrap) -> None:
    timed, hang = Timed(), threading.Event()
    run = recorded(wrap(talk()))

    def replay(run: Trajectory, config: RunnableConfig) -> None:
        timed.stop()
        hang.wait(60)

    try:
        with pytest.raises(StoppedError):
            replayer(replay, timed=timed).passed(run, SKILLS)
    finally:
        hang.set()
