"""`metaclaw status`: what it shows, and that a broken part does not hide the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.cli._common import new_console, when
from metaclaw_langgraph.cli.status import show_status
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.ledger import (
    DraftRecord,
    Evolution,
    Incident,
    Ledger,
)
from metaclaw_langgraph.status import gather_status
from metaclaw_langgraph.types import Skill, Verdict
from tests.cli.conftest import START, put_on_probation

Run = Callable[..., Any]


def test_a_fresh_home_is_empty_and_works(run: Run, home: Path) -> None:
    result = run("status", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["working"] is True
    assert found["home"] == str(home)
    (only,) = found["namespaces"]
    assert (only["namespace"], only["generation"], only["skills"]) == ("default", 0, 0)
    assert "No incidents: nothing was lost." in run("status").stdout


def test_every_namespace_is_counted(run: Run, ledger: Ledger) -> None:
    found = json.loads(run("status", "--json").stdout)
    default, shop = found["namespaces"]
    assert default["namespace"] == "default"
    assert shop["namespace"] == "shop"
    assert (shop["generation"], shop["skills"]) == (1, 2)
    assert shop["trajectories"] == {
        "outcome": {"ok": 1, "failed": 1},
        "role": {"query": 1, "support": 1},
        "trace": {"pending": 2},
    }
    (incident,) = shop["incidents"]
    assert (incident["part"], incident["kind"], incident["count"]) == ("retrieval", "missed", 3)


def test_for_people_it_says_the_same(run: Run, ledger: Ledger) -> None:
    text = run("status").stdout
    assert "1 failed, 1 ok" in text
    assert "1 query, 1 support" in text
    assert "past the deadline" in text


def test_what_waits_to_be_learnt_is_counted(run: Run, ledger: Ledger) -> None:
    (ok,) = ledger.trajectories("shop", outcome="ok")
    (failed,) = ledger.trajectories("shop", outcome="failed")
    draft = DraftRecord("d1", Skill("be-quick", "d", "b"), "review", None, (), False, "look")
    ledger.record_evolution("shop", Evolution("e1", "offline", {failed.id: "x"}, (draft,)))
    put_on_probation(ledger)
    run_of = ledger.trajectory("shop", ok.id)
    for id in ("r1", "r2", "r3", "r4"):
        ledger.add_trajectories([replace(run_of, id=id, role="unjudged")])
    ledger.judge_failed("shop", "r1", "no answer", lambda tries: datetime.now(UTC))
    ledger.judge_failed("shop", "r2", "no answer", lambda tries: None)
    ledger.add_verdict("shop", "r3", Verdict(-1.0, "human"))
    for id, reward in ((ok.id, 1.0), ("r3", 1.0)):
        ledger.add_verdict("shop", id, Verdict(reward, "judge"))
    ledger.add_incidents("shop", [Incident("judge", "failed", 2, "no answer", START)])
    (shop,) = json.loads(run("status", "--json", "-n", "shop").stdout)["namespaces"]
    assert (shop["support_waiting"], shop["drafts_waiting"], shop["on_probation"]) == (1, 1, 1)
    assert shop["judging"] == {"waiting": 1, "retrying": 1, "given_up": 1}
    assert shop["agreement"] == {"n": 2, "observed": 0.5, "kappa": 0.0}
    text = run("status", "-n", "shop").stdout
    for line in (
        "1 failures wait to be learnt from",
        "1 drafts wait for you: metaclaw skills review",
        "1 skills are on probation: metaclaw skills list",
        "recent runs without a verdict: 1 nobody judged yet, 1 to be judged again, 1 given up",
        f"the judge failed 2 times, last at {when(START)}: no answer",
        "the judge agrees with people and verifiers on 50% of the 2 runs that they judged too "
        "(kappa 0.00)",
    ):
        assert f"shop: {line}\n" in text


def test_runs_too_old_to_be_judged_do_not_wait(
    run: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ok,) = ledger.trajectories("shop", outcome="ok")
    old = replace(ledger.trajectory("shop", ok.id), id="old", role="unjudged", ended_at=START)
    ledger.add_trajectories([replace(old, started_at=START)])
    assert "recent runs" not in run("status", "-n", "shop").stdout
    monkeypatch.setenv("METACLAW_JUDGING__WINDOW", "1000000")
    assert "recent runs without a verdict: 1 nobody judged yet" in run("status").stdout


def test_a_judge_that_works_again_is_not_called_dead(run: Run, ledger: Ledger) -> None:
    ledger.add_incidents("shop", [Incident("judge", "failed", 2, "no answer", START)])
    assert "the judge failed" not in run("status").stdout


def test_one_namespace_on_demand(run: Run, ledger: Ledger) -> None:
    found = json.loads(run("status", "--json", "--namespace", "shop").stdout)
    assert [one["namespace"] for one in found["namespaces"]] == ["shop"]


def test_waiting_and_unreadable_spool_files_are_counted(run: Run, home: Path) -> None:
    (home / "spool").mkdir(parents=True)
    for name in ("a.jsonl", "b.jsonl", "c.bad", ".d.tmp"):
        (home / "spool" / name).write_text("")
    text = run("status").stdout
    assert "2 spool files wait for the ledger" in text
    assert "1 spool files cannot be read" in text
    assert "not every finished run is stored" in text
    assert "nothing was lost" not in text


def test_a_broken_ledger_is_named_and_the_rest_is_shown(run: Run, home: Path) -> None:
    (home / "spool").mkdir(parents=True)
    (home / "spool" / "a.jsonl").write_text("")
    (home / "ledger.db").write_text("this is no database")
    result = run("status", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [problem["part"] for problem in found["problems"]] == ["ledger"]
    assert found["spool_waiting"] == 1
    assert found["namespaces"][0]["generation"] is None
    assert found["namespaces"][0]["incidents_known"] is False
    text = run("status").stdout
    assert "BROKEN ledger: " in text
    assert "Incidents of default unknown: the ledger does not answer." in text
    assert "No incidents" not in text


def test_a_ledger_that_breaks_later_is_named_once(
    home: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk on fire")

    for name in ("check", "namespaces", "generation", "counts", "incidents"):
        monkeypatch.setattr(ledger, name, broken)
    found = gather_status(MetaClawConfig.load(), ledger)
    assert [str(problem.message) for problem in found.problems] == ["disk on fire"]
    assert not found.working
    assert not any(one.incidents_known for one in found.namespaces)


def test_a_spool_that_cannot_be_read_is_named(run: Run, home: Path) -> None:
    home.mkdir()
    (home / "spool").write_text("a file, not a folder")
    found = json.loads(run("status", "--json").stdout)
    assert [problem["part"] for problem in found["problems"]] == ["spool"]
    assert found["namespaces"][0]["generation"] == 0
    assert "nothing was lost" not in run("status").stdout


class Live:
    """A runtime with two runs in its queue and incidents that the ledger has not seen."""

    namespace = "shop"
    waiting = 2

    def __init__(self) -> None:
        self.incidents = Incidents()
        later = START + timedelta(hours=1)
        self.incidents.give_back(
            [
                Incident("retrieval", "missed", 2, "again", later),
                Incident("ledger", "lost", 1, "disk full", later + timedelta(hours=1)),
            ]
        )


def test_a_live_runtime_adds_what_only_it_knows(ledger: Ledger) -> None:
    found = gather_status(MetaClawConfig.load(), ledger, runtime=Live())
    assert found.waiting == 2
    (shop,) = found.namespaces
    assert [(one.part, one.count, one.message) for one in shop.incidents] == [
        ("ledger", 1, "disk full"),
        ("retrieval", 5, "again"),
    ]
    assert shop.incidents[1].first_at == START
    assert json.loads(json.dumps(found.to_json()))["waiting"] == 2


def test_runs_that_wait_in_the_process_are_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Live()
    live.incidents = Incidents()
    show_status(gather_status(MetaClawConfig.load(), runtime=live), new_console())
    text = capsys.readouterr().out
    assert "2 finished runs wait in this process to be stored." in text
    assert "nothing was lost" not in text


def test_a_ledger_that_was_lent_stays_open(ledger: Ledger) -> None:
    gather_status(MetaClawConfig.load(), ledger)
    ledger.check()


def test_passwords_are_not_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_LEDGER_URL", "postgresql+psycopg://ann:Pa55@127.0.0.1:1/none")
    monkeypatch.setenv("METACLAW_MLFLOW_URI", "postgresql://ann:Pa55@127.0.0.1:1/none")
    for arguments in (["status"], ["status", "--json"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "Pa55" not in result.output
