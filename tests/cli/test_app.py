"""The command as a whole: its help, its errors, and that it starts light."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import metaclaw_langgraph

Run = Callable[..., Any]


def test_the_help_names_every_command_in_order(run: Run) -> None:
    text = run("--help").stdout
    named = re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
    assert named == [
        "demo",
        "status",
        "doctor",
        "learn",
        "feedback",
        "skills",
        "trajectories",
        "ui",
    ]


def test_an_unknown_command_is_refused(run: Run) -> None:
    result = run("statsu")
    assert result.exit_code == 2
    assert "statsu" in result.stderr


def test_the_version_is_that_of_the_package(run: Run) -> None:
    version = run("--version").stdout.strip()
    assert version == metaclaw_langgraph.__version__ == metadata.version("metaclaw-langgraph")


@pytest.mark.parametrize("command", [["status"], ["trajectories", "list"], ["ui"]])
def test_a_bad_setting_is_one_line_and_exit_code_2(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOP_K", "many")
    result = run(*command)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "metaclaw: bad setting METACLAW_RETRIEVAL__TOP_K = 'many' in the environment: "
        "give a whole number from 1 to 50\n"
    )


def test_a_bad_namespace_on_the_command_line_is_refused(run: Run) -> None:
    result = run("status", "--namespace", "No Such")
    assert result.exit_code == 2
    assert "namespace = 'No Such'" in result.stderr


def test_no_command_loads_what_it_does_not_need(home: Path) -> None:
    heavy = "torch", "transformers", "mlflow", "chromadb", "onnxruntime"
    code = (
        "import sys; from typer.testing import CliRunner; from metaclaw_langgraph.cli import app;"
        "result = CliRunner().invoke(app, ['status']); assert result.exit_code == 0, result.output;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
