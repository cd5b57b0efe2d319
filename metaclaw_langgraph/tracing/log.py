"""The exporter's files: its log, which holds no secrets and stays small, and its lock."""

from __future__ import annotations

import contextlib
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from metaclaw_langgraph._private import open_private, private_folder

__all__ = ["RedactedLog", "exporter_lock", "exporter_log", "open_log"]

_MOST_BYTES = 1_000_000


def exporter_log(home: Path, namespace: str) -> Path:
    """Where the exporter of a namespace writes what it has to say."""
    return home / "logs" / f"exporter-{namespace}.log"


def exporter_lock(home: Path, namespace: str) -> FileLock:
    """What the one exporter of a namespace holds while it works."""
    return FileLock(home / "logs" / f"exporter-{namespace}.lock", mode=0o600)


def open_log(path: Path) -> int:
    """A file descriptor that appends; a log that is long already becomes the old one."""
    private_folder(path.parent)
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        with contextlib.suppress(OSError):  # then it grows on; to have a log matters more
            os.replace(path, path.with_name(f"{path.name}.1"))
    return open_private(path, os.O_APPEND)


class RedactedLog(io.TextIOBase):
    """A stream in place of stdout and stderr: whoever writes there, secrets are taken out."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path = path
        self._redact = redact
        self._lock = threading.Lock()
        self._descriptor = open_log(path)

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        clean = self._redact(text).encode("utf-8", "backslashreplace")
        with self._lock:
            if os.fstat(self._descriptor).st_size > _MOST_BYTES:
                os.close(self._descriptor)
                self._descriptor = open_log(self._path)
            os.write(self._descriptor, clean)
        return len(text)
