"""`metaclaw skills`: what it says about skills beside their texts, and about what it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Json, SkillHit, Verdict
from tests.cli.conftest import put_on_probation
from tests.skills.conftest import write_skill

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def words(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", "tests.skills.conftest:WordEmbedder")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_skill(tmp_path / "in", "bake-bread")
    write_skill(tmp_path / "in", "bake-cake", body="Stir it well. " * 500)
    return tmp_path / "in"


def test_an_import_warns_of_a_skill_over_the_token_budget(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for done in (run("skills", "import", str(folder)), run("skills", "import", str(folder))):
        assert done.exit_code == 0
        (line,) = done.stderr.splitlines()
        assert line.startswith("warning: bake-cake takes about 18")
        assert "more than retrieval.token_budget (1500), and is never injected" in line
        assert line.endswith("shorten it or raise retrieval.token_budget")
    report = json.loads(run("skills", "import", str(folder), "--json").stdout)
    assert [(one["name"], one["budget"]) for one in report["too_big"]] == [("bake-cake", 1500)]
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOKEN_BUDGET", "2000")
    assert run("skills", "import", str(folder)).stderr == ""


def test_the_list_marks_a_skill_over_the_token_budget(run: Run, folder: Path) -> None:
    run("skills", "import", str(folder))
    text = run("skills", "list").stdout
    assert text.count("TOO BIG") == 1
    assert "tokens, budget 1500" in text
    good, big = json.loads(run("skills", "list", "--json").stdout)["skills"]
    assert "warning" not in good
    assert big["warning"].startswith("bake-cake takes about 18")


def test_the_list_counts_what_skills_did(run: Run, ledger: Ledger) -> None:
    (ok,) = ledger.trajectories("shop", outcome="ok")
    given, withheld = SkillHit("be-calm@1", 1.0, True), SkillHit("be-calm@1", 1.0, False, True)
    put_on_probation(ledger)
    model = replace(ledger.trajectory("shop", ok.id), started_at=datetime.now(UTC))
    for id, hit, reward in (("r1", given, 1.0), ("r2", given, -1.0), ("r3", withheld, -1.0)):
        ledger.add_trajectories([replace(model, id=id, skills=(hit,), role="unjudged")])
        ledger.add_verdict("shop", id, Verdict(reward, "human"))
    found = json.loads(run("skills", "list", "--json", "-n", "shop").stdout)["skills"]
    brief, calm, _ = found
    assert brief["name"] == "be-brief"
    assert (brief["counts"]["injected"], brief["counts"]["helped"]) == (1, 1)
    assert "probation" not in brief
    counts = {"found": 3, "injected": 2, "withheld": 1, "helped": 1, "hurt": 1}
    assert (calm["name"], calm["counts"]) == ("be-calm", counts)
    assert calm["probation"]["decision"] == "undecided"
    text = run("skills", "list", "-n", "shop").stdout
    assert text.count("ON PROBATION") == 1
    evidence = f"evidence for it {calm['probation']['e_helps']:.1f} of 20"
    assert f"ON PROBATION: passed 1 of 2 with it, 0 of 1 without it; {evidence}" in text
    assert re.search(r"be-calm +│ 1 .* │ 2 +│ 1 +│ 1 +│", text)


def test_the_log_says_why_a_probation_ended(run: Run, ledger: Ledger) -> None:
    put_on_probation(ledger)
    figures: Json = {"decision": "hurts", "with_passed": 1, "with_failed": 5, "without_passed": 4}
    details: dict[str, Json] = {"source": "probation", "probation": {"be-calm": figures}}
    ledger.commit_generation(
        "shop", expected=2, remove=["be-calm@1"], reason="did not help", details=details
    )
    text = run("skills", "log", "-n", "shop").stdout
    assert "by probation" in text
    assert "be-calm: hurts, 1 passed and 5 failed with it, 4 and 0 without it" in text
    assert "be-calm@1 (probation: retired)" in text
    newest = json.loads(run("skills", "log", "-n", "shop", "--json").stdout)[0]
    assert newest["details"] == details


def test_files_that_are_left_out_are_told(run: Run, folder: Path) -> None:
    (folder / "bake-bread" / "scripts").mkdir()
    (folder / "bake-bread" / "scripts" / "knead.py").write_text("")
    done = run("skills", "import", str(folder), "--keep-going")
    assert done.exit_code == 0
    note = "note: of bake-bread only SKILL.md was imported, without scripts/knead.py"
    assert done.stderr.splitlines()[-1] == note
    report = json.loads(run("skills", "import", str(folder), "--json").stdout)
    assert report["left_out"] == [{"name": "bake-bread", "files": ["scripts/knead.py"]}]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_export_onto_a_folder_is_refused(
    run: Run, folder: Path, tmp_path: Path, force: list[str]
) -> None:
    run("skills", "import", str(folder))
    in_the_way = tmp_path / "out" / "bake-cake" / "SKILL.md"
    in_the_way.mkdir(parents=True)
    done = run("skills", "export", str(tmp_path / "out"), *force)
    assert done.exit_code == 2
    assert done.stderr == (
        f"metaclaw: {in_the_way} is a folder; move it away, or export to another folder\n"
    )
    assert not (tmp_path / "out" / "bake-bread").exists()
