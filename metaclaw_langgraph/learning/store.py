"""The stores behind a runtime, opened when first needed and again after they failed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.opening import LedgerHandle
from metaclaw_langgraph.learning.spool import Row, Spool
from metaclaw_langgraph.learning.trajectories import trajectory_of
from metaclaw_langgraph.ledger import Incident, Ledger
from metaclaw_langgraph.ledger.codec import to_row
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.retrieval import SkillRetriever, open_retriever
from metaclaw_langgraph.tracing.launcher import ExporterLauncher, anything_pending
from metaclaw_langgraph.types import Retrieved
from metaclaw_langgraph.wrapping.run import Run

__all__ = ["LearningStore"]

# A full disk, a lock, a lost connection: a check that passes a moment later does not mean that
# these rows are to blame.
_NOT_THE_ROWS = (OperationalError, InterfaceError, InternalError, PoolTimeoutError, OSError)


class LearningStore:
    """The ledger, the retriever and the exporter of one runtime."""

    def __init__(self, config: MetaClawConfig, incidents: Incidents) -> None:
        self._config = config
        self._incidents = incidents
        self._redactor = Redactor(config.redact)
        self._lock = threading.Lock()
        self._ledger = LedgerHandle(config.resolved_ledger_url, self._redactor)
        self._retriever: SkillRetriever | None = None
        self._watch_traces = False
        self._feedback_at = 0.0
        self._launcher = ExporterLauncher.of(config)

    def ledger(self) -> Ledger:
        """The open ledger; StoreError while it cannot be opened."""
        return self._ledger.get()

    def retrieve(self, task: str | None) -> Retrieved:
        """The skills for a task."""
        return self.retriever().retrieve(task)

    def warm(self, when_empty: Callable[[], None]) -> None:
        """Open the ledger and load what retrieval needs; says first if there are no skills."""
        if not self.ledger().generation(self._config.namespace):
            when_empty()
        self._redactor.text("")  # its rules take a moment to load: not in somebody's run
        self.retriever().warm()

    def encode(self, run: Run) -> Row:
        """The run as a redacted row of the ledger."""
        trace = "pending" if self._config.tracing else "off"
        return to_row(trajectory_of(run, self._redactor.text), trace, self._redactor)

    def store(self, rows: Sequence[Row]) -> None:
        """Store rows in one transaction, and what went wrong so far."""
        ledger = self.ledger()
        if rows:
            ledger.add_rows(rows)
        self._save_incidents(ledger)
        if rows and self._config.tracing:
            self._watch_traces = True
            self.start_exporter()

    def refuses(self, error: Exception) -> bool:
        """Whether the ledger works, and it was raised because of what was to be stored."""
        if isinstance(error.__cause__, _NOT_THE_ROWS) or isinstance(error, OSError):
            return False
        try:
            self.ledger().check()
        except Exception:
            return False
        return True

    def add_incidents(self, namespace: str, incidents: Sequence[Incident]) -> None:
        """Add incidents that an earlier process could not save."""
        self.ledger().add_incidents(namespace, incidents)

    def tend(self) -> bool:
        """Save late incidents, and see that traces are exported until none is pending.

        An exporter ends when it was idle for a while; what was stored at that moment must not
        wait for the next run.
        """
        try:
            self._save_incidents(self.ledger())
            if self._watch_traces and not self._launcher.at_work():
                self._watch_traces = anything_pending(self.ledger(), self._config.namespace)
                if self._watch_traces:
                    self.start_exporter()
        except (StoreError, OSError):
            return True  # counted where rows are stored; looked at again when it is back
        return self._watch_traces

    def retriever(self) -> SkillRetriever:
        """The retriever, made when first needed."""
        ledger = self.ledger()  # may take long: not while holding the lock
        with self._lock:
            if self._retriever is None:
                self._retriever = open_retriever(ledger, self._config)
            return self._retriever

    def traces_pending(self) -> int:
        """How many trajectories still wait to be shown in MLflow."""
        return self.ledger().counts(self._config.namespace).trace.get("pending", 0)

    def look_for_feedback(self) -> None:
        """Now and then have the exporter fetch what people said about traces in MLflow."""
        every = self._config.judging.feedback_every
        if not (self._config.tracing and every) or time.monotonic() < self._feedback_at:
            return
        self._feedback_at = time.monotonic() + every
        if self.ledger().counts(self._config.namespace).trace.get("done"):
            self.start_exporter()

    def show(self) -> None:
        """Have MLflow show what was learned, unless it is to show nothing."""
        if self._config.tracing:
            self._watch_traces = True
            self.start_exporter()

    def start_exporter(self) -> None:
        """See to it that pending traces are being exported."""
        try:
            self._launcher.ensure_running()
        except Exception as error:
            self._incidents.add("mlflow", "no exporter", error)

    def close(self, timeout: float) -> None:
        """Save what is known of failures, and let go of files and locks."""
        give_up = time.monotonic() + timeout
        self._keep_incidents()
        with self._lock:
            retriever, self._retriever = self._retriever, None
        if retriever is not None:
            _close_in_time(retriever, give_up - time.monotonic())
        self._ledger.close(give_up - time.monotonic())

    def _keep_incidents(self) -> None:
        """In the ledger if it is open and works; else in the spool, for the next process."""
        ledger = self._ledger.current()
        if ledger is not None:
            try:
                self._save_incidents(ledger)
            except Exception as error:
                self._incidents.add("ledger", "unavailable", error)
        left = [replace(i, message=self._redactor.text(i.message)) for i in self._incidents.take()]
        if not left:
            return
        try:
            Spool(self._config.home / "spool").put_incidents(self._config.namespace, left)
        except OSError as error:
            self._incidents.give_back(left)
            self._incidents.add("spool", "failed", error)

    def _save_incidents(self, ledger: Ledger) -> None:
        taken = self._incidents.take()
        try:
            ledger.add_incidents(self._config.namespace, taken)
        except Exception:
            self._incidents.give_back(taken)
            raise


def _close_in_time(retriever: SkillRetriever, timeout: float) -> None:
    """A look-up that hangs holds the retriever; it must not keep the program from ending."""
    closing = threading.Thread(target=retriever.close, name="metaclaw-close", daemon=True)
    with contextlib.suppress(RuntimeError):  # no new threads at exit (3.12): its locks end anyway
        closing.start()
        closing.join(max(0.0, timeout))
