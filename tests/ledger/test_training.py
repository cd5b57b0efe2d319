"""Query data is drained into training runs once, and comes back from those that are aborted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger import Evolution, Ledger
from metaclaw_langgraph.types import Trajectory, Verdict

Build = Callable[..., Trajectory]


@pytest.fixture
def judged(ledger: Ledger, trajectory: Build) -> Ledger:
    """Three good runs, a bad one, one of an unknown generation."""
    runs = [trajectory(id, minute=minute) for minute, id in enumerate(("c", "a", "b", "bad"))]
    ledger.add_trajectories([*runs, trajectory("unstamped", generation=None)])
    for id in ("a", "b", "c", "unstamped"):
        ledger.add_verdict("agent", id, Verdict(1.0, "judge"))
    ledger.add_verdict("agent", "bad", Verdict(-1.0, "judge"))
    return ledger


def roles(ledger: Ledger) -> dict[str, str]:
    return {one.id: one.role for one in ledger.trajectories("agent")}


def test_query_data_is_handed_out_once(judged: Ledger) -> None:
    first = judged.drain_query("agent", "r1", limit=2)
    assert (first.trajectories, first.generation, first.state) == (("c", "a"), 0, "running")
    second = judged.drain_query("agent", "r2")
    assert second.trajectories == ("b",)
    assert judged.drain_query("agent", "r3").trajectories == ()
    assert roles(judged) == {
        **dict.fromkeys("abc", "trained"),
        "bad": "support",
        "unstamped": "stale",
    }
    assert {run.id: run for run in judged.training_runs("agent")} == {
        "r1": first,
        "r2": second,
        "r3": judged.training_runs("agent")[0],
    }
    assert judged.training_runs("other") == []


def test_a_run_begins_once_and_ends_once(judged: Ledger) -> None:
    judged.drain_query("agent", "r1", limit=1)
    with pytest.raises(ConflictError, match=r"'r1'.*is running already"):
        judged.drain_query("agent", "r1")
    judged.finish_training("agent", "r1")
    for again in (judged.finish_training, judged.abort_training, judged.drain_query):
        with pytest.raises(ConflictError, match=r"'r1'.*is done already"):
            again("agent", "r1")
    for end in (judged.finish_training, judged.abort_training):
        with pytest.raises(NotFoundError, match="no training run 'r9'"):
            end("agent", "r9")
        with pytest.raises(NotFoundError, match="no training run 'r1'"):
            end("other", "r1")
    with pytest.raises(ValueError, match="at least one"):
        judged.drain_query("agent", "r2", limit=0)
    (run,) = judged.training_runs("agent")
    assert (run.state, run.trajectories) == ("done", ("c",))
    assert run.ended_at is not None
    assert run.ended_at >= run.started_at
    assert judged.training_runs("agent", state="running") == []
    assert roles(judged)["c"] == "trained"


def test_an_aborted_run_gives_its_data_back(judged: Ledger) -> None:
    judged.drain_query("agent", "r1")
    judged.abort_training("agent", "r1")
    assert [roles(judged)[id] for id in "abc"] == ["query"] * 3
    (run,) = judged.training_runs("agent", state="aborted")
    assert run.trajectories == ()
    assert judged.drain_query("agent", "r2").trajectories == ("c", "a", "b")


def test_what_comes_back_is_what_it_is_by_then(judged: Ledger) -> None:
    judged.drain_query("agent", "r1")
    # Verdicts that came while it was trained on do not move it yet.
    assert judged.add_verdict("agent", "a", Verdict(-1.0, "human", "no")) == "trained"
    judged.abort_training("agent", "r1")
    assert [roles(judged)[id] for id in "abc"] == ["support", "query", "query"]
    assert "a" in [one.trajectory.id for one in judged.failures("agent", limit=9)]
    judged.drain_query("agent", "r2")
    judged.commit_generation("agent", expected=0, reason="bump")
    judged.abort_training("agent", "r2")
    assert [roles(judged)[id] for id in "abc"] == ["support", "stale", "stale"]
    assert judged.drain_query("agent", "r3").trajectories == ()


def test_what_was_trained_on_is_never_consumed(judged: Ledger) -> None:
    judged.drain_query("agent", "r1")
    judged.add_verdict("agent", "a", Verdict(-1.0, "human"))
    with pytest.raises(ConflictError, match=r"'a'.*is trained, not support"):
        judged.record_evolution("agent", Evolution("e", "llm", {"a": "x"}))
    assert judged.consumption("agent", "a") is None


def test_a_drain_takes_the_current_generation_only(judged: Ledger, trajectory: Build) -> None:
    judged.commit_generation("agent", expected=0, reason="bump")
    judged.add_trajectories([trajectory("new", generation=1), trajectory("late", generation=0)])
    for id in ("new", "late"):
        judged.add_verdict("agent", id, Verdict(1.0, "human"))
    run = judged.drain_query("agent", "r1")
    assert (run.trajectories, run.generation) == (("new",), 1)
