"""Skills on probation: what the runs with and without them say, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger import Ledger, NewSkill, Probation, SkillCounts, Trial
from metaclaw_langgraph.types import Skill, SkillHit, Trajectory, Verdict

Build = Callable[..., Trajectory]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADD = Probation("add@1", 0.3, "sum@1", started_at=NOON, evidence={"why": "no replay"})


@pytest.fixture
def live(ledger: Ledger) -> Ledger:
    """`add` live on probation, `sub` live for good."""
    ledger.stage_skills("agent", [NewSkill(Skill(name, "d", "b", 1)) for name in ("add", "sub")])
    ledger.commit_generation(
        "agent", expected=0, add=["add@1", "sub@1"], reason="a", probation=[ADD]
    )
    return ledger


def test_a_probation_begins_with_its_generation(live: Ledger) -> None:
    assert live.probations("agent") == live.probations("agent", state=None) == [ADD]
    assert live.probations("agent", state="kept") == live.probations("other") == []


@pytest.mark.parametrize(
    ("probation", "error"),
    [
        (Probation("mul@1", 0.3), "mul@1 is not live"),
        (Probation("sub@1", 0.3, state="kept"), "begins open"),
        (Probation("sub@1", 1.5), "between 0 and 1"),
        (Probation("sub@1", float("nan")), "between 0 and 1"),
    ],
)
def test_a_probation_that_cannot_be_changes_nothing(
    live: Ledger, probation: Probation, error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        live.commit_generation("agent", expected=1, reason="b", probation=[probation])
    assert live.generation("agent") == 1
    assert live.probations("agent", state=None) == [ADD]


def test_a_skill_is_on_probation_once_at_a_time(live: Ledger) -> None:
    with pytest.raises(ConflictError, match="add@1 is on probation already"):
        live.commit_generation("agent", expected=1, reason="b", probation=[Probation("add@1", 0.5)])
    live.commit_generation("agent", expected=1, remove=["add@1"], reason="b")
    live.commit_generation(
        "agent", expected=2, add=["add@1"], reason="c", probation=[Probation("add@1", 0.5)]
    )
    first, second = live.probations("agent", state=None)
    assert (first.state, first.holdout) == ("retired", 0.3)
    assert (second.state, second.holdout) == ("open", 0.5)


def test_trials_are_the_runs_since_it_began_in_the_order_of_their_verdicts(
    live: Ledger, trajectory: Build
) -> None:
    def run(id: str, minute: int, how: str, reward: float | None = None, **more: object) -> None:
        hit = SkillHit("add@1", 0.5, how == "injected", how == "withheld")
        live.add_trajectories([trajectory(id, minute=minute, skills=(hit,), **more)])
        if reward is not None:
            live.add_verdict("agent", id, Verdict(reward, "judge"))

    run("d", 9, "withheld", 0.5)
    run("b", 3, "injected", 1.0)
    run("c", 5, "injected", -0.5)
    run("a", 1, "withheld", -1.0)
    run("cannot tell", 2, "injected", 0.0)
    run("failed", 11, "injected", outcome="failed")
    run("no room", 4, "found", 1.0)
    run("unjudged", 4, "injected")
    run("stopped", 4, "injected", 1.0, outcome="interrupted")
    run("before", -1, "injected", 1.0)
    assert live.trials("agent", "add@1") == [
        Trial("d", True, True),
        Trial("b", False, True),
        Trial("c", False, False),
        Trial("a", True, False),
        Trial("failed", False, False),
    ]
    # Another verdict does not move it, not even one that was given before.
    live.add_verdict("agent", "c", Verdict(1.0, "human", at=NOON - timedelta(days=1)))
    assert live.trials("agent", "add@1")[2] == Trial("c", False, True)
    # It counts from the first verdict that says something.
    live.add_verdict("agent", "cannot tell", Verdict(0.0, "human"))
    assert live.trials("agent", "add@1")[5:] == [Trial("cannot tell", False, False)]
    assert live.open_trials("agent") == {"add@1": live.trials("agent", "add@1")}
    assert live.open_trials("other") == {}
    assert live.trials("agent", "sub@1") == live.trials("other", "add@1") == []


def test_a_skill_that_proved_itself_is_kept(live: Ledger) -> None:
    at = NOON + timedelta(hours=1)
    kept = Probation("add@1", 0.3, "sum@1", "kept", NOON, at, {"with": 9, "without": 3})
    live.close_probation("agent", kept)
    assert live.probations("agent") == []
    assert live.probations("agent", state="kept") == [kept]
    assert live.generation("agent") == 1
    with pytest.raises(ConflictError, match=r"add@1.*not on probation"):
        live.close_probation("agent", kept)
    with pytest.raises(ValueError, match="use commit_generation"):
        live.close_probation("agent", Probation("sub@1", 0.3, state="retired"))


def test_a_skill_that_hurt_is_retired_with_its_evidence(live: Ledger) -> None:
    retired = Probation("add@1", 0.3, state="retired", evidence={"with": 1, "without": 9})
    live.commit_generation("agent", expected=1, remove=["add@1"], reason="hurt", closed=[retired])
    (found,) = live.probations("agent", state="retired")
    assert (found.evidence, found.started_at) == (retired.evidence, NOON)
    assert found.decided_at is not None
    with pytest.raises(ConflictError, match=r"add@1.*not on probation"):
        live.commit_generation("agent", expected=2, add=["add@1"], reason="", closed=[retired])
    with pytest.raises(ValueError, match="closed as what"):
        live.commit_generation("agent", expected=2, reason="", closed=[ADD])
    assert live.members("agent", live.generation("agent")) == ["sub@1"]


@pytest.mark.parametrize("roll_back", [False, True])
def test_a_skill_that_is_taken_out_ends_its_probation(live: Ledger, roll_back: bool) -> None:
    if roll_back:
        live.rollback_generation("agent", 0, "undo")
    else:
        live.commit_generation("agent", expected=1, remove=["add@1", "sub@1"], reason="undo")
    assert live.probations("agent") == []
    (found,) = live.probations("agent", state="retired")
    assert (found.skill_id, found.evidence) == ("add@1", {"reason": "undo"})


def test_counts_of_what_skills_did(live: Ledger, trajectory: Build) -> None:
    def run(id: str, reward: float | None, *hits: SkillHit) -> None:
        live.add_trajectories([trajectory(id, skills=hits)])
        if reward is not None:
            live.add_verdict("agent", id, Verdict(reward, "judge"))

    given, held = SkillHit("add@1", 0.9, True), SkillHit("add@1", 0.9, False, withheld=True)
    found = SkillHit("sub@1", 0.2, False)
    run("helped", 1.0, given, found)
    run("hurt", -1.0, given)
    run("cannot tell", 0.0, given)
    run("unjudged", None, given)
    run("without", 1.0, held)
    run("twice", 1.0, given, SkillHit("add@1", 0.4, False), held)
    assert live.skill_counts("agent") == {
        "add@1": SkillCounts(found=6, injected=5, withheld=1, helped=2, hurt=1),
        "sub@1": SkillCounts(found=1),
    }
    assert live.skill_counts("agent", ["sub@1", "mul@1"]) == {
        "sub@1": SkillCounts(found=1),
        "mul@1": SkillCounts(),
    }
    assert live.skill_counts("other") == {}
    # Stored again, and not counted again.
    run("hurt", None, given)
    assert live.skill_counts("agent", ["add@1"])["add@1"].found == 6
