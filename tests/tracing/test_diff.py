"""What `metaclaw skills diff` and the generations' runs show."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.diff import _diff, _lines, diff_generations
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.types import Skill
from tests.tracing.conftest import NAMESPACE, Commit, skill
from tests.wrapping.support import process_env


def test_added_changed_and_removed(ledger: Ledger, commit: Commit) -> None:
    commit(["greet@1", "leave@1", "stay@1"])
    commit(["greet@2", "new@1"], ["greet@1", "leave@1"])
    assert diff_generations(ledger, NAMESPACE, 1, 2) == (
        "--- a/greet/SKILL.md\tgreet@1\n"
        "+++ b/greet/SKILL.md\tgreet@2\n"
        "@@ -4,4 +4,4 @@\n"
        " ---\n"
        " \n"
        " Do greet.\n"
        "-The way of 1.\n"
        "+The way of 2.\n"
        "--- a/leave/SKILL.md\tleave@1\n"
        "+++ /dev/null\n"
        "@@ -1,7 +0,0 @@\n"
        + "".join(f"-{line}\n" for line in render_skill(skill("leave@1")).splitlines())
        + "--- /dev/null\n"
        "+++ b/new/SKILL.md\tnew@1\n"
        "@@ -0,0 +1,7 @@\n"
        + "".join(f"+{line}\n" for line in render_skill(skill("new@1")).splitlines())
    )


def test_from_nothing_and_back(ledger: Ledger, commit: Commit) -> None:
    commit(["greet@1"])
    ledger.rollback_generation(NAMESPACE, 0, "undo")
    assert diff_generations(ledger, NAMESPACE, 0, 2) == ""
    assert diff_generations(ledger, NAMESPACE, 0, 1).startswith("--- /dev/null\n")
    assert "+++ /dev/null\n" in diff_generations(ledger, NAMESPACE, 1, 2)


@pytest.mark.parametrize("pair", [(0, 2), (2, 0), (-1, 1)])
def test_no_such_generation(ledger: Ledger, commit: Commit, pair: tuple[int, int]) -> None:
    commit(["greet@1"])
    with pytest.raises(NotFoundError, match="it has 0 to 1"):
        diff_generations(ledger, NAMESPACE, *pair)


_words = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), min_size=1)


@given(_words, _words)
def test_lines_are_those_of_the_file(old: str, new: str) -> None:
    one, two = Skill("a", "b", old, 1), Skill("a", "b", new, 2)
    assert "".join(_lines(one)) == render_skill(one)
    kept = [line for line in _diff(one, two).split("\n") if line.startswith(("-", "+", " ", "@"))]
    assert (kept == []) == (old == new)


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch program here")
def test_it_is_a_patch(ledger: Ledger, commit: Commit, tmp_path: Path) -> None:
    commit(["greet@1", "leave@1"])
    commit(["greet@2", "new@1"], ["greet@1", "leave@1"])
    for id in ("greet@1", "leave@1"):
        path = tmp_path / skill(id).name / "SKILL.md"
        path.parent.mkdir()
        path.write_text(render_skill(skill(id)))
    text = diff_generations(ledger, NAMESPACE, 1, 2)
    subprocess.run(["patch", "-p1"], input=text, text=True, cwd=tmp_path, check=True)
    left = {path.parent.name: path.read_text() for path in tmp_path.rglob("SKILL.md")}
    assert left == {skill(id).name: render_skill(skill(id)) for id in ("greet@2", "new@1")}


def test_it_needs_no_mlflow() -> None:
    code = "import sys, metaclaw_langgraph.skills.diff as d; print('mlflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=process_env(), timeout=60
    )
    assert done.stdout == "False\n", done.stderr
