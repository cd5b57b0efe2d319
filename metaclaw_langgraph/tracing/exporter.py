"""The exporter process: `python -m metaclaw_langgraph.tracing.exporter`, orders on stdin.

It exports the pending trajectories of one namespace, waits for more, and ends when there were
none for a while or when the process that started it is gone and nothing is left to do. One lock
file a namespace keeps it single, also across the processes that share a home. If MLflow does not
answer, the trajectories stay pending, the failure is counted, and it tries again later.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout

from metaclaw_langgraph.config import RedactConfig
from metaclaw_langgraph.ledger import Incident, Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.tracing.log import RedactedLog, exporter_lock, exporter_log

__all__ = ["Order", "main"]

_BATCH = 20
_POLL = 0.2
_IDLE_EXIT = 30.0
_LOCK_SECONDS = 1.0
_RETRY_FIRST = 1.0
_RETRY_MOST = 60.0
_SETTINGS = {
    # Export in this thread: a trajectory is marked as traced only when the store has its trace.
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_TRACE_SAMPLING_RATIO": "1.0",
}
_log = logging.getLogger("metaclaw.exporter")


@dataclass(frozen=True, slots=True)
class Order:
    """What to export, from where to where."""

    namespace: str
    home: str
    ledger_url: str
    mlflow_uri: str
    redact: dict[str, Any]
    parent: int


def main() -> int:
    """Run until idle; 0 also when another exporter of this namespace is at work."""
    order = Order(**json.load(sys.stdin))
    redactor = Redactor(RedactConfig(**order.redact))
    log = exporter_log(Path(order.home), order.namespace)
    # Everything that is said goes through it: by us, by libraries, by the interpreter.
    sys.stdout = sys.stderr = RedactedLog(log, redactor.text)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(_SETTINGS, MLFLOW_TRACKING_URI=order.mlflow_uri)
    if hasattr(os, "nice"):
        os.nice(10)
    try:
        _work(order, redactor)
    except Timeout:
        _log.info("another exporter is at work")
    except Exception:
        _log.exception("the exporter ends")
        return 1
    return 0


def _work(order: Order, redactor: Redactor) -> None:
    """Export until nothing is left, not even when the lock was let go.

    A process that stored a row while the lock was still held has not started an exporter.
    """
    lock = exporter_lock(Path(order.home), order.namespace)
    exporter: _Exporter | None = None
    while exporter is None or exporter.has_more():
        # Not at once: other processes hold it for a moment to see whether somebody works.
        with lock.acquire(timeout=_LOCK_SECONDS):
            exporter = exporter or _Exporter(order, redactor)
            exporter.run()


class _Exporter:
    def __init__(self, order: Order, redactor: Redactor) -> None:
        self._order = order
        self._ledger = Ledger.open(order.ledger_url, redactor=redactor)
        self._experiment_id: str | None = None
        self._retry = _RETRY_FIRST
        self._gave_up = False

    def run(self) -> None:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _IDLE_EXIT:
            if self._export_some():
                quiet_since = time.monotonic()
            elif self._alone():
                return
            else:
                time.sleep(_POLL)

    def has_more(self) -> bool:
        """Whether something came at the last moment; not what MLflow did not take."""
        return not self._gave_up and bool(self._ledger.untraced(self._order.namespace, limit=1))

    def _alone(self) -> bool:
        return hasattr(os, "getppid") and os.getppid() != self._order.parent

    def _export_some(self) -> bool:
        """Export one batch; True when there was one."""
        from metaclaw_langgraph.tracing.replay import replay

        batch = self._ledger.untraced(self._order.namespace, limit=_BATCH)
        if not batch:
            return False
        try:
            experiment_id = self._experiment()
        except Exception as error:  # MLflow raises its own, requests' and the database's
            return self._unreachable(error)
        for trajectory in batch:
            try:
                trace_id = replay(trajectory, experiment_id)
                self._check(trace_id)
            except Exception as error:
                if not self._reachable():
                    return self._unreachable(error)
                self._give_up(trajectory.id, error)
            else:
                self._ledger.set_trace(self._order.namespace, trajectory.id, trace_id)
        self._retry = _RETRY_FIRST
        return True

    def _experiment(self) -> str:
        if self._experiment_id is None:
            import mlflow

            _prepare_sqlite(self._order.mlflow_uri)
            mlflow.set_tracking_uri(self._order.mlflow_uri)
            name = f"metaclaw/{self._order.namespace}/runs"
            found = mlflow.get_experiment_by_name(name)
            self._experiment_id = (
                found.experiment_id
                if found
                else mlflow.create_experiment(name, _artifact_location(self._order))
            )
        return self._experiment_id

    def _check(self, trace_id: str) -> None:
        """MLflow only logs a failed export; asking for the trace tells."""
        from mlflow.tracing.client import TracingClient

        TracingClient(self._order.mlflow_uri).get_trace_info(trace_id)

    def _reachable(self) -> bool:
        import mlflow

        try:
            mlflow.MlflowClient(self._order.mlflow_uri).search_experiments(max_results=1)
        except Exception as error:
            _log.warning("MLflow does not answer: %s", error)
            return False
        return True

    def _unreachable(self, error: Exception) -> bool:
        self._count("unreachable", error)
        self._experiment_id = None
        if not self._alone():
            time.sleep(self._retry)
            self._retry = min(self._retry * 2, _RETRY_MOST)
        self._gave_up = self._alone()
        return not self._gave_up

    def _give_up(self, trajectory_id: str, error: Exception) -> None:
        self._count("failed", error)
        self._ledger.set_trace(self._order.namespace, trajectory_id, None, state="failed")

    def _count(self, kind: str, error: Exception) -> None:
        message = f"{type(error).__name__}: {error}"
        _log.warning("%s: %s", kind, message)
        incident = Incident("mlflow", kind, 1, message, datetime.now(UTC))
        self._ledger.add_incidents(self._order.namespace, [incident])


def _artifact_location(order: Order) -> str | None:
    """Beside a local database; MLflow would take the working directory. A server has its own."""
    if not order.mlflow_uri.startswith("sqlite:///"):
        return None
    return (Path(order.home) / "mlartifacts" / "traces" / order.namespace).as_uri()


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


if __name__ == "__main__":
    sys.exit(main())
