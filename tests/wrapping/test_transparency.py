"""A wrapped graph cannot be told from the bare one, by anything that a caller can observe.

Every graph and every probe is run bare and wrapped and compared after numbering ids. It is done
twice: without skills, where everything must be equal, and with a skill in every prompt, where
everything must be equal that is not the prompt itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.config import MetaClawConfig
from tests.wrapping.graphs import GRAPHS, Case
from tests.wrapping.normal import comparable
from tests.wrapping.probes import ASYNC_PROBES, PROBES, Watcher
from tests.wrapping.skilled_home import SKILL_TEXT, add_skill

SHOWS_PROMPTS = {"callbacks", "events_v2", "events_v3", "aevents_v3"}
"""Probes that see what goes into the model: with skills they differ by the skills."""


@pytest.fixture(scope="module")
def bare_home(tmp_path_factory: pytest.TempPathFactory) -> MetaClawConfig:
    return _config(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def skilled_home(tmp_path_factory: pytest.TempPathFactory) -> MetaClawConfig:
    config = _config(tmp_path_factory.mktemp("skilled"))
    add_skill(config)
    return config


def _config(home: Path) -> MetaClawConfig:
    # Any score will do, and no miss on a busy machine: the skill must be in every prompt.
    retrieval = {"min_score": -1, "deadline": 20}
    return MetaClawConfig.load(home=home, draw=False, tracing=False, retrieval=retrieval)


def _maker(case: Case, config: MetaClawConfig | None) -> Callable[..., Any]:
    def make(saver: Any) -> Any:
        graph = case.build(saver)
        return graph if config is None else with_metaclaw(graph, config)

    return make


def assert_equal(case: Case, wrapped: Any, bare: Any) -> None:
    assert comparable(wrapped, ordered=case.ordered) == comparable(bare, ordered=case.ordered)


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", GRAPHS)
def test_sync(name: str, probe: str, bare_home: MetaClawConfig) -> None:
    case = GRAPHS[name]
    bare = PROBES[probe](_maker(case, None), case)
    wrapped = PROBES[probe](_maker(case, bare_home), case)
    assert_equal(case, wrapped, bare)


@pytest.mark.parametrize("probe", ASYNC_PROBES)
@pytest.mark.parametrize("name", GRAPHS)
async def test_async(name: str, probe: str, bare_home: MetaClawConfig) -> None:
    case = GRAPHS[name]
    bare = await ASYNC_PROBES[probe](_maker(case, None), case)
    wrapped = await ASYNC_PROBES[probe](_maker(case, bare_home), case)
    assert_equal(case, wrapped, bare)


@pytest.mark.parametrize("probe", sorted(PROBES.keys() - SHOWS_PROMPTS))
@pytest.mark.parametrize("name", GRAPHS)
def test_sync_with_skills(name: str, probe: str, skilled_home: MetaClawConfig) -> None:
    case = GRAPHS[name]
    bare = PROBES[probe](_maker(case, None), case)
    wrapped = PROBES[probe](_maker(case, skilled_home), case)
    assert_equal(case, wrapped, bare)


@pytest.mark.parametrize("probe", sorted(ASYNC_PROBES.keys() - SHOWS_PROMPTS))
@pytest.mark.parametrize("name", GRAPHS)
async def test_async_with_skills(name: str, probe: str, skilled_home: MetaClawConfig) -> None:
    case = GRAPHS[name]
    bare = await ASYNC_PROBES[probe](_maker(case, None), case)
    wrapped = await ASYNC_PROBES[probe](_maker(case, skilled_home), case)
    assert_equal(case, wrapped, bare)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_skill_is_in_every_prompt(name: str, skilled_home: MetaClawConfig) -> None:
    """The comparisons above mean something only if skills were really injected."""
    prompts: list[list[BaseMessage]] = []

    class Spy(Watcher):
        def on_chat_model_start(self, serialized: Any, messages: Any, **kw: Any) -> None:
            prompts.extend(messages)

    case = GRAPHS[name]
    graph = _maker(case, skilled_home)(None)
    graph.invoke(case.input, {"callbacks": [Spy()]}, context=case.context)
    assert prompts
    for prompt in prompts:
        system = [m for m in prompt if m.type == "system"]
        assert len(system) == 1
        assert prompt[0] is system[0]
        assert str(system[0].content).count(SKILL_TEXT) == 1
