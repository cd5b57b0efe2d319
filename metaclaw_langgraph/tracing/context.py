"""What every duty of the exporter works with: the order, the ledger and MLflow."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metaclaw_langgraph.ledger import Incident, Ledger

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Context", "Order", "UnreachableError"]

_log = logging.getLogger("metaclaw.exporter")
# For a UI that goes by it: these experiments hold runs and no traces.
_KIND = {"mlflow.experimentKind": "custom_model_development"}


@dataclass(frozen=True, slots=True)
class Order:
    """What to export, from where to where."""

    namespace: str
    home: str
    ledger_url: str
    mlflow_uri: str
    redact: dict[str, Any]
    parent: int
    feedback_names: list[str] = field(default_factory=list)
    """The assessments that count as feedback; none: all, but those whose name turns them round."""


class UnreachableError(Exception):
    """MLflow does not answer: no duty can do anything, and none is to blame."""


class Context:
    """One namespace's ledger, and MLflow as it was ordered."""

    def __init__(self, order: Order, ledger: Ledger) -> None:
        self.order = order
        self.namespace = order.namespace
        self.ledger = ledger
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}

    @property
    def client(self) -> MlflowClient:
        """MLflow; the store is made ready the first time."""
        if self._client is None:
            import mlflow

            uri = self.order.mlflow_uri
            _prepare_sqlite(uri)
            mlflow.set_tracking_uri(uri)
            mlflow.set_registry_uri(uri)
            self._client = mlflow.MlflowClient(uri, registry_uri=uri)
        return self._client

    def experiment(self, kind: str) -> str:
        """The id of the experiment `metaclaw/<namespace>/<kind>`, made if it is not there."""
        found = self.find_experiment(kind)
        if found is None:
            name, place = self._experiment_name(kind), self._artifact_location(kind)
            tags = None if kind == "runs" else _KIND
            found = self.client.create_experiment(name, place, tags)
            self._experiments[kind] = found
        return found

    def find_experiment(self, kind: str) -> str | None:
        """The same; None when it is not there."""
        if kind not in self._experiments:
            found = self.client.get_experiment_by_name(self._experiment_name(kind))
            if found is None:
                return None
            self._experiments[kind] = found.experiment_id
        return self._experiments[kind]

    def require_reachable(self, error: Exception) -> None:
        """UnreachableError when MLflow does not answer: then that is what `error` comes from."""
        try:
            self.client.search_experiments(max_results=1)
        except Exception as problem:  # MLflow raises its own, requests' and the database's
            _log.warning("MLflow does not answer: %s", problem)
            self._client = None
            self._experiments.clear()
            raise UnreachableError(f"{type(error).__name__}: {error}") from error

    def count(self, kind: str, message: str) -> None:
        """Count an incident."""
        _log.warning("%s: %s", kind, message)
        incident = Incident("mlflow", kind, 1, message, datetime.now(UTC))
        self.ledger.add_incidents(self.namespace, [incident])

    def _experiment_name(self, kind: str) -> str:
        return f"metaclaw/{self.namespace}/{kind}"

    def _artifact_location(self, kind: str) -> str | None:
        """Beside a local database; MLflow would take the working folder. A server has its own."""
        if not self.order.mlflow_uri.startswith("sqlite:///"):
            return None
        folder = "traces" if kind == "runs" else kind
        return (Path(self.order.home) / "mlartifacts" / folder / self.namespace).as_uri()


def _prepare_sqlite(uri: str) -> None:
    """Write-ahead logging: readers (the UI) and the exporter do not block each other."""
    if not uri.startswith("sqlite:///"):
        return
    import sqlite3

    path = Path(uri.removeprefix("sqlite:///"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
