"""The stores behind a runtime, opened when first needed and again after they failed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from langgraph.graph.state import CompiledStateGraph
from langsmith import tracing_context

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.graph import Judgeable, build_learning_graph
from metaclaw_langgraph.learning.spool import Row
from metaclaw_langgraph.learning.trajectories import trajectory_of
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.ledger.codec import to_row
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.retrieval import SkillRetriever, open_retriever
from metaclaw_langgraph.tracing.launcher import ExporterLauncher
from metaclaw_langgraph.types import Retrieved
from metaclaw_langgraph.wrapping.run import Run

__all__ = ["LearningStore"]

_LEFT_OVER = 1000


class LearningStore:
    """The ledger, the retriever, the learning graph and the exporter of one runtime."""

    def __init__(self, config: MetaClawConfig, incidents: Incidents) -> None:
        self._config = config
        self._incidents = incidents
        self._redactor = Redactor(config.redact)
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._retriever: SkillRetriever | None = None
        self._graphs: dict[str, CompiledStateGraph[Any, Any, Any, Any]] = {}
        self._judged_left_over = False
        self._launcher = ExporterLauncher(
            namespace=config.namespace,
            home=config.home,
            ledger_url=config.resolved_ledger_url,
            mlflow_uri=config.resolved_mlflow_uri,
        )

    def ledger(self) -> Ledger:
        """The open ledger; StoreError while it cannot be opened."""
        with self._lock:
            return self._open_ledger()

    def retrieve(self, task: str | None) -> Retrieved:
        """The skills for a task."""
        return self._open_retriever().retrieve(task)

    def warm(self, when_empty: Callable[[], None]) -> None:
        """Open the ledger and load what retrieval needs; says first if there are no skills."""
        if not self.ledger().generation(self._config.namespace):
            when_empty()
        self._open_retriever().warm()

    def encode(self, run: Run) -> Row:
        """The run as a redacted row of the ledger."""
        trace = "pending" if self._config.tracing else "off"
        return to_row(trajectory_of(run), trace, self._redactor)

    def store(self, rows: Sequence[Row]) -> None:
        """Store rows in one transaction, and what went wrong so far."""
        ledger = self.ledger()
        ledger.add_rows(rows)
        self._save_incidents(ledger)
        if rows and self._config.tracing:
            self.start_exporter()

    def learn(self, rows: Sequence[Row]) -> None:
        """Run the learning graph on stored rows, of whatever namespace they are."""
        if not self._judged_left_over:
            self._learn(self._config.namespace, self._left_over())
            self._judged_left_over = True
        by_namespace = sorted(rows, key=lambda row: str(row["namespace"]))
        for namespace, some in groupby(by_namespace, key=lambda row: str(row["namespace"])):
            self._learn(
                namespace,
                [Judgeable(id=r["id"], outcome=r["outcome"], error=r["error"]) for r in some],
            )

    def traces_pending(self) -> int:
        """How many trajectories still wait to be shown in MLflow."""
        return self.ledger().counts(self._config.namespace).trace.get("pending", 0)

    def start_exporter(self) -> None:
        """See to it that pending traces are being exported."""
        try:
            self._launcher.ensure_running()
        except OSError as error:
            self._incidents.add("mlflow", "no exporter", error)

    def close(self, timeout: float) -> None:
        """Save what is known of failures, and let go of files and locks."""
        with self._lock:
            if self._ledger is not None:
                try:
                    self._save_incidents(self._ledger)
                except StoreError as error:
                    self._incidents.add("ledger", "unavailable", error)
            if self._retriever is not None:
                _close_in_time(self._retriever, timeout)
            if self._ledger is not None:
                self._ledger.close()
            self._ledger = self._retriever = None

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger.open(self._config.resolved_ledger_url, redactor=self._redactor)
        return self._ledger

    def _open_retriever(self) -> SkillRetriever:
        with self._lock:
            if self._retriever is None:
                self._retriever = open_retriever(self._open_ledger(), self._config)
            return self._retriever

    def _save_incidents(self, ledger: Ledger) -> None:
        taken = self._incidents.take()
        try:
            ledger.add_incidents(self._config.namespace, taken)
        except StoreError:
            self._incidents.give_back(taken)
            raise

    def _learn(self, namespace: str, runs: list[Judgeable]) -> None:
        runs = [
            run for run in runs if run["outcome"] == "failed" and not self._judged(namespace, run)
        ]
        if not runs:
            return
        if namespace not in self._graphs:
            self._graphs[namespace] = build_learning_graph(self.ledger(), namespace)
        # What learning does is not the user's to see in their own traces.
        with tracing_context(enabled=False):
            self._graphs[namespace].invoke({"runs": runs})

    def _judged(self, namespace: str, run: Judgeable) -> bool:
        """Whether this was done before: as left over, or from a spool file that is read again."""
        return any(v.source == "run" for v in self.ledger().verdicts(namespace, run["id"]))

    def _left_over(self) -> list[Judgeable]:
        """Failed runs that an earlier process stored but did not live to judge."""
        ledger, namespace = self.ledger(), self._config.namespace
        found = ledger.trajectories(namespace, limit=_LEFT_OVER, outcome="failed", role="unjudged")
        return [
            Judgeable(id=t.id, outcome="failed", error=ledger.trajectory(namespace, t.id).error)
            for t in found
        ]


def _close_in_time(retriever: SkillRetriever, timeout: float) -> None:
    """A look-up that hangs holds the retriever; it must not keep the program from ending."""
    closing = threading.Thread(target=retriever.close, name="metaclaw-close", daemon=True)
    with contextlib.suppress(RuntimeError):  # no new threads at exit (3.12): its locks end anyway
        closing.start()
        closing.join(max(0.0, timeout))
