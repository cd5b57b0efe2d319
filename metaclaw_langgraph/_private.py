"""Folders and files that only their owner may read: they hold conversations."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["open_private", "private_folder"]

_OTHERS = 0o077


def private_folder(path: Path) -> None:
    """Make the folder, and its parents, for the owner alone; an open one is closed to others."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_mode & _OTHERS:
        with contextlib.suppress(PermissionError):  # of another owner, who has allowed it
            path.chmod(0o700)


def open_private(path: Path, flags: int) -> int:
    """A file descriptor for writing; the file is made if need be, for the owner alone."""
    descriptor = os.open(path, flags | os.O_WRONLY | os.O_CREAT, 0o600)
    if os.fstat(descriptor).st_mode & _OTHERS:
        with contextlib.suppress(PermissionError, NotImplementedError):
            path.chmod(0o600)
    return descriptor
