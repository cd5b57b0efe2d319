"""A ledger and a real MLflow on SQLite, in a home of its own, for the exporter's duties."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.tracing import exporter
from metaclaw_langgraph.tracing.context import Context, Order
from metaclaw_langgraph.tracing.traces import Traces
from metaclaw_langgraph.types import Skill, Span, Trajectory
from tests.wrapping.conftest import _no_settings_from_outside

__all__ = ["_no_settings_from_outside"]

NAMESPACE = "shop"
START = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)

Commit = Callable[..., int]
Traced = Callable[[str], str]


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store with its tables and nothing in them; to make one takes seconds."""
    from mlflow import MlflowClient

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns of itself when it is imported
        import metaclaw_langgraph.tracing.replay  # noqa: F401
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def home(tmp_path: Path, empty_mlflow: Path) -> Path:
    made = tmp_path / "home"
    (made / "logs").mkdir(parents=True)
    shutil.copy(empty_mlflow, made / "mlflow.db")
    return made


@pytest.fixture
def order(home: Path) -> Order:
    ledger, mlflow = f"sqlite:///{home / 'ledger.db'}", f"sqlite:///{home / 'mlflow.db'}"
    return Order(NAMESPACE, str(home), ledger, mlflow, {}, 1)


@pytest.fixture
def ledger(order: Order) -> Iterator[Ledger]:
    with Ledger.open(order.ledger_url) as opened:
        yield opened


@pytest.fixture
def context(order: Order, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    import mlflow

    for name, value in exporter._SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", order.mlflow_uri)
    tracking, registry = mlflow.get_tracking_uri(), mlflow.get_registry_uri()
    yield Context(order, ledger)
    mlflow.set_tracking_uri(tracking)
    mlflow.set_registry_uri(registry)


@pytest.fixture
def commit(ledger: Ledger) -> Commit:
    """Makes the next generation: `commit(["greet@1"], ["old@1"], reason="…")`."""

    def make(add: list[str], remove: list[str] | None = None, **others: Any) -> int:
        new = [NewSkill(skill(id)) for id in add]
        missing = [one for one in new if not ledger.skills(NAMESPACE, [one.skill.id])]
        ledger.stage_skills(NAMESPACE, missing)
        return ledger.commit_generation(
            NAMESPACE,
            expected=ledger.generation(NAMESPACE),
            add=add,
            remove=remove or [],
            **{"reason": "because", **others},
        )

    return make


@pytest.fixture
def traced(context: Context) -> Traced:
    """Stores a run and shows it in MLflow; the id of the trace."""

    def make(id: str) -> str:
        context.ledger.add_trajectories([trajectory(id)], trace="pending")
        assert Traces(context).run()
        found = context.ledger.trajectory(NAMESPACE, id).trace_id
        assert found is not None
        return found

    return make


def skill(id: str) -> Skill:
    name, _, version = id.partition("@")
    return Skill(name, f"When to {name}", f"Do {name}.\nThe way of {version}.", int(version))


def trajectory(id: str, **changes: Any) -> Trajectory:
    number = int(id.rpartition("-")[2])
    began = START + timedelta(minutes=number)
    ended = began + timedelta(seconds=3)
    values: dict[str, Any] = {
        "id": id,
        "namespace": NAMESPACE,
        "thread_id": f"thread-{id}",
        "task": "hello",
        "started_at": began,
        "ended_at": ended,
        "outcome": "ok",
        "error": None,
        "generation": 0,
        "adapter": None,
        "retrieval": "empty",
        "skills": (),
        "input": "hello",
        "output": "good day",
        "spans": (Span(str(UUID(int=number + 1)), None, "chain", "agent", began, ended),),
    }
    return Trajectory(**{**values, **changes})
