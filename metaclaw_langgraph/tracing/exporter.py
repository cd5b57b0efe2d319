"""The exporter process: `python -m metaclaw_langgraph.tracing.exporter`, orders on stdin.

It is the only process that talks to MLflow. For one namespace it does its duties in turn: traces,
generations and the judge's agreement go to MLflow, people's feedback comes from there. It ends
when there was nothing to do for a while, or when the process that started it is gone and nothing
is left to do. One lock file a namespace keeps it single, also across the processes that share a
home. The ledger is the queue: whatever MLflow did not take stays pending, the failure is counted,
and it tries again later.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

from filelock import Timeout

from metaclaw_langgraph.config import RedactConfig
from metaclaw_langgraph.errors import error_text
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.tracing.agreement import AgreementRun
from metaclaw_langgraph.tracing.assessments import Assessments
from metaclaw_langgraph.tracing.context import Context, Order, UnreachableError
from metaclaw_langgraph.tracing.duties import Duty, Task
from metaclaw_langgraph.tracing.generations import GenerationRuns
from metaclaw_langgraph.tracing.log import RedactedLog, exporter_lock, exporter_log
from metaclaw_langgraph.tracing.registry import SkillMirror
from metaclaw_langgraph.tracing.traces import Traces

__all__ = ["Order", "main"]

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
    # For people at a terminal; in a log they are noise.
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
# Meant for the program that started us: where its own runs, traces and models go.
_OTHERS = (
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_REGISTRY_URI",
    "MLFLOW_RUN_ID",
    "MLFLOW_TRACING_DESTINATION",
)
_log = logging.getLogger("metaclaw.exporter")


def main() -> int:
    """Run until idle; 0 also when another exporter of this namespace is at work."""
    order = Order(**json.load(sys.stdin))
    redactor = Redactor(RedactConfig(**order.redact))
    log = exporter_log(Path(order.home), order.namespace)
    # Everything that is said goes through it: by us, by libraries, by the interpreter.
    sys.stdout = sys.stderr = RedactedLog(log, redactor.text)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    for name in _OTHERS:
        os.environ.pop(name, None)
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


def duties(context: Context) -> list[Duty]:
    """Everything that the exporter does, the most wanted first."""
    return [
        Traces(context),
        GenerationRuns(context),
        SkillMirror(context),
        Assessments(context),
        AgreementRun(context),
    ]


class _Exporter:
    def __init__(self, order: Order, redactor: Redactor) -> None:
        self._order = order
        self._ledger = Ledger.open(order.ledger_url, redactor=redactor)
        self._context = Context(order, self._ledger)
        self._tasks = [Task(duty) for duty in duties(self._context)]
        self._retry = _RETRY_FIRST
        self._gave_up = False

    def run(self) -> None:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _IDLE_EXIT:
            if self._turn():
                quiet_since = time.monotonic()
            elif self._alone():
                return
            else:
                time.sleep(_POLL)

    def has_more(self) -> bool:
        """Whether something came at the last moment; not what MLflow did not take."""
        return not self._gave_up and self._pending()

    def _pending(self) -> bool:
        return any(task.well and task.duty.pending() for task in self._tasks)

    def _alone(self) -> bool:
        return hasattr(os, "getppid") and os.getppid() != self._order.parent

    def _turn(self) -> bool:
        """Every duty whose turn it is does a piece of work; True when there was some."""
        busy = False
        for task in self._tasks:
            if not task.due:
                continue
            try:
                busy |= self._do(task)
            except UnreachableError as error:
                return self._unreachable(error)
        self._retry = _RETRY_FIRST
        return busy

    def _do(self, task: Task) -> bool:
        try:
            return task.run()
        except UnreachableError:
            raise
        except Exception as error:  # MLflow raises its own, requests' and the database's
            self._context.require_reachable(error)
            self._context.count(f"{task.duty.name} failed", error_text(error))
            task.put_off()
            return False

    def _unreachable(self, error: UnreachableError) -> bool:
        """Wait; stay as long as something is pending and somebody wants it."""
        self._context.count("unreachable", str(error))
        if not self._alone():
            time.sleep(self._retry)
            self._retry = min(self._retry * 2, _RETRY_MOST)
        self._gave_up = self._alone()
        return not self._gave_up and self._pending()


if __name__ == "__main__":
    sys.exit(main())
