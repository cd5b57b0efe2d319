"""`metaclaw learn`: what it does in one go, what it says about it, and what it does when it fails.

The models of a paid API are the only thing that is stood in for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import ModelCall, Trajectory, Verdict
from tests.cli.stand_in import MODEL, stand_in
from tests.wrapping.embedders import TOPICS

Run = Callable[..., Any]
TASK = "topic 1: where is my order?"
LESSON = "Always name the order number first."


@pytest.fixture(autouse=True)
def ledger(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A ledger with one recent run of two steps, which nobody has judged and no app watches."""
    monkeypatch.setenv("METACLAW_NAMESPACE", "desk")
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", TOPICS)
    monkeypatch.setenv("METACLAW_TRACING", "false")
    with Ledger.open(MetaClawConfig.load().resolved_ledger_url) as opened:
        opened.add_trajectories([unjudged()])
        yield opened


def unjudged() -> Trajectory:
    now = datetime.now(UTC)
    return Trajectory(
        id="run-1",
        namespace="desk",
        thread_id=None,
        task=TASK,
        started_at=now,
        ended_at=now,
        outcome="ok",
        error=None,
        generation=0,
        adapter=None,
        retrieval="empty",
        skills=(),
        input=TASK,
        output="On its way.",
        messages=({"type": "human", "data": {"content": TASK}},),
        calls=(ModelCall((0,), None, "m", now, now), ModelCall((0,), None, "m", now, now)),
    )


def test_a_correction_becomes_a_skill(run: Run, ledger: Ledger) -> None:
    assert run("feedback", "bad", LESSON).exit_code == 0
    done = run("learn")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "runs        0 passed, 1 failed, 0 not judged",
        "learnt from 1 failures",
        "draft       topic-order: live, on a person's word",
        "generation  1 (was 0)",
    ]
    assert LESSON in run("skills", "show", "topic-order").stdout
    assert "ON PROBATION" not in run("skills", "list").stdout
    assert "by evolver offline" in run("skills", "log").stdout
    shown = run("trajectories", "show", "run-1").stdout
    assert f"-1.00 by human {ledger.verdicts('desk', 'run-1')[0].author}: {LESSON}" in shown
    (evolution,) = ledger.evolutions("desk")
    assert f"consumed   by evolution {evolution.id}: topic-order: live" in shown


def test_a_verifier_s_words_become_a_skill_on_probation(run: Run, ledger: Ledger) -> None:
    ledger.add_verdict("desk", "run-1", Verdict(-1.0, "verifier", LESSON))
    lines = run("learn").stdout.splitlines()
    assert any(line.startswith("draft       topic-order: live, on probation: ") for line in lines)
    assert "ON PROBATION: passed 0 of 0 with it" in run("skills", "list").stdout
    assert "topic-order@1 (on probation)" in run("skills", "log").stdout


def test_a_second_time_there_is_nothing_to_do(run: Run) -> None:
    run("feedback", "bad", LESSON)
    run("learn")
    again = json.loads(run("learn", "--json").stdout)
    assert again["working"] is True
    assert (again["generation_before"], again["generation"]) == (1, 1)
    assert (again["consumed"], again["drafts"], again["problems"]) == (0, [], [])
    assert again["before"] == again["after"]


def test_what_cannot_be_learnt_without_a_model_is_said_to_wait(run: Run) -> None:
    run("feedback", "bad")
    done = run("learn")
    assert done.exit_code == 0
    assert "learnt from 0 failures" in done.stdout
    assert "generation  0, as before" in done.stdout
    line = "1 failures wait to be learnt from: without evolving.model, only corrections in words"
    assert line in done.stdout


def test_drafts_that_wait_for_a_person_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_EVOLVING__REVIEW", "always")
    run("feedback", "bad", LESSON)
    done = run("learn")
    assert "draft       topic-order: review, every draft is reviewed" in done.stdout
    assert "metaclaw skills review" in done.stdout
    assert "generation  0, as before" in done.stdout
    assert "1 drafts wait for you: metaclaw skills review" in run("status").stdout


def test_the_runs_are_judged_by_the_api_stand_in(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"step": 1, "score": 1}, {"step": 2, "score": -1}]
    says = json.dumps({"reason": "It said so.", "steps": steps, "outcome": 1})
    monkeypatch.setenv("METACLAW_JUDGING__MODEL", MODEL)
    with stand_in(monkeypatch, says) as server:
        done = run("learn")
    assert done.exit_code == 0, done.output
    assert len(server.asked) == 3
    assert "runs        1 passed (+1), 0 failed, 0 not judged (-1)" in done.stdout
    shown = run("trajectories", "show", "run-1").stdout
    assert "+1.00 by judge stand-in: It said so." in shown
    assert "its steps: +1, -1" in shown


def test_a_dead_api_stand_in_is_told_and_leaves_the_run_unjudged(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METACLAW_JUDGING__MODEL", MODEL)
    with stand_in(monkeypatch, "this key was revoked", status=401):
        done = run("learn")
    assert done.exit_code == 1
    assert "FAILED      judge failed, 1 times: " in done.stdout
    assert "this key was revoked" in done.stdout
    assert "1 not judged" in done.stdout
    text = run("status", "--namespace", "desk").stdout
    assert "desk: recent runs without a verdict: 1 to be judged again\n" in text
    assert "desk: the judge failed 1 times, last at " in text
    assert "this key was revoked" in text


def test_an_api_stand_in_that_never_answers_is_left_when_time_is_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METACLAW_JUDGING__MODEL", MODEL)
    forever = threading.Event()
    with stand_in(monkeypatch, "", wait=forever):
        done = run("learn", "--timeout", "1", "--json")
        forever.set()
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["working"] is False
    assert found["problems"] == ["not done after 1 s: give it more (--timeout)"]


def test_a_part_that_is_broken_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", "tests.wrapping.embedders:Missing")
    run("feedback", "bad", LESSON)
    done = run("learn")
    assert done.exit_code == 1
    assert "FAILED      learning failed, " in done.stdout
    assert "Missing" in done.stdout


def test_a_model_that_cannot_be_made_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_EVOLVING__MODEL", "nobody:knows-it")
    done = run("learn")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("metaclaw: evolving.model = 'nobody:knows-it' cannot be used")


def test_the_end_of_a_probation_is_told(run: Run, ledger: Ledger) -> None:
    ledger.add_verdict("desk", "run-1", Verdict(-1.0, "verifier", LESSON))
    run("learn")
    run("skills", "retire", "topic-order", "--reason", "not ours")
    assert run("learn").stdout.splitlines()[-1] == "generation  2, as before"
    (ended,) = ledger.probations("desk", state=None)
    assert ended.state == "retired"
    assert "topic-order@1 (probation: retired)" in run("skills", "log").stdout


def test_verdicts_of_others_are_counted_as_well(run: Run, ledger: Ledger) -> None:
    ledger.add_verdict("desk", "run-1", Verdict(1.0, "verifier"))
    found = json.loads(run("learn", "--json").stdout)
    assert found["after"] == {"passed": 1, "failed": 0, "unjudged": 0, "support": 0}
