"""Trajectories go in once, redacted, and come out as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger import DraftDecision, Evolution, Ledger, Probation
from metaclaw_langgraph.types import SkillHit, Trajectory, Verdict

Build = Callable[..., Trajectory]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_trajectory_comes_back_as_it_was(ledger: Ledger, trajectory: Build) -> None:
    stored = trajectory("t1", outcome="failed", error="ValueError: no", generation=3, adapter="v2")
    assert ledger.add_trajectories([stored]) == 1
    assert ledger.trajectory("agent", "t1") == replace(stored, role="support")


def test_a_skill_that_was_withheld_comes_back_so(ledger: Ledger, trajectory: Build) -> None:
    hits = (SkillHit("a@1", 0.5, False, withheld=True), SkillHit("b@1", 0.25, True))
    ledger.add_trajectories([trajectory("t", skills=hits)])
    assert ledger.trajectory("agent", "t").skills == hits
    assert ledger.trajectories("agent")[0].skills == hits


def test_what_failed_is_support_at_once(ledger: Ledger, trajectory: Build) -> None:
    runs = [
        trajectory("ok"),
        trajectory("raised", outcome="failed", error="ValueError: no"),
        trajectory("silent", outcome="failed", error=None),
        trajectory("stopped", outcome="cancelled", error="stopped"),
    ]
    assert ledger.add_trajectories([*runs, runs[1]]) == 4
    assert ledger.add_trajectories(runs) == 0
    found = {one.id: (one.role, one.reward) for one in ledger.trajectories("agent")}
    assert found["raised"] == found["silent"] == ("support", -1.0)
    assert found["ok"] == found["stopped"] == ("unjudged", None)
    (given,) = ledger.verdicts("agent", "raised")
    assert (given.reward, given.source, given.reason) == (-1.0, "run", "ValueError: no")
    (given,) = ledger.verdicts("agent", "silent")
    assert given.reason == "failed"
    assert ledger.verdicts("agent", "ok") == ledger.verdicts("agent", "stopped") == []
    assert ledger.add_verdict("agent", "raised", Verdict(1.0, "human")) == "query"


def test_a_failed_run_that_is_stored_again_is_not_judged_again(
    ledger: Ledger, trajectory: Build
) -> None:
    ledger.add_trajectories([trajectory("t")])
    assert ledger.add_trajectories([trajectory("t", outcome="failed")]) == 0
    assert ledger.verdicts("agent", "t") == []
    assert ledger.trajectory("agent", "t").role == "unjudged"


def test_adding_again_changes_nothing(ledger: Ledger, trajectory: Build) -> None:
    first, second = trajectory("t1"), trajectory("t2")
    ledger.add_trajectories([first])
    ledger.add_verdict("agent", "t1", Verdict(1.0, "human"))
    assert ledger.add_trajectories([replace(first, task="other"), second, second]) == 1
    assert ledger.trajectory("agent", "t1") == replace(first, role="query")
    assert ledger.counts("agent").total == 2
    assert ledger.add_trajectories([]) == 0


def test_summaries_are_newest_first_and_filtered(ledger: Ledger, trajectory: Build) -> None:
    batch = [
        trajectory("a", minute=1),
        trajectory("b", minute=3, outcome="failed"),
        trajectory("c", minute=2),
    ]
    ledger.add_trajectories(batch)
    ledger.add_verdict("agent", "a", Verdict(0.5, "judge"))
    assert [found.id for found in ledger.trajectories("agent")] == ["b", "c", "a"]
    assert [found.id for found in ledger.trajectories("agent", limit=1)] == ["b"]
    assert [found.id for found in ledger.trajectories("agent", outcome="failed")] == ["b"]
    (judged,) = ledger.trajectories("agent", role="query")
    assert (judged.id, judged.reward, judged.n_calls, judged.n_tools) == ("a", 0.5, 1, 1)
    assert (judged.skills, judged.started_at) == (batch[0].skills, batch[0].started_at)


def test_a_trajectory_is_found_by_a_unique_prefix(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories(
        [trajectory("ab1"), trajectory("ab2"), trajectory("AB3"), trajectory("%")]
    )
    assert ledger.trajectory("agent", "ab1").id == "ab1"
    assert ledger.trajectory("agent", "A").id == "AB3"
    with pytest.raises(NotFoundError, match=r"several trajectories.*give more"):
        ledger.trajectory("agent", "ab")
    for absent in ("x", "ab%", "_"):
        with pytest.raises(NotFoundError, match="no trajectory"):
            ledger.trajectory("agent", absent)
    with pytest.raises(NotFoundError, match="give a trajectory's id"):
        ledger.trajectory("agent", "")


def test_the_latest_trajectory_is_found_by_its_marks(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories(
        [trajectory("a", minute=1), trajectory("b", minute=2, thread_id="thread-2")]
    )
    assert ledger.find_trajectory("agent") == "b"
    assert ledger.find_trajectory("agent", thread_id="thread-1") == "a"
    assert ledger.find_trajectory("agent", run_id="run-a") == "a"
    assert ledger.find_trajectory("agent", id="b", thread_id="thread-1") is None


def test_a_trajectory_is_found_by_its_trace(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("a", trace_id="tr-1"), trajectory("b")])
    ledger.set_trace("agent", "b", "tr-2")
    assert ledger.find_by_trace("agent", "tr-1") == "a"
    assert ledger.find_by_trace("agent", "tr-2") == "b"
    assert ledger.find_by_trace("agent", "tr-3") is None
    assert ledger.find_by_trace("other", "tr-1") is None


def test_the_run_before_in_the_same_thread(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories(
        [
            trajectory("a", minute=1),
            trajectory("c", minute=2),
            trajectory("b", minute=2),
            trajectory("else", minute=3, thread_id="thread-2"),
            trajectory("none", minute=3, thread_id=None),
            trajectory("d", minute=4),
            trajectory("a0", minute=1, namespace="other"),
        ]
    )
    before = {id: ledger.previous_in_thread("agent", id) for id in ("a", "b", "c", "d", "none")}
    assert {id: run.id for id, run in before.items() if run} == {"b": "a", "c": "b", "d": "c"}
    with pytest.raises(NotFoundError, match="no trajectory 'x'"):
        ledger.previous_in_thread("agent", "x")


def test_when_threads_were_last_active(ledger: Ledger, trajectory: Build) -> None:
    late = trajectory("b", minute=5)
    ledger.add_trajectories(
        [
            trajectory("a", minute=1),
            late,
            trajectory("c", minute=9, thread_id="thread-2"),
            trajectory("d", minute=9, namespace="other"),
        ]
    )
    found = ledger.last_active("agent", ["thread-1", "thread-3"])
    assert found == {"thread-1": late.ended_at}
    assert ledger.last_active("agent", []) == {}


def test_times_keep_their_instant_and_come_out_in_utc(ledger: Ledger, trajectory: Build) -> None:
    there = timezone(timedelta(hours=5, minutes=30))
    began = datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=there)
    ledger.add_trajectories([trajectory("t", started_at=began)])
    found = ledger.trajectory("agent", "t").started_at
    assert (found, found.tzinfo) == (began, UTC)
    naive = trajectory("u", started_at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="time zone"):
        ledger.add_trajectories([naive])
    assert ledger.counts("agent").total == 1


def test_traces_are_pending_until_they_are_exported(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("off")])
    ledger.add_trajectories(
        [trajectory("b", minute=2), trajectory("a", minute=1), trajectory("c", minute=3)],
        trace="pending",
    )
    assert [found.id for found in ledger.untraced("agent", limit=2)] == ["a", "b"]
    ledger.set_trace("agent", "a", "tr-1")
    ledger.set_trace("agent", "b", None, state="failed")
    assert [found.id for found in ledger.untraced("agent", limit=9)] == ["c"]
    assert ledger.trajectory("agent", "a").trace_id == "tr-1"
    assert ledger.counts("agent").trace == {"off": 1, "done": 1, "failed": 1, "pending": 1}
    with pytest.raises(NotFoundError, match="no trajectory 'x'"):
        ledger.set_trace("agent", "x", "tr-2")


def test_namespaces_do_not_mix(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("t"), trajectory("t", namespace="other", task="elsewhere")])
    assert ledger.namespaces() == ["agent", "other"]
    assert ledger.trajectory("other", "t").task == "elsewhere"
    ledger.add_verdict("other", "t", Verdict(-1.0, "human"))
    assert ledger.counts("agent").role == {"unjudged": 1}
    assert ledger.counts("nobody").total == 0
    with pytest.raises(NotFoundError):
        ledger.trajectory("nobody", "t")


def test_without_a_namespace_nothing_is_read_or_written(ledger: Ledger, trajectory: Build) -> None:
    calls: list[Callable[[], object]] = [
        lambda: ledger.add_trajectories([trajectory("t", namespace="")]),
        lambda: ledger.trajectories(""),
        lambda: ledger.trajectory("", "t"),
        lambda: ledger.find_trajectory(""),
        lambda: ledger.untraced("", limit=1),
        lambda: ledger.set_trace("", "t", "x"),
        lambda: ledger.counts(""),
        lambda: ledger.add_verdict("", "t", Verdict(1.0, "human")),
        lambda: ledger.verdicts("", "t"),
        lambda: ledger.generation(""),
        lambda: ledger.commit_generation("", expected=0, reason=""),
        lambda: ledger.rollback_generation("", 0, ""),
        lambda: ledger.members("", 0),
        lambda: ledger.membership_changes("", 0, 1),
        lambda: ledger.generations("", 1),
        lambda: ledger.stage_skills("", []),
        lambda: ledger.skills("", []),
        lambda: ledger.latest_version("", "a"),
        lambda: ledger.active_skills(""),
        lambda: ledger.skill_history("", "a"),
        lambda: ledger.vectors("", [], "e"),
        lambda: ledger.put_vectors("", "e", {}),
        lambda: ledger.add_incidents("", []),
        lambda: ledger.incidents(""),
        lambda: ledger.find_by_trace("", "tr"),
        lambda: ledger.previous_in_thread("", "t"),
        lambda: ledger.last_active("", ["thread-1"]),
        lambda: ledger.last_verdict(""),
        lambda: ledger.live_versions("", []),
        lambda: ledger.live_records(""),
        lambda: ledger.skill_counts(""),
        lambda: ledger.unjudged("", since=NOON, now=NOON, limit=1),
        lambda: ledger.judge_failed("", "t", "no", lambda tries: None),
        lambda: ledger.judging_counts("", since=NOON),
        lambda: ledger.agreements(""),
        lambda: ledger.failures("", limit=1),
        lambda: ledger.successes("", limit=1),
        lambda: ledger.record_evolution("", Evolution("e", "offline", {})),
        lambda: ledger.evolutions(""),
        lambda: ledger.consumption("", "t"),
        lambda: ledger.drafts(""),
        lambda: ledger.draft("", "d"),
        lambda: ledger.decide_draft("", DraftDecision("d", "rejected", "me", "no")),
        lambda: ledger.probations(""),
        lambda: ledger.trials("", "a@1"),
        lambda: ledger.close_probation("", Probation("a@1", 0.5, state="kept")),
        lambda: ledger.drain_query("", "r"),
        lambda: ledger.finish_training("", "r"),
        lambda: ledger.abort_training("", "r"),
        lambda: ledger.training_runs(""),
        lambda: ledger.acquire_lease("", "n", "h", 1),
        lambda: ledger.release_lease("", "n", "h"),
        lambda: ledger.unexported_generations("", 1),
        lambda: ledger.generation_record("", 1),
        lambda: ledger.set_generation_run("", 1, "r"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="a namespace is needed"):
            call()


def test_secrets_are_gone_and_so_are_the_tokens_that_spell_them(
    ledger: Ledger, trajectory: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-value-of-the-test"
    monkeypatch.setenv("CANARY_TOKEN", canary)
    clean = trajectory("clean")
    spoilt = trajectory(
        "spoilt",
        task=f"use {canary}",
        error=canary,
        thread_id=canary,
        messages=({"type": "human", "content": canary}, *clean.messages[1:]),
        input={canary: [canary]},
        calls=(clean.calls[0], replace(clean.calls[0], prompt=(2,), response=None)),
    )
    ledger.add_trajectories([clean, spoilt])
    found = ledger.trajectory("agent", "spoilt")
    assert canary not in repr(found)
    assert found.task == "use [redacted:environment]"
    assert found.calls[0].token_ids is None
    assert found.calls[0].prompt_token_ids is None
    assert found.calls[0].logprobs is None
    assert found.calls[1].token_ids == (3,)
    assert ledger.trajectory("agent", "clean") == clean
