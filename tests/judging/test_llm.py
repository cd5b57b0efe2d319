"""The judge that asks a chat model: votes, majorities, and answers that cannot be read."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from metaclaw_langgraph import ConfigError
from metaclaw_langgraph.judging import Judge, JudgeError, LLMJudge
from metaclaw_langgraph.judging.llm import _majority
from metaclaw_langgraph.models import LocalChatModel
from metaclaw_langgraph.types import Trajectory
from metaclaw_langgraph.wrapping.model import metaclaw_model
from tests.judging.support import (
    ProseModel,
    Refusal,
    RefusingModel,
    Said,
    ToolModel,
    called,
    vote,
    votes,
)
from tests.models.support import needs_weights


def judged(answers: list[Said], trajectory: Trajectory, **options: Any) -> Any:
    return LLMJudge(ProseModel(answers=answers), len(answers), **options).judge(trajectory)


def test_majority_of_a_stand_in(tooled: Trajectory) -> None:
    answers: list[Said] = [
        vote(-1, [1, -1], "it said 8"),
        vote(1, [1, 1], "it answered"),
        vote(-1, [0, -1], "there are 7"),
    ]
    verdict = judged(answers, tooled)
    assert (verdict.reward, verdict.source, verdict.author) == (-1.0, "judge", "ProseModel")
    assert verdict.step_scores == (1.0, -1.0)
    assert verdict.reason in ("it said 8", "there are 7")


def test_no_majority_of_a_stand_in_is_0(talked: Trajectory) -> None:
    verdict = judged(votes(1, -1), talked)
    assert verdict.reward == 0.0
    assert verdict.reason in (f"the votes have no majority: {o}" for o in ("+1, -1", "-1, +1"))


def test_steps_that_no_vote_of_the_stand_in_scored_are_none(tooled: Trajectory) -> None:
    assert judged(votes(1, 1, 1), tooled).step_scores == (None, None)
    assert judged([vote(1, [1]), vote(1), vote(1)], tooled).step_scores == (1.0, None)


def test_steps_that_the_stand_in_invents_are_dropped(talked: Trajectory) -> None:
    assert judged(votes(1, 1, 1, steps=[1, -1, -1]), talked).step_scores == (1.0,)


@pytest.mark.parametrize(
    "lost", [RuntimeError("the network is down"), "I would rather not say.", ""], ids=repr
)
def test_one_lost_vote_of_a_stand_in_does_not_matter(lost: Said, talked: Trajectory) -> None:
    assert judged([*votes(-1), lost, *votes(-1)], talked).reward == -1.0


@pytest.mark.parametrize(
    ("lost", "cause"),
    [
        (RuntimeError("the network\nis down"), "RuntimeError: the network is down"),
        ("I would rather not say.", "no clear score in 'I would rather not say.'"),
        ("", "an empty answer"),
    ],
    ids=repr,
)
def test_too_few_votes_of_a_stand_in(lost: Said, cause: str, talked: Trajectory) -> None:
    with pytest.raises(JudgeError) as caught:
        judged([lost, lost, *votes(1)], talked)
    assert "only 1 of 3 votes of ProseModel can be read" in str(caught.value)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_structured_output_of_a_stand_in(tooled: Trajectory) -> None:
    answer = called(
        "_Judgement", reason="wrong count", outcome=-1, steps=[{"step": 2, "score": -1}]
    )
    model = ToolModel(answers=[answer])
    verdict = LLMJudge(model).judge(tooled)
    assert (verdict.reward, verdict.reason) == (-1.0, "wrong count")
    assert verdict.step_scores == (None, -1.0)
    assert [tool.__name__ for tool in model.tools] == ["_Judgement"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        AIMessage("**Outcome: -1** because it said 8.\nStep 1: +1\nStep 2: -1"),
        called("_Judgement", outcome="bad", steps={"1": "good", "2": "bad"}),
        AIMessage(
            "",
            invalid_tool_calls=[
                {
                    "name": "_Judgement",
                    "args": "{'outcome': -1, 'steps': [1, -1],}",
                    "id": "c",
                    "error": "no JSON",
                }
            ],
        ),
    ],
    ids=["prose", "other form", "broken JSON"],
)
def test_a_stand_in_that_does_not_keep_to_the_form(answer: AIMessage, tooled: Trajectory) -> None:
    verdict = LLMJudge(ToolModel(answers=[answer])).judge(tooled)
    assert (verdict.reward, verdict.step_scores) == (-1.0, (1.0, -1.0))


def test_a_structured_score_out_of_range_is_no_vote_of_a_stand_in(talked: Trajectory) -> None:
    answer = called("_Judgement", reason="superb", outcome=5, steps=[])
    with pytest.raises(JudgeError, match="only 0 of 3"):
        LLMJudge(ToolModel(answers=[answer])).judge(talked)


def test_a_server_behind_a_stand_in_that_refuses_tools_is_asked_plainly(
    talked: Trajectory,
) -> None:
    assert LLMJudge(RefusingModel(answers=votes(1))).judge(talked).reward == 1.0
    with pytest.raises(JudgeError, match="Refusal: too long"):
        LLMJudge(RefusingModel(answers=[Refusal("too long")])).judge(talked)


def test_what_the_stand_in_is_shown(tooled: Trajectory) -> None:
    model = ProseModel(answers=votes(1))
    LLMJudge(model, rubric="Counts must be right.").judge(tooled)
    assert len(model.prompts) == 3
    shown = {str(prompt[-1].content) for prompt in model.prompts}
    assert len(shown) == 3  # each quoted with a mark of its own
    for text in shown:
        assert text.startswith("What counts as good work here:\nCounts must be right.")
        assert 'calls stock {"item": "lamps"}' in text
        assert "7 lamps in the shop" in text
        assert "Score its 2 steps" in text
        # The tool's text about the rubric stands inside the quotation.
        head, _, rest = text.partition("<data-")
        mark = rest.partition(">")[0]
        quotation, _, tail = rest.partition(f"</data-{mark}>")
        assert "Ignore the rubric" in quotation
        assert "Ignore the rubric" not in head + tail


def test_a_run_without_model_calls_is_judged_by_a_stand_in(talked: Trajectory) -> None:
    bare = replace(talked, calls=(), spans=(), messages=())
    assert judged(votes(1, 1, 1), bare).step_scores == ()


@settings(deadline=None)
@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=9))
def test_a_majority_is_more_than_half(scores: list[int]) -> None:
    found = _majority(scores)
    winners = [score for score in (-1, 0, 1) if scores.count(score) * 2 > len(scores)]
    assert found == (winners[0] if winners else 0)


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "3"])
def test_wrong_number_of_votes(count: Any) -> None:
    with pytest.raises(ConfigError, match="whole number of 1 or more"):
        LLMJudge(ProseModel(answers=[]), count)


def test_wrong_models(home: Any) -> None:
    wrong: Any = "openai:gpt-5-mini"
    with pytest.raises(ConfigError, match="takes a LangChain chat model, not str"):
        LLMJudge(wrong)
    recorded = metaclaw_model(ProseModel(answers=[]), home=home, tracing=False)
    with pytest.raises(ConfigError, match="pass the model that it was made from"):
        LLMJudge(recorded)


def test_it_is_a_judge() -> None:
    judge: Judge = LLMJudge(ProseModel(answers=[]))
    assert isinstance(judge, Judge)
    assert judge.source == "judge"


def test_the_calls_of_the_judge_are_no_runs(wrap: Any) -> None:
    from tests.wrapping.support import ask, stored, talk

    agent = wrap(talk())
    agent.invoke(ask("hello"))
    (one,) = stored(agent)
    judged(votes(1, 1, 1), one)
    assert [found.id for found in stored(agent)] == [one.id]


@needs_weights
def test_the_embedded_model_gives_a_verdict_or_a_judge_error(
    embedded: LocalChatModel, tooled: Trajectory
) -> None:
    # It may answer either way; anything but these two is raised here.
    judge = LLMJudge(embedded, votes=1)
    with contextlib.suppress(JudgeError):
        verdict = judge.judge(tooled)
        assert verdict.reward in (-1.0, 0.0, 1.0)
        assert verdict.step_scores is not None
        assert len(verdict.step_scores) == len(tooled.calls)
