"""Failures are consumed once, by an evolution, with the drafts that it made."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from metaclaw_langgraph.errors import ConflictError, NotFoundError, StoreError
from metaclaw_langgraph.ledger import (
    DraftDecision,
    DraftRecord,
    DraftState,
    Evolution,
    Failure,
    Ledger,
    NewSkill,
)
from metaclaw_langgraph.types import Skill, Trajectory, Verdict

Build = Callable[..., Trajectory]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def draft(id: str, state: DraftState = "review", minute: int = 0) -> DraftRecord:
    return DraftRecord(
        id=id,
        skill=Skill("add", "How to add", "Carry.", 0, {"license": "MIT"}),
        state=state,
        replaces="sum",
        origin=("bad",),
        untrusted=True,
        reason="it quotes a tool",
        evidence={"guard": ["links"], "gate": {"wins": 2.5}},
        created_at=NOON + timedelta(minutes=minute),
        base="add@1",
    )


@pytest.fixture
def support(ledger: Ledger, trajectory: Build) -> Ledger:
    """Two failures, a success, a run that nobody judged."""
    ledger.add_trajectories([trajectory(id) for id in ("bad", "worse", "good", "new")])
    for id, reward in (("bad", -0.5), ("worse", -1.0), ("good", 1.0)):
        ledger.add_verdict("agent", id, Verdict(reward, "judge"))
    return ledger


def roles(ledger: Ledger) -> dict[str, str]:
    return {one.id: one.role for one in ledger.trajectories("agent")}


def test_failures_come_with_the_effective_verdict_oldest_first(
    ledger: Ledger, trajectory: Build
) -> None:
    ledger.add_trajectories([trajectory(id) for id in ("a", "b", "c", "d")])
    ledger.add_trajectories([trajectory("e", outcome="interrupted")])

    def judge(id: str, reward: float, source: str, minute: int) -> Verdict:
        at = NOON + timedelta(minutes=minute)
        verdict = Verdict(reward, source, f"{id} {source}", at=at)  # type: ignore[arg-type]
        ledger.add_verdict("agent", id, verdict)
        return verdict

    second = judge("a", -1.0, "verifier", 5)
    judge("a", 1.0, "judge", 9)
    judge("b", -0.5, "human", 1)
    third = judge("b", -1.0, "human", 7)
    judge("c", -1.0, "judge", 0)
    judge("c", 1.0, "human", 1)
    judge("e", -1.0, "judge", 0)
    first = judge("e", 0.0, "human", 3)
    judge("e", -1.0, "verifier", 9)
    found = ledger.failures("agent", limit=9)
    assert [(one.trajectory.id, one.verdict) for one in found] == [
        ("e", first),
        ("a", second),
        ("b", third),
    ]
    assert found[1].trajectory == replace(trajectory("a"), role="support")
    assert ledger.failures("agent", limit=1) == found[:1]
    assert ledger.failures("other", limit=9) == []


def test_failures_in_words_are_those_that_somebody_explained(
    ledger: Ledger, trajectory: Build
) -> None:
    ledger.add_trajectories([trajectory(id) for id in ("judge", "silent", "human", "verifier")])
    ledger.add_trajectories([trajectory("raised", outcome="failed", error="KeyError")])
    ledger.add_verdict("agent", "judge", Verdict(-1.0, "judge", "looks wrong"))
    ledger.add_verdict("agent", "silent", Verdict(-1.0, "human"))
    ledger.add_verdict("agent", "human", Verdict(-1.0, "human", "round to cents"))
    ledger.add_verdict("agent", "verifier", Verdict(-1.0, "verifier", "expected 42"))
    assert len(ledger.failures("agent", limit=9)) == 5
    found = ledger.failures("agent", limit=9, in_words=True)
    assert [one.trajectory.id for one in found] == ["human", "verifier"]
    assert ledger.failures("agent", limit=1, in_words=True) == found[:1]


def test_successes_are_newest_first_whatever_their_role(ledger: Ledger, trajectory: Build) -> None:
    for minute, id in enumerate(("trained", "stale", "bad", "fixed", "stopped")):
        outcomes = {"fixed": "failed", "stopped": "cancelled"}
        ledger.add_trajectories([trajectory(id, minute=minute, outcome=outcomes.get(id, "ok"))])
    ledger.add_verdict("agent", "trained", Verdict(1.0, "human", "yes"))
    ledger.drain_query("agent", "run-1")
    for id, reward in (("stale", 0.5), ("bad", 0.0), ("fixed", 1.0), ("stopped", 1.0)):
        ledger.add_verdict("agent", id, Verdict(reward, "human", id))
    ledger.commit_generation("agent", expected=0, reason="bump")
    found = ledger.successes("agent", limit=9)
    assert [(one.trajectory.id, one.trajectory.role, one.verdict.reason) for one in found] == [
        ("stale", "stale", "stale"),
        ("trained", "trained", "yes"),
    ]
    assert isinstance(found[0], Failure)
    assert ledger.successes("agent", limit=1) == found[:1]


def test_an_evolution_without_a_generation_consumes(support: Ledger) -> None:
    drafts = (draft("d1"), draft("d2", "refused", minute=1))
    evolution = Evolution(
        "e1", "offline", {"bad": "a skill", "worse": "a time-out"}, drafts, {"n": 2}
    )
    support.record_evolution("agent", evolution)
    assert roles(support) == {
        "bad": "consumed",
        "worse": "consumed",
        "good": "query",
        "new": "unjudged",
    }
    assert support.generation("agent") == 0
    assert support.failures("agent", limit=9) == []
    assert support.consumption("agent", "worse") == ("e1", "a time-out")
    assert support.consumption("agent", "good") is None
    assert support.consumption("other", "worse") is None
    (record,) = support.evolutions("agent")
    assert (record.id, record.evolver, record.generation) == ("e1", "offline", None)
    assert (record.consumed, record.details) == (evolution.consumed, {"n": 2})
    assert support.drafts("agent") == [drafts[1], drafts[0]]
    assert support.drafts("agent", state="review") == [drafts[0]]
    assert support.drafts("agent", limit=1) == [drafts[1]]


def test_an_evolution_with_a_generation_moves_as_one(support: Ledger) -> None:
    support.stage_skills("agent", [NewSkill(Skill("add", "d", "b", 1))])
    live = replace(draft("d1", "live"), skill_id="add@1")
    evolution = Evolution("e1", "llm", {"bad": "a skill"}, (live,))
    commit = support.commit_generation
    assert commit("agent", expected=0, add=["add@1"], reason="learnt", evolution=evolution) == 1
    assert roles(support) == {
        "bad": "consumed",
        "worse": "support",
        "good": "stale",
        "new": "unjudged",
    }
    assert support.evolutions("agent")[0].generation == 1
    assert support.drafts("agent") == [live]
    support.record_evolution("agent", Evolution("e2", "llm", {"worse": "nothing to learn"}))
    assert [one.id for one in support.evolutions("agent", generation=1)] == ["e1"]
    assert support.evolutions("agent", generation=2) == []


@pytest.mark.parametrize("other", ["good", "new", "absent"])
def test_only_support_is_consumed_or_nothing_changes(support: Ledger, other: str) -> None:
    support.stage_skills("agent", [NewSkill(Skill("add", "d", "b", 1))])
    evolution = Evolution("e1", "llm", {"bad": "x", other: "y"}, (draft("d1"),))
    with pytest.raises(ConflictError, match=rf"{other}.*not support"):
        support.record_evolution("agent", evolution)
    with pytest.raises(ConflictError, match=rf"{other}.*not support"):
        support.commit_generation(
            "agent", expected=0, add=["add@1"], reason="", evolution=evolution
        )
    assert roles(support)["bad"] == "support"
    assert (support.evolutions("agent"), support.drafts("agent")) == ([], [])
    assert (support.generation("agent"), support.members("agent", 1)) == (0, [])


def test_nothing_is_consumed_twice(support: Ledger) -> None:
    support.record_evolution("agent", Evolution("e1", "offline", {"bad": "x"}))
    with pytest.raises(ConflictError, match=r"bad.*is consumed, not support"):
        support.record_evolution("agent", Evolution("e2", "offline", {"bad": "x", "worse": "y"}))
    with pytest.raises(ConflictError, match=r"evolution 'e1'.*already"):
        support.record_evolution("agent", Evolution("e1", "offline", {"worse": "y"}))
    assert roles(support)["worse"] == "support"
    # A correction comes too late: what was consumed is never query data.
    assert support.add_verdict("agent", "bad", Verdict(1.0, "human")) == "consumed"
    assert support.drain_query("agent", "run").trajectories == ("good",)


def test_a_draft_is_found_by_a_unique_prefix(support: Ledger) -> None:
    drafts = (draft("ab"), draft("ab1"), draft("ac1"), draft("AC2"))
    support.record_evolution("agent", Evolution("e", "llm", {"bad": "x"}, drafts))
    assert support.draft("agent", "ab") == drafts[0]
    assert support.draft("agent", "ac") == drafts[2]
    with pytest.raises(NotFoundError, match=r"several drafts.*give more"):
        support.draft("agent", "a")
    for absent in ("x", "a%", "_"):
        with pytest.raises(NotFoundError, match="no draft"):
            support.draft("agent", absent)
    with pytest.raises(NotFoundError, match="give a draft's id"):
        support.draft("agent", "")


def test_a_draft_is_decided_once(support: Ledger) -> None:
    support.stage_skills("agent", [NewSkill(Skill("add", "d", "b", 1))])
    drafts = (draft("d1"), draft("d2"), draft("d3", "lost"))
    support.record_evolution("agent", Evolution("e", "llm", {"bad": "x"}, drafts))
    support.decide_draft("agent", DraftDecision("d1", "rejected", "ann", "wrong"))
    found = support.draft("agent", "d1")
    assert (found.state, found.decided_by, found.reason) == ("rejected", "ann", "wrong")
    approval = DraftDecision("d2", "live", "ann", "good", "add@1")
    with pytest.raises(ValueError, match="use commit_generation"):
        support.decide_draft("agent", approval)
    commit = support.commit_generation
    assert commit("agent", expected=0, add=["add@1"], reason="ok", decided=approval) == 1
    found = support.draft("agent", "d2")
    assert (found.state, found.decided_by, found.skill_id) == ("live", "ann", "add@1")
    assert (found.evidence, found.skill) == (drafts[1].evidence, drafts[1].skill)
    for done, state in (("d1", "rejected"), ("d2", "live"), ("d3", "lost")):
        with pytest.raises(ConflictError, match=f"it is {state}"):
            support.decide_draft("agent", DraftDecision(done, "rejected", "bob", "late"))
        decided = replace(approval, id=done)
        with pytest.raises(ConflictError, match=f"it is {state}"):
            commit("agent", expected=1, remove=["add@1"], reason="", decided=decided)
    with pytest.raises(NotFoundError, match="no draft 'd'"):
        support.decide_draft("agent", DraftDecision("d", "rejected", "bob", "prefix"))
    assert support.members("agent", support.generation("agent")) == ["add@1"]
    assert support.draft("agent", "d1").decided_by == "ann"


def test_nothing_that_is_stored_holds_a_secret(
    support: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-value-of-the-test"
    monkeypatch.setenv("CANARY_TOKEN", canary)
    skill = Skill("add", canary, f"Say \x00 {canary}.", 0, {"license": canary})
    one = replace(draft("d"), skill=skill, reason=canary, evidence={"e": [canary]})
    evolution = Evolution("e", canary, {"bad": canary}, (one,), {"d": canary})
    support.record_evolution("agent", evolution)
    support.decide_draft("agent", DraftDecision("d", "rejected", canary, canary))
    support.judge_failed("agent", "new", canary, lambda tries: None)
    stored = (support.drafts("agent"), support.evolutions("agent"))
    assert canary not in repr(stored)
    assert "[redacted:environment]" in stored[0][0].skill.body
    assert support.consumption("agent", "bad") == ("e", "[redacted:environment]")


@pytest.mark.parametrize("first", ["run", "verdict"])
def test_no_failure_is_passed_over(postgres_url: str, trajectory: Build, first: str) -> None:
    """Numbers are handed out when a verdict is stored; what counts is when it can be seen."""
    impatient = f"{postgres_url}%20-clock_timeout%3D300"
    seen: set[str] = set()
    last = 0

    def look(ledger: Ledger) -> None:
        nonlocal last
        found, last = ledger.failures_after("agent", last, limit=9)
        seen.update(one.trajectory.id for one in found)

    with Ledger.open(postgres_url) as one, Ledger.open(impatient) as two:
        one.add_trajectories([trajectory("judged")])
        calls: dict[str, Callable[[Ledger], object]] = {
            "run": lambda it: it.add_trajectories([trajectory("raised", outcome="failed")]),
            "verdict": lambda it: it.add_verdict("agent", "judged", Verdict(-1.0, "human")),
        }
        second = calls[({"run", "verdict"} - {first}).pop()]

        def meanwhile(_: object) -> None:
            # The first has its number and is not committed.
            with suppress(StoreError):
                second(two)
            look(two)

        event.listen(one._engine, "commit", meanwhile, once=True)
        calls[first](one)
        look(two)
        second(two)
        look(two)
    assert seen == {"judged", "raised"}


def test_batches_of_failed_runs_do_not_wait_for_one_another_for_ever(
    postgres_url: str, trajectory: Build
) -> None:
    namespaces = ("agent", "other")
    with Ledger.open(postgres_url) as ledger:

        def store(worker: int) -> int:
            return sum(
                ledger.add_trajectories(
                    [
                        trajectory(f"t{n}", namespace=name, outcome=("ok", "failed")[n % 2])
                        for n in range(20)
                        for name in namespaces[:: (-1) ** worker]
                    ][worker * 2 :]
                )
                for _ in range(5)
            )

        def judge(worker: int) -> int:
            for n in range(20):
                with suppress(NotFoundError):
                    ledger.add_verdict("agent", f"t{n}", Verdict(-1.0, "human"))
            return 0

        with ThreadPoolExecutor(8) as pool:
            work = [pool.submit(store, n) for n in range(5)] + [pool.submit(judge, 9)]
            assert sum(one.result(60) for one in work) == 40
        for name in namespaces:
            runs = [v for n in range(20) for v in ledger.verdicts(name, f"t{n}")]
            assert sum(one.source == "run" for one in runs) == 10
