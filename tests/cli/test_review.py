"""`metaclaw skills review`, `approve` and `reject`, on drafts in a real ledger."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import DraftRecord, Evolution, Ledger
from metaclaw_langgraph.types import Json, Skill, Trajectory, Verdict
from metaclaw_langgraph.wrapping.run import new_id
from tests.skills.conftest import write_skill

Run = Callable[..., Any]
NEW, BETTER, REFUSED = (new_id() for _ in range(3))
HIDDEN = "Use the search.\nThen\x1b[2J wait\u200b a moment."


@pytest.fixture(autouse=True)
def ledger(home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A live skill, and three drafts: a new one, a better version, and one that was refused."""
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", "tests.skills.conftest:WordEmbedder")
    monkeypatch.setenv("LOGNAME", "bea")
    write_skill(tmp_path / "in", "bake-bread", body="Knead.")
    assert run("skills", "import", str(tmp_path / "in")).exit_code == 0
    with Ledger.open(MetaClawConfig.load().resolved_ledger_url) as opened:
        opened.add_trajectories([failed()])
        opened.add_verdict("default", "run-1", Verdict(-1.0, "judge"))
        evolution = Evolution("e1", "stand-in", {"run-1": "drafted"}, drafts())
        opened.record_evolution("default", evolution)
        yield opened


def failed() -> Trajectory:
    now = datetime.now(UTC)
    return Trajectory(
        id="run-1",
        namespace="default",
        thread_id=None,
        task="find\x1b[2J the shop",
        started_at=now,
        ended_at=now,
        outcome="ok",
        error=None,
        generation=1,
        adapter=None,
        retrieval="empty",
        skills=(),
        input=None,
        output=None,
    )


def drafts() -> tuple[DraftRecord, ...]:
    guard: Json = [{"kind": "network", "severity": "review", "line": 2}]
    gate: Json = {"reason": "wins", "won": 3, "pairs": [1, 2]}
    return (
        DraftRecord(
            id=NEW,
            skill=Skill("find-shop", "How to find the shop", HIDDEN),
            state="review",
            replaces=None,
            origin=("run-1", *(f"gone-{n}" for n in range(4))),
            untrusted=True,
            reason="the guard asks: network",
            evidence={"why": "it got lost", "guard": guard},
        ),
        DraftRecord(
            id=BETTER,
            skill=Skill("bake-bread", "How to bake-bread", "Knead longer."),
            state="review",
            replaces="bake-bread",
            origin=("run-1",),
            untrusted=False,
            reason="every draft is reviewed",
            evidence={"why": "too flat", "gate": gate},
            base="bake-bread@1",
        ),
        DraftRecord(
            id=REFUSED,
            skill=Skill("send-keys", "", ""),
            state="refused",
            replaces=None,
            origin=("run-1",),
            untrusted=True,
            reason="refused by the guard: secret",
        ),
    )


def test_those_that_wait_are_listed(run: Run) -> None:
    text = run("skills", "review").stdout
    assert NEW in text
    assert BETTER in text
    assert REFUSED not in text
    assert "better version of bake-bread" in text
    assert text.count("UNTRUSTED") == 1
    assert "the guard asks: network" in text
    assert "← run-1" in text
    assert "and 2 more runs" in text
    found = json.loads(run("skills", "review", "--json").stdout)
    assert {one["id"] for one in found} == {NEW, BETTER}
    assert found[0]["skill"]["body"]


def test_all_are_listed_on_demand(run: Run) -> None:
    text = run("skills", "review", "--all").stdout
    assert REFUSED in text
    assert "refused by the guard: secret" in text
    assert len(json.loads(run("skills", "review", "--all", "--limit", "2", "--json").stdout)) == 2


def test_an_id_of_the_list_can_be_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run("skills", "review").stdout
    assert max(len(line) for line in text.splitlines()) <= 80
    listed = re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", text)
    assert sorted(listed) == sorted([NEW, BETTER])
    for id in listed:
        assert run("skills", "review", id).exit_code == 0


def test_a_draft_is_shown_with_all_that_speaks_against_it(run: Run) -> None:
    text = run("skills", "review", NEW).stdout
    assert "skill      find-shop, new\n" in text
    assert "state      review: the guard asks: network\n" in text
    assert "because    it got lost\n" in text
    assert "trust      UNTRUSTED" in text
    assert r"finding    network, line 2 of its body: Then\x1b[2J wait\u200b a moment." in text
    assert r"from run   run-1: find\x1b[2J the shop" in text
    assert "from run   gone-0: (not in the ledger)" in text
    assert "description: How to find the shop\n" in text
    assert "Use the search.\n" in text
    assert not set("\x1b\u200b") & set(text)


def test_a_better_version_is_compared_with_the_live_one(run: Run) -> None:
    text = run("skills", "review", BETTER).stdout
    assert "gate       reason wins, won 3\n" in text
    assert "against bake-bread@1, which is live" in text
    assert "\n-Knead.\n+Knead longer.\n" in text
    found = json.loads(run("skills", "review", BETTER, "--json").stdout)
    assert (found["skill"]["body"], found["live"]["body"]) == ("Knead longer.", "Knead.")


def test_a_refused_text_is_not_there_to_be_shown(run: Run) -> None:
    assert "Its text was not kept." in run("skills", "review", REFUSED).stdout


def test_an_approved_draft_is_live(run: Run, ledger: Ledger) -> None:
    done = run("skills", "approve", BETTER, NEW, "--reason", "tried it")
    assert done.exit_code == 0, done.output
    expected = ["approved bake-bread@2; generation 2", "approved find-shop@1; generation 3"]
    assert done.stdout.splitlines() == expected
    assert run("skills", "show", "bake-bread").stdout.endswith("Knead longer.\n")
    decided = ledger.draft("default", BETTER)
    assert (decided.state, decided.decided_by, decided.reason) == ("live", "bea", "tried it")
    log = run("skills", "log").stdout
    assert "by review bea" in log
    assert "bake-bread: tried it" in log
    assert run("skills", "review").stdout == "no draft waits for review\n"
    assert "live by bea" in run("skills", "review", "--all").stdout


def test_a_rejected_draft_stays_on_record(run: Run, ledger: Ledger) -> None:
    assert run("skills", "reject", NEW, "--reason", "no").stdout == f"rejected find-shop ({NEW})\n"
    decided = ledger.draft("default", NEW)
    assert (decided.state, decided.decided_by, decided.reason) == ("rejected", "bea", "no")
    assert ledger.generation("default") == 1
    for command in ("approve", "reject"):
        again = run("skills", command, NEW)
        assert again.exit_code == 2
        assert "does not wait for review any more, it is rejected" in again.stderr


@pytest.mark.parametrize("command", ["review", "approve", "reject"])
def test_a_draft_that_is_not_there_is_one_line(run: Run, command: str) -> None:
    done = run("skills", command, "zz")
    assert done.exit_code == 2
    assert done.stderr.startswith("metaclaw: no draft 'zz' in namespace 'default'")
    assert done.stderr.count("\n") == 1


def test_another_namespace_has_none(run: Run) -> None:
    assert run("skills", "review", "--all", "-n", "other").stdout == "no drafts yet\n"
