"""Starts the exporter process when there is something to export, and not more often."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

__all__ = ["ExporterLauncher"]

_SPACING_FIRST = 1.0
_SPACING_MOST = 60.0


class ExporterLauncher:
    """Owns at most one exporter of its namespace; not thread-safe: the recorder's thread calls."""

    def __init__(
        self,
        *,
        namespace: str,
        home: Path,
        ledger_url: str,
        mlflow_uri: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = {
            "namespace": namespace,
            "home": str(home),
            "ledger_url": ledger_url,
            "mlflow_uri": mlflow_uri,
            "parent": os.getpid(),
        }
        self._log = home / "logs" / f"exporter-{namespace}.log"
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._spacing = _SPACING_FIRST

    def ensure_running(self) -> None:
        """Start the exporter unless it runs; after quick failures, wait longer and longer."""
        if self._process is not None and self._process.poll() is None:
            return
        now = self._clock()
        if now < self._not_before:
            return
        failed = self._process is not None and self._process.returncode != 0
        self._spacing = min(self._spacing * 2, _SPACING_MOST) if failed else _SPACING_FIRST
        self._not_before = now + self._spacing
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "metaclaw_langgraph.tracing.exporter"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is not meant for it
            )
        # By a pipe and not as arguments: the URLs may hold passwords.
        pipe: IO[bytes] | None = process.stdin
        assert pipe is not None
        with pipe:
            pipe.write(json.dumps(self._order).encode())
        # Somebody has to wait for it, or it stays as a zombie; it may outlive the runtime.
        reaper = threading.Thread(target=process.wait, name="metaclaw-reaper", daemon=True)
        with contextlib.suppress(RuntimeError):  # no new threads at exit (3.12), nor any need
            reaper.start()
        return process
