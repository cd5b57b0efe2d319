"""The user's own check."""

from __future__ import annotations

import asyncio
import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclaw_langgraph import ConfigError, MetaClawError
from metaclaw_langgraph.judging import Judge, JudgeError, VerifierJudge
from metaclaw_langgraph.types import Trajectory, Verdict


def judged(result: Any, trajectory: Trajectory) -> Verdict | None:
    return VerifierJudge(lambda _: result, "check").judge(trajectory)


@pytest.mark.parametrize(
    ("result", "reward", "reason"),
    [
        (True, 1.0, ""),
        (False, -1.0, ""),
        (0, 0.0, ""),
        (1, 1.0, ""),
        (-0.25, -0.25, ""),
        ((False, "too long"), -1.0, "too long"),
        ((0.5, "half of it"), 0.5, "half of it"),
        (np.bool_(False), -1.0, ""),
        (np.float32(0.5), 0.5, ""),
    ],
    ids=repr,
)
def test_results(result: Any, reward: float, reason: str, talked: Trajectory) -> None:
    assert judged(result, talked) == Verdict(reward, "verifier", reason, author="check")


def test_the_check_sees_the_run(talked: Trajectory) -> None:
    def echoes(trajectory: Trajectory) -> tuple[bool, str]:
        return "echo Name the capital" in str(trajectory.output), "it must echo"

    judge: Judge = VerifierJudge(echoes)
    assert isinstance(judge, Judge)
    assert (judge.source, judge.name) == ("verifier", "echoes")
    assert judge.judge(talked) == Verdict(1.0, "verifier", "it must echo", author="echoes")


def test_no_opinion(talked: Trajectory) -> None:
    assert judged(None, talked) is None


def test_a_verdict_stays_a_verifiers(talked: Trajectory) -> None:
    given = Verdict(0.5, "human", "fine", step_scores=(1.0,), origin="suite:7")
    found = judged(given, talked)
    assert found == Verdict(
        0.5, "verifier", "fine", author="check", step_scores=(1.0,), origin="suite:7"
    )


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("good", "returned str;"),
        ([True], "returned list;"),
        (2, "returned the number 2;"),
        (math.nan, "returned the number nan;"),
        (math.inf, "returned the number inf;"),
        ((True,), "returned a tuple of 1;"),
        ((True, None), "returned a reason of type NoneType;"),
        (("yes", "why"), "returned str;"),
        (Verdict(3, "verifier"), "returned the number 3;"),
        (Verdict(1, "verifier", step_scores=(1.0, 1.0)), "returned 2 step scores for 1 model c"),
    ],
    ids=repr,
)
def test_wrong_results(result: Any, problem: str, talked: Trajectory) -> None:
    with pytest.raises(JudgeError) as caught:
        judged(result, talked)
    assert f"the check 'check' {problem}" in str(caught.value)
    assert "return True or False" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, MetaClawError)


async def checked(trajectory: Trajectory, wanted: str = "echo") -> bool:
    await asyncio.sleep(0)
    return wanted in str(trajectory.output)


def test_async_checks(talked: Trajectory) -> None:
    found = VerifierJudge(checked).judge(talked)
    assert found is not None
    assert (found.reward, found.author) == (1.0, "checked")
    other = VerifierJudge(functools.partial(checked, wanted="Paris")).judge(talked)
    assert other is not None
    assert (other.reward, other.author) == (-1.0, "partial")


async def test_async_checks_where_an_event_loop_runs(talked: Trajectory) -> None:
    found = VerifierJudge(checked).judge(talked)
    assert found is not None
    assert found.reward == 1.0


def test_what_the_check_raises_is_raised(talked: Trajectory) -> None:
    def broken(trajectory: Trajectory) -> bool:
        raise KeyError("answer")

    with pytest.raises(KeyError, match="answer"):
        VerifierJudge(broken).judge(talked)


def test_no_function() -> None:
    wrong: Any = "check"
    with pytest.raises(ConfigError, match="takes a function of a trajectory, not str"):
        VerifierJudge(wrong)


@settings(deadline=None)
@given(st.floats(-1, 1))
def test_a_number_is_the_reward(reward: float) -> None:
    run: Any = None
    found = judged(reward, run)
    assert found is not None
    assert found.reward == reward
