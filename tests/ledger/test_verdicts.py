"""Verdicts decide what a trajectory may be used for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Role, Trajectory, Verdict, VerdictSource

Build = Callable[..., Trajectory]


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ([("judge", 0.5)], "query"),
        ([("judge", 0.0)], "unjudged"),
        ([("judge", -0.0)], "unjudged"),
        ([("verifier", 0.0)], "support"),
        ([("human", 0.0)], "support"),
        ([("judge", 1.0), ("judge", 0.0)], "query"),
        ([("run", -1.0), ("judge", 0.0)], "support"),
        ([("judge", 0.0), ("judge", -1.0)], "support"),
        ([("judge", 0.0), ("human", 1.0)], "query"),
        ([("run", -1.0)], "support"),
        ([("human", 1.0), ("verifier", -1.0), ("judge", -1.0), ("run", -1.0)], "query"),
        ([("run", 1.0), ("judge", -1.0)], "support"),
        ([("judge", -1.0), ("verifier", 1.0)], "query"),
        ([("judge", 1.0), ("judge", -1.0)], "support"),
        ([("human", -1.0), ("human", 1.0), ("judge", -1.0)], "query"),
    ],
)
def test_the_highest_and_then_the_latest_verdict_wins(
    ledger: Ledger, trajectory: Build, given: list[tuple[VerdictSource, float]], role: Role
) -> None:
    ledger.add_trajectories([trajectory("t")])
    answers = [ledger.add_verdict("agent", "t", Verdict(reward, who)) for who, reward in given]
    assert answers[-1] == role
    assert ledger.trajectory("agent", "t").role == role
    assert [(v.source, v.reward) for v in ledger.verdicts("agent", "t")] == given


def test_of_one_rank_the_verdict_that_was_given_later_wins(
    ledger: Ledger, trajectory: Build
) -> None:
    """And not the one that arrived later: feedback is fetched minutes after it was given."""
    ledger.add_trajectories([trajectory("t"), trajectory("u")])
    ten = datetime(2026, 5, 1, 10, tzinfo=UTC)
    good = Verdict(1.0, "human", "fine", at=ten + timedelta(minutes=3))
    assert ledger.add_verdict("agent", "t", good) == "query"
    late = Verdict(-1.0, "human", "thumbs down", at=ten, origin="mlflow:1")
    assert ledger.add_verdict("agent", "t", late) == "query"
    assert ledger.trajectories("agent", role="query")[0].reward == 1.0
    assert [one.verdict for one in ledger.successes("agent", limit=9)] == [good]
    # At the same moment, the one that arrived later.
    same = replace(late, at=good.at, origin="mlflow:2")
    assert ledger.add_verdict("agent", "t", same) == "support"
    assert [one.verdict for one in ledger.failures("agent", limit=9)] == [same]
    # Without a time it is given now, which is after all of these.
    assert ledger.add_verdict("agent", "u", Verdict(1.0, "human")) == "query"
    assert ledger.add_verdict("agent", "u", late) == "query"
    assert ledger.add_verdict("agent", "t", Verdict(0.5, "human")) == "query"


def test_a_judge_that_cannot_tell_is_on_record_and_nothing_else(
    ledger: Ledger, trajectory: Build
) -> None:
    ledger.add_trajectories([trajectory("t")])
    assert ledger.add_verdict("agent", "t", Verdict(0.0, "judge", "a split vote")) == "unjudged"
    assert ledger.trajectories("agent")[0].reward is None
    assert [one.reason for one in ledger.verdicts("agent", "t")] == ["a split vote"]
    assert ledger.failures("agent", limit=9) == ledger.successes("agent", limit=9) == []
    assert ledger.failures_after("agent", 0, limit=9) == ([], 0)
    assert ledger.drain_query("agent", "run").trajectories == ()


def test_a_verdict_comes_back_whole(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t")])
    at = datetime(2026, 5, 1, tzinfo=UTC)
    full = Verdict(-0.25, "judge", "too \x00 long", "judge-v1", (0.5, -1.0), at)
    ledger.add_verdict("agent", "t", full)
    (found,) = ledger.verdicts("agent", "t")
    assert found == Verdict(-0.25, "judge", "too \ufffd long", "judge-v1", (0.5, -1.0), at)
    ledger.add_verdict("agent", "t", Verdict(1.0, "judge"))
    assert ledger.verdicts("agent", "t")[1].at is not None


@pytest.mark.parametrize("outcome", ["interrupted", "cancelled"])
def test_only_a_human_judges_what_did_not_end(
    ledger: Ledger, trajectory: Build, outcome: str
) -> None:
    ledger.add_trajectories([trajectory("t", outcome=outcome)])
    assert ledger.add_verdict("agent", "t", Verdict(1.0, "judge")) == "unjudged"
    assert ledger.trajectories("agent")[0].reward is None
    assert ledger.add_verdict("agent", "t", Verdict(-1.0, "human")) == "support"
    assert ledger.trajectories("agent")[0].reward == -1.0


@pytest.mark.parametrize("generation", [0, None, 2])
def test_what_was_sampled_under_another_generation_is_never_query(
    ledger: Ledger, trajectory: Build, generation: int | None
) -> None:
    ledger.commit_generation("agent", expected=0, reason="one")
    ledger.add_trajectories([trajectory("t", generation=generation)])
    assert ledger.add_verdict("agent", "t", Verdict(1.0, "human")) == "stale"
    assert ledger.add_verdict("agent", "t", Verdict(-1.0, "human")) == "support"


def test_what_was_used_keeps_its_role(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("c", role="consumed"), trajectory("t", role="trained")])
    assert ledger.add_verdict("agent", "c", Verdict(1.0, "human")) == "consumed"
    assert ledger.add_verdict("agent", "t", Verdict(-1.0, "human")) == "trained"


@pytest.mark.parametrize("reward", [1.01, -2.0, float("nan"), float("inf")])
def test_a_reward_out_of_range_is_refused(ledger: Ledger, trajectory: Build, reward: float) -> None:
    ledger.add_trajectories([trajectory("t")])
    with pytest.raises(ValueError, match="from -1 to 1"):
        ledger.add_verdict("agent", "t", Verdict(reward, "human"))
    assert ledger.verdicts("agent", "t") == []


def test_an_unknown_source_or_trajectory_is_refused(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t")])
    with pytest.raises(ValueError, match="one of run, judge, verifier, human"):
        ledger.add_verdict("agent", "t", Verdict(1.0, "crowd"))  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="no trajectory 'x'"):
        ledger.add_verdict("agent", "x", Verdict(1.0, "human"))


def test_a_verdict_from_one_origin_counts_once(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t"), trajectory("u"), trajectory("t", namespace="other")])
    bad = Verdict(-1.0, "human", "no", origin="assessment-1")
    assert ledger.add_verdict("agent", "t", bad) == "support"
    assert ledger.add_verdict("agent", "t", Verdict(1.0, "human")) == "query"
    again = Verdict(-0.5, "human", "still no", origin="assessment-1")
    assert ledger.add_verdict("agent", "t", again) == "query"
    assert [(v.reward, v.origin) for v in ledger.verdicts("agent", "t")] == [
        (-1.0, "assessment-1"),
        (1.0, None),
    ]
    assert ledger.add_verdict("agent", "u", bad) == "support"
    assert ledger.add_verdict("other", "t", bad) == "support"
    changed = Verdict(-1.0, "human", origin="assessment-2")
    assert ledger.add_verdict("agent", "t", changed) == "support"


def test_steps_that_nobody_scored_stay_so(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t")])
    ledger.add_verdict("agent", "t", Verdict(1.0, "judge", step_scores=(None, 1.0, None)))
    assert ledger.verdicts("agent", "t")[0].step_scores == (None, 1.0, None)


def test_the_last_verdict_has_a_number_that_grows(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t"), trajectory("t", namespace="other")])
    assert ledger.last_verdict("agent") == 0
    ledger.add_verdict("agent", "t", Verdict(1.0, "judge"))
    first = ledger.last_verdict("agent")
    ledger.add_verdict("other", "t", Verdict(1.0, "judge"))
    assert ledger.last_verdict("agent") == first > 0
    ledger.add_trajectories([trajectory("u", outcome="failed")])
    assert ledger.last_verdict("agent") > first
