"""A real home with a real ledger, and a way to run the command on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import MessagesState
from typer.testing import CliRunner

from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.cli import app
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Incident, Ledger, NewSkill, Probation
from metaclaw_langgraph.runtime import Runtime
from metaclaw_langgraph.tracing.launcher import ExporterLauncher
from metaclaw_langgraph.types import Retrieved, Skill, Verdict
from tests.wrapping.embedders import TOPICS
from tests.wrapping.graphs import scripted
from tests.wrapping.support import ask, conversation

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TASK = "topic 1: where is [bold]my order[/bold]?"
RETRIEVAL = {"embedder": TOPICS, "deadline": 30.0}
LEARNING = {"flush_interval": 0.001}
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
def ledger(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The ledger of the home, with one namespace that has really done something."""
    monkeypatch.setattr(ExporterLauncher, "ensure_running", lambda self: None)
    monkeypatch.setattr(Runtime, "look_up", answered(Runtime.look_up))
    config = MetaClawConfig.load(namespace="shop", retrieval=RETRIEVAL, learning=LEARNING)
    with Ledger.open(config.resolved_ledger_url) as opened:
        add_skills(opened)
        run_agents(config)
        (ok,) = opened.trajectories("shop", outcome="ok")
        opened.add_verdict("shop", ok.id, Verdict(1.0, "human", "just right", "ann", at=START))
        found = Incident("retrieval", "missed", 3, "past the deadline", START)
        opened.add_incidents("shop", [found])
        yield opened


@pytest.fixture
def run(home: Path) -> Run:
    """Run the command; errors that are not handled fail the test."""

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    return invoke


def answered(look_up: Callable[..., Future[Retrieved]]) -> Callable[..., Future[Retrieved]]:
    """A look-up that is over before the run goes on: then even a quick run knows its skills."""

    def waiting(runtime: Runtime, task: str | None) -> Future[Retrieved]:
        found = look_up(runtime, task)
        wait([found], timeout=30)
        return found

    return waiting


def add_skills(ledger: Ledger) -> None:
    """Two skills for topic 1; the second is too big to be injected."""
    brief = Skill("be-brief", "On topic 1", "Answer in one sentence.", version=1)
    kind = Skill("be-kind", "On topic 1", "Be kind. " * 1000, version=1)
    ledger.stage_skills("shop", [NewSkill(brief), NewSkill(kind)])
    ids = [brief.id, kind.id]
    ledger.commit_generation("shop", expected=0, add=ids, remove=[], reason="import")


def put_on_probation(ledger: Ledger) -> None:
    """A third skill, withheld from some runs."""
    skill = Skill("be-calm", "On topic 2", "Breathe.", version=1)
    ledger.stage_skills("shop", [NewSkill(skill)])
    ledger.commit_generation(
        "shop", expected=1, add=[skill.id], reason="t", probation=[Probation(skill.id, 0.2)]
    )


@tool
def lookup(order: int) -> str:
    """Look an order up."""
    return f"order {order} is shipped"


def run_agents(config: MetaClawConfig) -> None:
    """One run that calls a tool and answers in content blocks, and a later one that fails."""
    call = {"name": "lookup", "args": {"order": 7}, "id": "c1"}
    said = {"type": "text", "text": f"On its way. {'x' * 3000}"}
    answer = AIMessage([{"type": "reasoning", "reasoning": "It was shipped."}, said])
    helpful = scripted(AIMessage("Let me look.", tool_calls=[call]), answer)
    agent = with_metaclaw(create_agent(helpful, [lookup]), config)
    try:
        agent.invoke(ask(TASK))
        with pytest.raises(ValueError, match="no"):
            with_metaclaw(conversation(refuse), config).invoke(ask(TASK))
        assert agent.metaclaw.flush(20)
    finally:
        agent.metaclaw.close()


def refuse(state: MessagesState) -> None:
    """A node that fails before it has called a model."""
    raise ValueError("no")
