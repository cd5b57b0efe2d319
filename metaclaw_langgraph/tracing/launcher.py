"""Starts the exporter process when there is something for it to do, and not more often."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import Timeout

from metaclaw_langgraph._private import private_folder
from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.tracing.log import exporter_lock, exporter_log, open_log

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig

__all__ = ["ExporterLauncher", "anything_pending"]

_SPACING_FIRST = 1.0
_SPACING_MOST = 60.0


def anything_pending(ledger: Ledger, namespace: str) -> bool:
    """Whether there are runs or generations that MLflow does not show yet."""
    runs = ledger.untraced(namespace, limit=1)
    return bool(runs or ledger.unexported_generations(namespace, 1))


class ExporterLauncher:
    """Owns at most one exporter of its namespace; thread-safe."""

    @classmethod
    def of(cls, config: MetaClawConfig) -> Self:
        """The launcher for the configured namespace and stores."""
        return cls(
            namespace=config.namespace,
            home=config.home,
            ledger_url=config.resolved_ledger_url,
            mlflow_uri=config.resolved_mlflow_uri,
            redact=config.redact.model_dump(mode="json"),
            feedback_names=config.judging.feedback_names,
        )

    def __init__(
        self,
        *,
        namespace: str,
        home: Path,
        ledger_url: str,
        mlflow_uri: str,
        redact: Mapping[str, Any],
        feedback_names: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = {
            "namespace": namespace,
            "home": str(home),
            "ledger_url": ledger_url,
            "mlflow_uri": mlflow_uri,
            "redact": dict(redact),
            "parent": os.getpid(),
            "feedback_names": list(feedback_names),
        }
        self._home = home
        self._namespace = namespace
        self._clock = clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._spacing = _SPACING_FIRST
        self._broken = False

    def at_work(self) -> bool:
        """Whether an exporter of this namespace runs, ours or another process's."""
        with self._lock:
            return self._runs() or self._locked()

    def ensure_running(self) -> None:
        """Start the exporter unless one runs; after quick failures, wait longer and longer.

        ConfigError when there is no Python to start it with, OSError when it does not start.
        """
        with self._lock:
            now = self._clock()
            if self._runs() or now < self._not_before:
                return
            ended_badly = self._process is not None and self._process.returncode != 0
            self._space_out(now, self._broken or ended_badly)
            self._broken = True
            if not self._locked():
                self._start(_python())
            self._broken = False

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _locked(self) -> bool:
        """Whether somebody's exporter holds the lock; to ask here is cheaper than a process."""
        private_folder(self._home / "logs")
        try:
            with exporter_lock(self._home, self._namespace).acquire(blocking=False):
                return False
        except Timeout:
            return True

    def _space_out(self, now: float, failed: bool) -> None:
        self._spacing = min(self._spacing * 2, _SPACING_MOST) if failed else _SPACING_FIRST
        self._not_before = now + self._spacing

    def _start(self, python: str) -> None:
        log = open_log(exporter_log(self._home, self._namespace))
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "metaclaw_langgraph.tracing.exporter"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is not meant for it
            )
        finally:
            os.close(log)
        # Somebody has to wait for it, or it stays as a zombie; it may outlive the runtime.
        reaper = threading.Thread(target=self._process.wait, name="metaclaw-reaper", daemon=True)
        with contextlib.suppress(RuntimeError):  # no new threads at exit (3.12), nor any need
            reaper.start()
        # By a pipe and not as arguments: the URLs may hold passwords.
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(self._order).encode())


def _python() -> str:
    """The interpreter to start; inside uWSGI or a frozen app, `sys.executable` is the app."""
    name = Path(sys.executable or "").name.lower()
    if getattr(sys, "frozen", False) or not ("python" in name or "pypy" in name):
        raise ConfigError(
            f"traces wait: sys.executable is {sys.executable!r}, no Python to export them with;"
            " run any program with python on this METACLAW_HOME, or set METACLAW_TRACING=false"
        )
    return sys.executable
