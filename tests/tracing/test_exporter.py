"""The exporter's duties, one after the other, none in another's way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.tracing import exporter
from metaclaw_langgraph.tracing.context import Context, Order, UnreachableError
from metaclaw_langgraph.tracing.duties import Task
from metaclaw_langgraph.types import Verdict
from tests.tracing.conftest import NAMESPACE, Commit, trajectory
from tests.wrapping.support import closed_port, eventually, process_env


class Chore:
    """A duty that does what it is told, and keeps count."""

    every = 5.0

    def __init__(self, name: str, does: Callable[[], bool], pending: bool = False) -> None:
        self.name = name
        self.does = does
        self.waits = pending
        self.times = 0

    def run(self) -> bool:
        self.times += 1
        return self.does()

    def pending(self) -> bool:
        return self.waits


def fail() -> bool:
    raise RuntimeError("it broke")


def unreachable() -> bool:
    raise UnreachableError("nobody there")


Started = Callable[..., Any]


@pytest.fixture
def started(order: Order, context: Context, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """An exporter with these duties."""
    ledgers: list[Ledger] = []

    def start(*chores: Chore, **changes: Any) -> Any:
        monkeypatch.setattr(exporter, "duties", lambda _: list(chores))
        made = exporter._Exporter(replace(order, **changes), Redactor())
        ledgers.append(made._ledger)
        monkeypatch.setattr(made, "_alone", lambda: False)
        return made

    yield start
    for ledger in ledgers:
        ledger.close()


def incidents(ledger: Ledger) -> dict[str, int]:
    return {one.kind: one.count for one in ledger.incidents(NAMESPACE) if one.part == "mlflow"}


def test_one_that_fails_does_not_stop_the_others(started: Started, ledger: Ledger) -> None:
    bad, good = Chore("bad", fail), Chore("good", lambda: True)
    made = started(bad, good)
    assert made._turn()
    assert made._turn()
    assert (bad.times, good.times) == (1, 2)
    assert incidents(ledger) == {"bad failed": 1}


def test_nothing_to_do(started: Started) -> None:
    made = started(Chore("one", lambda: False), Chore("two", lambda: False))
    assert not made._turn()
    assert not made.has_more()


def test_what_failed_is_no_reason_to_go_on(started: Started) -> None:
    bad = Chore("bad", fail, pending=True)
    made = started(bad)
    assert made.has_more()
    assert not made._turn()
    assert not made.has_more()


def test_when_mlflow_does_not_answer_nobody_asks_it(
    started: Started, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    first, second = Chore("first", unreachable, pending=True), Chore("second", lambda: True)
    made = started(first, second)
    assert made._turn()
    assert made._turn()
    assert second.times == 0
    assert slept == [1, 2]
    assert incidents(ledger) == {"unreachable": 2}
    first.waits = False
    assert not made._turn()


def test_an_error_of_a_server_that_is_gone_is_nobodys_fault(
    started: Started, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    made = started(Chore("bad", fail), mlflow_uri=f"http://127.0.0.1:{closed_port()}")
    assert not made._turn()
    assert incidents(ledger) == {"unreachable": 1}


def test_turns() -> None:
    now = 100.0
    chore = Chore("one", lambda: True)
    task = Task(chore, clock=lambda: now)
    assert task.due
    assert task.run()
    assert task.due
    chore.does = lambda: False
    assert not task.run()
    assert not task.due
    now += chore.every
    assert task.due
    waits = []
    for _ in range(8):
        task.put_off()
        assert not task.well
        waits.append(task._not_before - now)
        now = task._not_before
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert not task.run()
    assert task.well


def test_all_of_it_in_a_process_of_its_own(
    order: Order, ledger: Ledger, commit: Commit, home: Path
) -> None:
    """Killed on the way, and started again: the same as if it had not been."""
    commit(["greet@1"])
    ledger.add_trajectories([trajectory("t-1"), trajectory("t-2")], trace="pending")
    for id in ("t-1", "t-2"):
        ledger.add_verdict(NAMESPACE, id, Verdict(1, "judge"))
        ledger.add_verdict(NAMESPACE, id, Verdict(1, "verifier"))
    first = start(order)
    eventually(lambda: ledger.counts(NAMESPACE).trace == {"done": 2}, 60)
    first.kill()
    assert first.wait(10) == -signal.SIGKILL
    second = start(order)
    try:
        eventually(lambda: ledger.generations(NAMESPACE)[0].run_id, 60)
        from mlflow import MlflowClient

        client = MlflowClient(order.mlflow_uri, order.mlflow_uri)

        def shown() -> bool:
            found = client.get_experiment_by_name(f"metaclaw/{NAMESPACE}/judge")
            return found is not None and "metaclaw.agreement" in next(
                (run.data.tags for run in client.search_runs([found.experiment_id])), {}
            )

        eventually(shown, 60)
        assert client.get_prompt("metaclaw.shop.greet") is not None
        skills = client.get_experiment_by_name(f"metaclaw/{NAMESPACE}/skills")
        assert skills is not None
        assert len(client.search_runs([skills.experiment_id])) == 1
        give_feedback(client, ledger)
        eventually(lambda: ledger.trajectory(NAMESPACE, "t-1").role == "support", 60)
    finally:
        second.kill()
        second.wait(10)
    assert incidents(ledger) == {}


def start(order: Order) -> subprocess.Popen[str]:
    import os

    process = subprocess.Popen(
        [sys.executable, "-m", "metaclaw_langgraph.tracing.exporter"],
        stdin=subprocess.PIPE,
        text=True,
        # Somebody's own settings: they are not about us.
        env=process_env({"MLFLOW_EXPERIMENT_NAME": "mine", "MLFLOW_REGISTRY_URI": "sqlite://"}),
    )
    assert process.stdin is not None
    with closing(process.stdin) as pipe:
        pipe.write(json.dumps(asdict(replace(order, parent=os.getpid()))))
    return process


def give_feedback(client: Any, ledger: Ledger) -> None:
    from mlflow.entities import AssessmentSource, Feedback
    from mlflow.tracing.client import TracingClient

    trace_id = ledger.trajectory(NAMESPACE, "t-1").trace_id
    source = AssessmentSource(source_type="HUMAN", source_id="ann")
    feedback = Feedback(name="User feedback", value=False, source=source)
    assert trace_id is not None
    TracingClient(client.tracking_uri).log_assessment(trace_id, feedback)
