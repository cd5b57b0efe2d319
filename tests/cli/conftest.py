"""A real home with a real ledger, and a way to run the command on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metaclaw_langgraph.cli import app
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Incident, Ledger, NewSkill
from metaclaw_langgraph.types import ModelCall, Skill, SkillHit, ToolCall, Trajectory, Verdict

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
Run = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, the only configuration there is."""
    for name in [*os.environ]:
        if name.upper().startswith("METACLAW_") or name == "MLFLOW_TRACKING_URI":
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    monkeypatch.setenv("METACLAW_HOME", str(folder))
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def ledger(home: Path) -> Iterator[Ledger]:
    """The ledger of the home, with one namespace that has done something."""
    with Ledger.open(MetaClawConfig.load().resolved_ledger_url) as opened:
        fill(opened)
        yield opened


@pytest.fixture
def run(home: Path) -> Run:
    """Run the command; errors that are not handled fail the test."""

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    return invoke


def fill(ledger: Ledger) -> None:
    skill = Skill("be-brief", "Use when answers are long.", "Answer in one sentence.", version=1)
    ledger.stage_skills("shop", [NewSkill(skill)])
    ledger.commit_generation("shop", expected=0, add=[skill.id], remove=[], reason="import")
    runs = [trajectory("aa01", 0), trajectory("aa02", 1, outcome="failed", error="ValueError: no")]
    ledger.add_trajectories(runs, trace="pending")
    ledger.add_verdict("shop", "aa01", Verdict(1.0, "human", "just right", "ann", at=START))
    ledger.add_incidents("shop", [Incident("retrieval", "missed", 3, "past the deadline", START)])


def trajectory(id: str, minute: int, **changes: Any) -> Trajectory:
    started = START + timedelta(minutes=minute)
    ended = started + timedelta(seconds=2)
    call = ModelCall((0,), 1, "model-x", started, ended)
    tool = ToolCall("lookup", "c1", {"order": 7}, "shipped", None, started, ended)
    values: dict[str, Any] = {
        "id": id,
        "namespace": "shop",
        "thread_id": "t-1",
        "task": "where is [bold]my order[/bold]?",
        "started_at": started,
        "ended_at": ended,
        "outcome": "ok",
        "error": None,
        "generation": 1,
        "adapter": None,
        "retrieval": "hit",
        "skills": (SkillHit("be-brief@1", 0.81, True), SkillHit("be-kind@2", 0.4, False)),
        "input": {"messages": []},
        "output": {"messages": []},
        "messages": (
            {"type": "human", "content": "where is [bold]my order[/bold]?"},
            {"type": "ai", "content": "On its way. " + "x" * 3000},
        ),
        "calls": (call,),
        "tools": (tool,),
    }
    return Trajectory(**{**values, **changes})
