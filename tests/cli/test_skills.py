"""`metaclaw skills`: what it says about skills that are too big, and about what it leaves out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
