"""`metaclaw_model` and `MetaClawMiddleware`: skills for one model, nothing process-wide."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from metaclaw_langgraph import ConfigError, MetaClawConfig, MetaClawMiddleware, metaclaw_model
from metaclaw_langgraph import runtime as runtimes
from tests.wrapping.conftest import Wrap, close_runtimes
from tests.wrapping.embedders import TOPICS
from tests.wrapping.graphs import GRAPHS, calling, scripted
from tests.wrapping.normal import comparable
from tests.wrapping.probes import ASYNC_PROBES, PROBES
from tests.wrapping.skilled_home import SKILL_TEXT, add_skill
from tests.wrapping.support import EchoModel, ask, counted, run_python, stored, talk

SETTINGS: dict[str, Any] = {
    "hook": False,
    "tracing": False,
    "retrieval": {"min_score": -1, "deadline": 20, "embedder": TOPICS},
}


@pytest.fixture
def config(home: Path) -> Iterator[MetaClawConfig]:
    before = set(runtimes._runtimes.values())
    config = MetaClawConfig.load(home=home, **SETTINGS)
    add_skill(config)
    yield config
    close_runtimes(set(runtimes._runtimes.values()) - before)


def has_skill(model: EchoModel) -> list[bool]:
    return [prompt.count(SKILL_TEXT) == 1 for prompt in model.system_prompts()]


def stored_by(model: Any) -> list[Any]:
    class Agent:
        metaclaw = type(model).metaclaw

    return stored(Agent)


def test_each_way_to_call_a_model_has_the_skill_once(config: MetaClawConfig) -> None:
    inner = EchoModel()
    model = metaclaw_model(inner, config)
    assert model.invoke("one").content == "echo one"
    assert [c.content for c in model.stream("two")] == ["echo two"]
    assert [m.content for m in model.batch(["three", "four"])] == ["echo three", "echo four"]
    assert model.generate([[HumanMessage("five")]]).generations[0][0].text == "echo five"
    assert has_skill(inner) == [True] * 5
    assert len(stored_by(model)) == 5


def test_streaming_events_as_well(config: MetaClawConfig) -> None:
    model = metaclaw_model(scripted("It is five."), config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newest way is still marked as beta
        assert model.stream_events("six", version="v3").output.text == "It is five."
    (trajectory,) = stored_by(model)
    assert SKILL_TEXT in str(trajectory.messages[0])
    assert (trajectory.task, trajectory.outcome) == ("six", "ok")


async def test_each_async_way_as_well(config: MetaClawConfig) -> None:
    inner = EchoModel()
    model = metaclaw_model(inner, config)
    assert (await model.ainvoke("one")).content == "echo one"
    assert [c.content async for c in model.astream("two")] == ["echo two"]
    assert [m.content for m in await model.abatch(["three"])] == ["echo three"]
    assert has_skill(inner) == [True] * 3
    assert [(t.task, t.outcome) for t in stored_by(model)] == [
        ("one", "ok"),
        ("two", "ok"),
        ("three", "ok"),
    ]


def test_it_is_the_same_kind_of_model(config: MetaClawConfig) -> None:
    inner = EchoModel()
    model = metaclaw_model(inner, config)
    assert isinstance(model, EchoModel)
    assert type(model).__name__ == "EchoModel"
    assert metaclaw_model(model, config) is model
    assert model.model_dump() == inner.model_dump()
    inner.invoke("bare")
    assert has_skill(inner) == [False]  # the original is untouched


def test_tools_and_structured_output_keep_the_skill(config: MetaClawConfig) -> None:
    class Answer(BaseModel):
        """An answer."""

        text: str

    @tool
    def look(name: str) -> str:
        """Look it up."""
        return name

    seen: list[str] = []

    class Spy(type(scripted())):  # type: ignore[misc]
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(str(messages[0].content))
            return super()._generate(messages, *args, **kwargs)

    def spy(*answers: Any) -> Any:
        return metaclaw_model(Spy(messages=iter(answers)), config)

    spy(calling("look", {"name": "x"}, "c1")).bind_tools([look]).invoke("go")
    structured = spy(calling("Answer", {"text": "x"}, "c2")).with_structured_output(Answer)
    assert structured.invoke("go") == Answer(text="x")
    assert [SKILL_TEXT in text for text in seen] == [True, True]


def test_something_else_than_a_model_is_refused(config: MetaClawConfig) -> None:
    with pytest.raises(ConfigError, match="takes a LangChain chat model, not _ChatModelBinding"):
        metaclaw_model(EchoModel().bind(stop=["x"]), config)  # type: ignore[type-var]


def test_inside_a_wrapped_graph_there_is_one_trajectory(
    config: MetaClawConfig, home: Path, wrap: Wrap
) -> None:
    inner = EchoModel()
    agent = wrap(talk(metaclaw_model(inner, config)), **SETTINGS)
    agent.invoke(ask("hello"))
    (trajectory,) = stored(agent)
    assert has_skill(inner) == [True]
    assert (trajectory.task, len(trajectory.calls)) == ("hello", 1)
    assert [hit.injected for hit in trajectory.skills] == [True]


def test_an_agent_with_the_middleware(config: MetaClawConfig, home: Path, wrap: Wrap) -> None:
    inner = EchoModel()
    middleware = MetaClawMiddleware(config)
    agent = create_agent(inner, system_prompt="Be kind.", middleware=[middleware])
    assert agent.invoke(ask("hello"))["messages"][-1].content == "echo hello"
    assert inner.system_prompts()[0].startswith("Be kind.\n\n<metaclaw_skills ")
    whole = wrap(agent, **SETTINGS)
    whole.invoke(ask("again"))
    assert has_skill(inner) == [True, True]
    assert [t.task for t in stored(whole)] == ["hello", "again"]


@pytest.mark.parametrize("probe", ["invoke", "stream_updates", "states", "schemas", "resume"])
def test_the_middleware_changes_nothing_else(probe: str, config: MetaClawConfig) -> None:
    def make(*middleware: Any) -> Any:
        def build(saver: Any) -> Any:
            model = scripted("It is five.")
            return create_agent(model, middleware=list(middleware), checkpointer=saver)

        return build

    case = GRAPHS["agent"]
    bare = comparable(PROBES[probe](make(), case))
    with_it = comparable(PROBES[probe](make(MetaClawMiddleware(config)), case))
    assert with_it == bare


async def test_the_middleware_works_async(config: MetaClawConfig) -> None:
    inner = EchoModel()
    agent = create_agent(inner, middleware=[MetaClawMiddleware(config)])
    result = await ASYNC_PROBES["ainvoke"](lambda saver: agent, GRAPHS["agent"])
    assert result["messages"][-1].content.startswith("echo ")
    assert has_skill(inner) == [True]


def test_a_fault_of_ours_leaves_the_model_as_it_was(
    config: MetaClawConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = EchoModel()
    model = metaclaw_model(inner, config)

    class Agent:
        metaclaw = type(model).metaclaw  # type: ignore[attr-defined]

    def broken(*args: Any) -> Any:
        raise OSError("boom")

    monkeypatch.setattr(Agent.metaclaw, "new_run", broken)
    assert model.invoke("one").content == "echo one"
    monkeypatch.setattr("metaclaw_langgraph.wrapping.model._skilled_class", broken)
    agent = create_agent(inner, middleware=[MetaClawMiddleware(config)])
    assert agent.invoke(ask("two"))["messages"][-1].content == "echo two"
    assert counted(Agent, "capture", "start") == 1
    assert counted(Agent, "boundary", "model") == 1


def test_the_base_class_is_left_alone(config: MetaClawConfig) -> None:
    code = f"""
from langchain_core.language_models.chat_models import BaseChatModel
before = dict(vars(BaseChatModel))
from metaclaw_langgraph import MetaClawConfig, metaclaw_model, with_metaclaw
from tests.wrapping.support import EchoModel, ask, talk
from tests.wrapping.skilled_home import SKILL_TEXT
config = MetaClawConfig.load(home={str(config.home)!r}, **{SETTINGS!r})
inner = EchoModel()
agent = with_metaclaw(talk(metaclaw_model(inner, config)), config)
agent.invoke(ask("hello"))
assert SKILL_TEXT in inner.system_prompts()[0]
bare = EchoModel()
with_metaclaw(talk(bare), config).invoke(ask("hello"))
assert bare.system_prompts() == [""]
assert all(vars(BaseChatModel)[name] is value for name, value in before.items()
           if callable(value))
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
