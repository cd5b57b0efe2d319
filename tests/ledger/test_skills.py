"""Skill versions, vectors and generations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.ledger import Interval, Ledger, NewSkill
from metaclaw_langgraph.types import Json, Skill, Trajectory, Verdict

Build = Callable[..., Trajectory]


def new(name: str, version: int = 1, body: str = "Do it.", **more: object) -> NewSkill:
    skill = Skill(name, f"How to {name}", body, version, {"license": "MIT", "metadata": {"n": 1}})
    return NewSkill(skill, **more)  # type: ignore[arg-type]


def test_staged_skills_are_stored_but_not_live(ledger: Ledger) -> None:
    one = new("add", vector=b"\x00\x01", embedder="e1", provenance={"from": ["t1"]})
    ledger.stage_skills("agent", [one, new("sub")])
    assert ledger.skills("agent", ["add@1", "nope@1"]) == {"add@1": one.skill}
    assert ledger.vectors("agent", ["add@1", "sub@1"], "e1") == {"add@1": b"\x00\x01"}
    assert ledger.vectors("agent", ["add@1"], "e2") == {}
    assert (ledger.generation("agent"), ledger.active_skills("agent")) == (0, [])
    (record,) = ledger.skill_history("agent", "add")
    assert (record.source, record.provenance, record.intervals) == ("import", {"from": ["t1"]}, ())


def test_staging_again_is_a_no_op_unless_the_text_differs(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add", vector=b"1", embedder="e")])
    ledger.stage_skills("agent", [new("add", vector=b"2", embedder="e")])
    assert ledger.vectors("agent", ["add@1"], "e") == {"add@1": b"2"}
    with pytest.raises(ConflictError, match=r"add@1.*another text"):
        ledger.stage_skills("agent", [new("sub"), new("add", body="Other.")])
    assert ledger.skills("agent", ["sub@1"]) == {}
    assert ledger.latest_version("agent", "add") == 1
    assert ledger.latest_version("agent", "sub") == 0
    with pytest.raises(ValueError, match="needs a version from 1 on"):
        ledger.stage_skills("agent", [new("add", version=0)])


def test_a_generation_moves_as_one(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add"), new("sub"), new("add", 2, "Better.")])
    add = ledger.commit_generation("agent", expected=0, add=["sub@1", "add@1"], reason="import")
    swap = ledger.commit_generation(
        "agent", expected=1, add=["add@2"], remove=["add@1"], reason="better"
    )
    assert (add, swap, ledger.generation("agent")) == (1, 2, 2)
    assert ledger.members("agent", 0) == []
    assert ledger.members("agent", 1) == ["add@1", "sub@1"]
    assert ledger.members("agent", 2) == ["add@2", "sub@1"]
    assert [skill.id for skill in ledger.active_skills("agent")] == ["add@2", "sub@1"]
    assert ledger.membership_changes("agent", 1, 2) == [
        Interval("add@1", 1, 2),
        Interval("add@2", 2, None),
    ]
    newest, oldest = ledger.generations("agent", 10)
    assert (newest.generation, newest.reason) == (2, "better")
    assert (newest.added, newest.removed) == (("add@2",), ("add@1",))
    assert (oldest.added, oldest.removed) == (("add@1", "sub@1"), ())
    assert [record.generation for record in ledger.generations("agent", 1)] == [2]
    assert ledger.generation_record("agent", 1) == oldest
    assert ledger.generation_record("agent", 2) == newest
    assert ledger.generation_record("agent", 3) is None
    assert ledger.generation_record("other", 1) is None
    assert [len(record.intervals) for record in ledger.skill_history("agent", "add")] == [1, 1]


def test_live_versions_are_found_by_name(ledger: Ledger) -> None:
    staged = [new("add"), new("add", 2, "Better."), new("sub"), new("mul")]
    ledger.stage_skills("agent", staged)
    ledger.commit_generation("agent", expected=0, add=["add@1", "sub@1"], reason="a")
    ledger.commit_generation("agent", expected=1, add=["add@2"], remove=["add@1"], reason="b")
    found = ledger.live_versions("agent", ["add", "mul", "div"])
    assert found == {"add": staged[1].skill}
    assert ledger.live_versions("other", ["add"]) == {}
    assert ledger.live_versions("agent", []) == {}
    records = ledger.live_records("agent")
    assert [record.skill for record in records] == [staged[1].skill, staged[2].skill]
    assert {record.source for record in records} == {"import"}


def test_a_bump_that_takes_out_what_is_not_live_changes_nothing(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add"), new("add", 2, "Better.")])
    ledger.commit_generation("agent", expected=0, add=["add@2"], reason="a")
    ledger.commit_generation("agent", expected=1, add=["add@2"], remove=["add@1"], reason="b")
    assert ledger.members("agent", 2) == ["add@2"]
    assert ledger.generations("agent", 1)[0].added == ()
    with pytest.raises(ValueError, match="add@1 and add@2 cannot both be live"):
        ledger.commit_generation("agent", expected=2, add=["add@1", "add@2"], reason="c")
    with pytest.raises(NotFoundError, match="no skill 'add'"):
        ledger.commit_generation("agent", expected=2, add=["add"], reason="d")


def test_a_generation_has_its_details_and_its_run(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-value-of-the-test"
    monkeypatch.setenv("CANARY_TOKEN", canary)
    ledger.stage_skills("agent", [new("add"), new("sub")])
    details: dict[str, Json] = {"gate": {"wins": 3}, "said": canary}
    ledger.commit_generation("agent", expected=0, add=["add@1"], reason=canary, details=details)
    ledger.commit_generation("agent", expected=1, add=["sub@1"], remove=["add@1"], reason="b")
    ledger.rollback_generation("agent", 1, "c")
    waiting = ledger.unexported_generations("agent", 2)
    assert [(one.generation, one.added, one.removed) for one in waiting] == [
        (1, ("add@1",), ()),
        (2, ("sub@1",), ("add@1",)),
    ]
    assert waiting[0].details == {"gate": {"wins": 3}, "said": "[redacted:environment]"}
    assert canary not in waiting[0].reason
    ledger.set_generation_run("agent", 1, "run-1")
    ledger.set_generation_run("agent", 2, None, "failed")
    assert [one.generation for one in ledger.unexported_generations("agent", 9)] == [3]
    assert [one.run_id for one in ledger.generations("agent")] == [None, None, "run-1"]
    with pytest.raises(NotFoundError, match="no generation 4"):
        ledger.set_generation_run("agent", 4, "run-4")


def test_a_rollback_is_a_new_generation(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add"), new("sub")])
    ledger.commit_generation("agent", expected=0, add=["add@1"], reason="a")
    ledger.commit_generation("agent", expected=1, add=["sub@1"], remove=["add@1"], reason="b")
    assert ledger.rollback_generation("agent", 1, "b was worse") == 3
    assert ledger.members("agent", 3) == ["add@1"]
    assert ledger.skill_history("agent", "add")[0].intervals == (
        Interval("add@1", 1, 2),
        Interval("add@1", 3, None),
    )
    assert ledger.rollback_generation("agent", 0, "all gone") == 4
    assert ledger.active_skills("agent") == []
    for absent in (-1, 5):
        with pytest.raises(NotFoundError, match="it has 0 to 4"):
            ledger.rollback_generation("agent", absent, "no")


def test_a_refused_commit_changes_nothing(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add"), new("add", 2, "Better.")])
    ledger.commit_generation("agent", expected=0, add=["add@1"], reason="a")
    commit = ledger.commit_generation
    with pytest.raises(ConflictError, match="at generation 1, not 0"):
        commit("agent", expected=0, remove=["add@1"], reason="late")
    with pytest.raises(NotFoundError, match=r"no skill 'sub@1'.*stage it"):
        commit("agent", expected=1, add=["sub@1"], reason="not staged")
    with pytest.raises(ValueError, match="both added and removed"):
        commit("agent", expected=1, add=["add@1"], remove=["add@1"], reason="which?")
    with pytest.raises(ValueError, match="add@1 and add@2 cannot both be live"):
        commit("agent", expected=1, add=["add@2"], reason="two versions")
    assert ledger.generation("agent") == 1
    assert ledger.members("agent", 1) == ledger.members("agent", 2) == ["add@1"]


def test_query_data_goes_stale_on_a_bump(ledger: Ledger, trajectory: Build) -> None:
    ledger.add_trajectories([trajectory("q"), trajectory("s"), trajectory("u")])
    ledger.add_trajectories([trajectory("q", namespace="other")])
    for namespace, id, reward in (("agent", "q", 1.0), ("agent", "s", -1.0), ("other", "q", 1.0)):
        ledger.add_verdict(namespace, id, Verdict(reward, "judge"))
    ledger.commit_generation("agent", expected=0, reason="bump")
    assert {t.id: t.role for t in ledger.trajectories("agent")} == {
        "q": "stale",
        "s": "support",
        "u": "unjudged",
    }
    assert ledger.counts("other").role == {"query": 1}
    assert ledger.generation("other") == 0


def test_many_skills_fit_into_one_call(ledger: Ledger) -> None:
    many = [new(f"skill-{n:04}", vector=b"v", embedder="e") for n in range(2500)]
    ids = [item.skill.id for item in many]
    ledger.stage_skills("agent", many)
    ledger.commit_generation("agent", expected=0, add=ids, reason="many")
    assert ledger.members("agent", 1) == ids
    assert len(ledger.vectors("agent", ids, "e")) == len(ledger.skills("agent", ids)) == 2500
    ledger.commit_generation("agent", expected=1, remove=ids[1:], reason="few")
    assert ledger.members("agent", 2) == ids[:1]


def test_vectors_need_their_skill(ledger: Ledger) -> None:
    ledger.stage_skills("agent", [new("add")])
    ledger.put_vectors("agent", "e2", {"add@1": b"x"})
    assert ledger.vectors("agent", ["add@1"], "e2") == {"add@1": b"x"}
    with pytest.raises(NotFoundError, match="no skill 'sub@1'"):
        ledger.put_vectors("agent", "e2", {"add@1": b"y", "sub@1": b"y"})
    assert ledger.vectors("agent", ["add@1"], "e2") == {"add@1": b"x"}
    with pytest.raises(NotFoundError, match="no skill 'mul'"):
        ledger.skill_history("agent", "mul")
