"""`metaclaw skills`: each command on a real home, its output, its errors and its exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metaclaw_langgraph.cli import app
from tests.skills.conftest import write_skill

Run = Callable[..., Any]
NEVER_USED = {"found": 0, "injected": 0, "withheld": 0, "helped": 0, "hurt": 0}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command on an empty home, with the word embedder."""
    for name in [*os.environ]:
        if name.startswith("METACLAW_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("METACLAW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("METACLAW_RETRIEVAL__EMBEDDER", "tests.skills.conftest:WordEmbedder")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str | Path) -> Any:
        command = ["skills", *map(str, arguments)]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    return invoke


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_skill(tmp_path / "in", "bake-bread", body="Knead.")
    write_skill(tmp_path / "in", "undo-commit")
    return tmp_path / "in"


def test_import_list_show_export(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("import", folder)
    assert done.stdout == "2 added, 0 updated, 0 unchanged, 0 refused; generation 1\n"
    assert done.exit_code == 0
    listed = run("list")
    assert "bake-bread" in listed.stdout
    assert "generation 1" in listed.stdout
    assert json.loads(run("list", "--json").stdout) == {
        "namespace": "default",
        "generation": 1,
        "skills": [
            {"name": name, "version": 1, "description": f"How to {name}", "counts": NEVER_USED}
            for name in ("bake-bread", "undo-commit")
        ],
    }
    shown = run("show", "bake-bread").stdout
    assert shown == "---\nname: bake-bread\ndescription: How to bake-bread\n---\n\nKnead.\n"
    assert run("export", tmp_path / "out", "bake-bread").stdout.startswith("wrote 1 skills")
    assert (tmp_path / "out" / "bake-bread" / "SKILL.md").read_text() == shown
    assert not (tmp_path / "out" / "undo-commit").exists()


def test_a_refused_file_is_named_with_its_line(run: Run, folder: Path) -> None:
    bad = write_skill(folder, "bad", "---\nname: bad\ndescription: d\ncolour: red\n---\nx")
    done = run("import", folder)
    assert done.exit_code == 2
    assert f"{bad}:4: unknown key 'colour'" in done.stderr
    assert "nothing was imported" in done.stderr
    assert json.loads(run("list", "--json").stdout)["skills"] == []
    going = run("import", folder, "--keep-going", "--json")
    assert going.exit_code == 2
    report = json.loads(going.stdout)
    assert report["added"] == ["bake-bread@1", "undo-commit@1"]
    assert [(one["path"], one["line"]) for one in report["refused"]] == [(str(bad), 4)]


def test_versions_log_retirement_and_rollback(run: Run, folder: Path) -> None:
    run("import", folder)
    write_skill(folder, "bake-bread", body="Knead longer.")
    assert "1 updated" in run("import", folder).stdout
    assert "Knead longer." in run("show", "bake-bread").stdout
    assert "Knead.\n" in run("show", "bake-bread", "--version", "1").stdout
    assert run("retire", "undo-commit", "--reason", "old").stdout == "retired 1; generation 3\n"
    assert run("rollback", "1").stdout == "generation 4 has the skills of generation 1\n"
    assert "Knead.\n" in run("show", "bake-bread").stdout
    records = json.loads(run("log", "--json").stdout)
    assert [one["generation"] for one in records] == [4, 3, 2, 1]
    assert records[2]["added"] == ["bake-bread@2"]
    assert records[2]["removed"] == ["bake-bread@1"]
    assert records[1]["reason"] == "old"
    table = run("log", "--limit", "1").stdout
    assert "rollback to generation 1" in table
    assert "old" not in table


def test_the_diff_of_two_generations(run: Run, folder: Path) -> None:
    run("import", folder)
    write_skill(folder, "bake-bread", body="Knead longer.")
    run("import", folder)
    run("retire", "undo-commit")
    changed = run("diff", "1", "2").stdout
    assert "--- a/bake-bread/SKILL.md\tbake-bread@1\n" in changed
    assert "\n-Knead.\n+Knead longer.\n" in changed
    assert "undo-commit" not in changed
    assert "+++ /dev/null" in run("diff", "2").stdout
    same = run("diff", "3")
    assert (same.exit_code, same.stdout) == (0, "")
    assert same.stderr == "generations 3 and 3 have the same skills\n"


@pytest.mark.parametrize("old", ["history", "remove"])
def test_the_old_names_are_gone(run: Run, old: str) -> None:
    assert run(old).exit_code == 2


def test_reindex_rebuilds_what_was_deleted(run: Run, folder: Path, tmp_path: Path) -> None:
    run("import", folder)
    assert (tmp_path / "home" / "chroma").is_dir()
    assert run("reindex").stdout == "indexed 2 skills\n"


def test_an_import_works_although_the_index_is_broken(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run("import", folder)
    (tmp_path / "home" / "chroma" / "chroma.sqlite3").write_bytes(b"rubbish" * 1000)
    write_skill(folder, "knit-socks")
    done = run("import", folder)
    assert done.exit_code == 0
    assert "1 added" in done.stdout
    assert "metaclaw skills reindex" in done.stderr
    assert run("reindex").stdout == "indexed 3 skills\n"


def test_namespaces_are_apart(run: Run, folder: Path) -> None:
    run("import", folder, "--namespace", "shop")
    assert json.loads(run("list", "--json").stdout)["skills"] == []
    assert len(json.loads(run("list", "--json", "-n", "shop").stdout)["skills"]) == 2


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("import", "nowhere"), "nowhere is not a folder"),
        (("show", "nothing"), "no skill 'nothing'"),
        (("retire", "nothing"), "no active skill 'nothing'"),
        (("export", "out", "nothing"), "no active skill 'nothing'"),
        (("rollback", "7"), "no generation 7"),
        (("diff", "7"), "no generation 7"),
        (("diff", "0", "7"), "no generation 7"),
        (("list", "--namespace", "Not OK"), "Not OK"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    run: Run, command: tuple[str, ...], problem: str
) -> None:
    done = run(*command)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
