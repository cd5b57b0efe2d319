"""What waits for a judge, what is tried again, and how the judge compares with people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger import Agreement, JudgingCounts, Ledger
from metaclaw_langgraph.types import Trajectory, Verdict

Build = Callable[..., Trajectory]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)


def ids(ledger: Ledger, now: datetime = LATER, since: datetime = NOON, limit: int = 9) -> list[str]:
    return [run.id for run in ledger.unjudged("agent", since=since, now=now, limit=limit)]


def never(tries: int) -> None:
    """Not asked again."""


def test_only_runs_that_ended_well_wait_for_a_judge(ledger: Ledger, trajectory: Build) -> None:
    batch = [
        trajectory("late", minute=5),
        trajectory("early", minute=1),
        trajectory("old", minute=-60),
        trajectory("judged", minute=2),
        trajectory("failed", minute=2, outcome="failed"),
        trajectory("stopped", minute=2, outcome="interrupted"),
        trajectory("cancelled", minute=2, outcome="cancelled"),
        trajectory("elsewhere", minute=2, namespace="other"),
    ]
    ledger.add_trajectories(batch)
    ledger.add_verdict("agent", "judged", Verdict(1.0, "verifier"))
    assert ids(ledger) == ["late", "early"]
    assert ids(ledger, limit=1) == ["late"]
    assert ids(ledger, since=NOON - timedelta(hours=2)) == ["late", "early", "old"]
    assert ledger.unjudged("agent", since=NOON, now=LATER, limit=1) == [batch[0]]


def test_a_judge_that_could_not_tell_is_not_asked_again(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t"), trajectory("u"), trajectory("t", namespace="other")])
    ledger.add_verdict("agent", "t", Verdict(0.0, "judge", "a split vote"))
    assert ids(ledger) == ["u"]
    assert ledger.judging_counts("agent", since=NOON) == JudgingCounts(waiting=1)
    assert ledger.judging_counts("other", since=NOON) == JudgingCounts(waiting=1)


def test_a_judge_that_failed_is_asked_again_when_it_is_time(
    ledger: Ledger, trajectory: Build
) -> None:
    ledger.add_trajectories([trajectory("t"), trajectory("u")])

    def again(tries: int) -> datetime | None:
        return NOON + timedelta(minutes=5 * 4 ** (tries - 1)) if tries < 3 else None

    assert ledger.judge_failed("agent", "t", "timed out", again) == 1
    assert ids(ledger, now=NOON + timedelta(minutes=4, seconds=59)) == ["u"]
    assert ids(ledger, now=NOON + timedelta(minutes=5)) == ["u", "t"]
    assert ledger.judge_failed("agent", "t", "timed out", again) == 2
    assert ids(ledger, now=NOON + timedelta(minutes=19)) == ["u"]
    assert ids(ledger, now=NOON + timedelta(minutes=20)) == ["u", "t"]
    assert ledger.judging_counts("agent", since=NOON) == JudgingCounts(waiting=1, retrying=1)
    assert ledger.judge_failed("agent", "t", "timed out", again) == 3
    assert ids(ledger, now=NOON + timedelta(days=999)) == ["u"]
    assert ledger.judging_counts("agent", since=NOON) == JudgingCounts(waiting=1, given_up=1)
    assert ledger.judging_counts("agent", since=LATER) == JudgingCounts()
    # A failed judge is no verdict.
    assert ledger.trajectory("agent", "t").role == "unjudged"
    ledger.add_verdict("agent", "t", Verdict(1.0, "human"))
    assert ledger.judging_counts("agent", since=NOON) == JudgingCounts(waiting=1)


def test_a_judge_without_an_opinion_is_not_asked_again(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t")])
    assert ledger.judge_failed("agent", "t", "no opinion", never) == 1
    assert ids(ledger, now=NOON + timedelta(days=999)) == []
    assert ledger.judging_counts("agent", since=NOON) == JudgingCounts(given_up=1)


def test_an_unknown_trajectory_is_refused(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t")])
    with pytest.raises(NotFoundError, match="no trajectory 'x'"):
        ledger.judge_failed("agent", "x", "no", never)
    with pytest.raises(NotFoundError, match="no trajectory 't'"):
        ledger.judge_failed("other", "t", "no", never)


def test_agreements_are_of_the_latest_and_highest_verdicts(
    ledger: Ledger, trajectory: Build
) -> None:
    given: dict[str, list[Verdict]] = {
        "agree": [Verdict(1.0, "judge"), Verdict(0.5, "verifier")],
        "changed": [
            Verdict(-1.0, "human"),
            Verdict(-1.0, "judge"),
            Verdict(1.0, "human"),
            Verdict(1.0, "judge"),
        ],
        "human": [Verdict(1.0, "judge"), Verdict(-1.0, "human"), Verdict(1.0, "verifier")],
        "late": [
            Verdict(0.0, "judge", at=LATER),
            Verdict(1.0, "judge", at=NOON),
            Verdict(1.0, "human", at=LATER),
            Verdict(-1.0, "human", at=NOON),
        ],
        "judge only": [Verdict(1.0, "judge")],
        "human only": [Verdict(1.0, "human")],
    }
    ledger.add_trajectories([trajectory(id) for id in given])
    for id, verdicts in given.items():
        for verdict in verdicts:
            ledger.add_verdict("agent", id, verdict)
    assert ledger.agreements("agent") == [
        Agreement("agree", 1.0, 0.5, "verifier"),
        Agreement("changed", 1.0, 1.0, "human"),
        Agreement("human", 1.0, -1.0, "human"),
        Agreement("late", 0.0, 1.0, "human"),
    ]
    assert ledger.agreements("other") == []


def test_a_verifier_is_no_reference_for_what_did_not_end(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t", outcome="interrupted")])
    ledger.add_verdict("agent", "t", Verdict(1.0, "judge"))
    ledger.add_verdict("agent", "t", Verdict(-1.0, "verifier"))
    assert ledger.agreements("agent") == []
    ledger.add_verdict("agent", "t", Verdict(-0.5, "human"))
    assert ledger.agreements("agent") == [Agreement("t", 1.0, -0.5, "human")]


def test_agreements_cost_what_the_judge_has_judged(sqlite_url: str, trajectory: Build) -> None:
    """They are asked for every few seconds, and a verifier may have judged every run."""
    with Ledger.open(sqlite_url) as ledger:
        ledger.add_trajectories([trajectory(f"t{n:03}") for n in range(400)])
        with_few = []
        for n in range(400):
            ledger.add_verdict("agent", f"t{n:03}", Verdict(1.0, "verifier"))
            if n in (20, 399):
                with_few.append(_steps(ledger, lambda: ledger.agreements("agent")))
        assert with_few[0] == with_few[1] > 0
        ledger.add_verdict("agent", "t007", Verdict(1.0, "judge"))
        assert _steps(ledger, lambda: ledger.agreements("agent")) < 400
        assert ledger.agreements("agent") == [Agreement("t007", 1.0, 1.0, "verifier")]


def _steps(ledger: Ledger, call: Callable[[], object]) -> int:
    """How many steps of SQLite's machine a call takes."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    def watch(connection: Any, *_: object) -> None:
        connection.set_progress_handler(count, 1)

    event.listen(ledger._engine, "checkout", watch)
    try:
        call()
    finally:
        event.remove(ledger._engine, "checkout", watch)
    return taken
