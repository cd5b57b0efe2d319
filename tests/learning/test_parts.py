"""What may be given as judge, evolver and replay, and what is said about anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph import (
    ConfigError,
    MetaClawConfig,
    MetaClawError,
    MissingExtraError,
    metaclaw_model,
)
from metaclaw_langgraph.evolving.llm import LLMEvolver
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.judging.llm import LLMJudge
from metaclaw_langgraph.judging.verifier import VerifierJudge
from metaclaw_langgraph.learning.parts import Parts, parts_for
from tests.judging.support import ProseModel
from tests.learning.conftest import Learn
from tests.learning.support import SomeJudge, StandInEvolver, says
from tests.wrapping.support import talk


def parts(tmp_path: Path, **given: Any) -> Parts:
    settings = {name: given.pop(name) for name in ("judging", "evolving") if name in given}
    return parts_for(MetaClawConfig.load(home=tmp_path, tracing=False, **settings), **given)


def test_what_is_there_without_anything_given(tmp_path: Path) -> None:
    found = parts(tmp_path)
    assert found.judges == ()
    assert isinstance(found.evolver, OfflineEvolver)
    assert found.replay is None


def test_a_function_a_model_a_judge_or_several(tmp_path: Path) -> None:
    def check(trajectory: Any) -> bool:
        return True

    model, mine = ProseModel(answers=[""]), says(1, "verifier")
    assert isinstance(parts(tmp_path, judge=check).judges[0], VerifierJudge)
    assert isinstance(parts(tmp_path, judge=model).judges[0], LLMJudge)
    assert parts(tmp_path, judge=mine).judges == (mine,)
    several = parts(tmp_path, judge=[model, check, mine]).judges
    assert [one.source for one in several] == ["verifier", "verifier", "judge"]
    assert parts(tmp_path, judge=[]).judges == ()


def test_a_model_or_an_evolver_writes(tmp_path: Path) -> None:
    mine = StandInEvolver()
    assert parts(tmp_path, evolver=mine).evolver is mine
    assert isinstance(parts(tmp_path, evolver=ProseModel(answers=[""])).evolver, LLMEvolver)


WRONG: dict[str, dict[str, Any]] = {
    "a judge that is a number": {"judge": 7},
    "a judge that is a name": {"judge": "openai:gpt-5-mini"},
    "a judge that is a class": {"judge": SomeJudge},
    "a list with a number": {"judge": [says(1), 7]},
    "an evolver that is a name": {"evolver": "openai:gpt-5-mini"},
    "an evolver that is a function": {"evolver": lambda failures: []},
    "an evolver that is a class": {"evolver": StandInEvolver},
    "a replay that is a word": {"replay": "yes"},
    "a replay that is a number": {"replay": 1},
}


@pytest.mark.parametrize("given", WRONG.values(), ids=list(WRONG))
def test_anything_else_is_refused_in_one_line_when_the_graph_is_wrapped(
    learning: Learn, given: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))}=") as refused:
        learning(talk(), **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", ["judge", "evolver"])
def test_a_model_whose_calls_are_runs_is_refused(learning: Learn, home: Path, option: str) -> None:
    model = metaclaw_model(
        ProseModel(answers=[""]), home=home, tracing=False, retrieval={"warmup": 0}
    )
    with pytest.raises(ConfigError, match="metaclaw_model"):
        learning(talk(), **{option: model})


@pytest.mark.parametrize("section", ["judging", "evolving"])
def test_a_model_whose_package_is_missing_is_told_when_the_graph_is_wrapped(
    learning: Learn, section: str
) -> None:
    with pytest.raises(MissingExtraError, match=rf"{section}\.model") as missing:
        learning(talk(), **{section: {"model": "mistralai:mistral-large"}})
    assert "langchain-mistralai" in str(missing.value)


@pytest.mark.parametrize("section", ["judging", "evolving"])
def test_a_provider_that_does_not_exist(learning: Learn, section: str) -> None:
    with pytest.raises(MetaClawError, match=rf"{section}\.model = 'nobody:model'"):
        learning(talk(), **{section: {"model": "nobody:model"}})


def test_a_wrapping_that_was_refused_leaves_the_way_free(learning: Learn) -> None:
    with pytest.raises(ConfigError):
        learning(talk(), judge=7)
    agent = learning(talk(), judge=says(1))
    assert agent.metaclaw.learn(60)
