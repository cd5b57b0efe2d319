"""The spool: where finished runs wait on disk when the ledger cannot take them.

Each `.jsonl` file holds some rows of the ledger, already redacted; an `.incidents.json` file holds
the incidents that a process could not save before it ended. Files are written under a temporary
name and renamed, so that they are there whole or not at all. Any process that has the ledger may
take a file in: the ledger ignores rows that it has, so a file read twice does no harm. What cannot
be taken in is set aside under the suffix `.bad`, for a person to look at.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from metaclaw_langgraph._private import open_private, private_folder
from metaclaw_langgraph.ledger.values import Incident
from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["Row", "Spool"]

Row = dict[str, Any]
_TIMES = ("started_at", "ended_at")
_INCIDENTS = ".incidents.json"
_ABANDONED_SECONDS = 3600.0


class Spool:
    """A folder of waiting rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, rows: Sequence[Row]) -> None:
        """Keep the rows; OSError when the disk does not take them either."""
        self._write(".jsonl", "\n".join(json.dumps(_pack(row)) for row in rows))

    def put_incidents(self, namespace: str, incidents: Sequence[Incident]) -> None:
        """Keep incidents, which the caller has redacted."""
        packed = [_pack_incident(one) for one in incidents]
        self._write(_INCIDENTS, json.dumps({"namespace": namespace, "incidents": packed}))

    def files(self) -> list[Path]:
        """The waiting files of rows, oldest first."""
        return sorted(self.folder.glob("*.jsonl"))

    def incident_files(self) -> list[Path]:
        """The waiting files of incidents, oldest first."""
        return sorted(self.folder.glob(f"*{_INCIDENTS}"))

    def needs_care(self) -> bool:
        """Whether anything but what was set aside is there."""
        return any(path.suffix != ".bad" for path in self.folder.glob("*"))

    def read(self, path: Path) -> list[Row]:
        """The rows of a file; whatever may be wrong with it is raised."""
        return [_unpack(json.loads(line)) for line in path.read_text("utf-8").splitlines() if line]

    def read_incidents(self, path: Path) -> tuple[str, list[Incident]]:
        """The namespace and the incidents of a file."""
        found = json.loads(path.read_text("utf-8"))
        return str(found["namespace"]), [_unpack_incident(one) for one in found["incidents"]]

    def claim(self, path: Path) -> Path:
        """Take a file away from other processes: incidents must not be counted twice."""
        claimed = self.folder / f".{path.name}.{new_id()}.tmp"
        path.rename(claimed)
        os.utime(claimed)  # or it would look abandoned at once
        return claimed

    def give_back(self, claimed: Path, path: Path) -> Path:
        """Leave a claimed file for later, or for others."""
        return claimed.rename(path)

    def set_aside(self, path: Path) -> None:
        """Keep a file out of the way, for a person to look at."""
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.rename(path.with_suffix(".bad"))

    def remove_abandoned(self) -> None:
        """Delete what processes that were killed had not finished writing."""
        before = time.time() - _ABANDONED_SECONDS
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):  # gone, or not ours to delete: no harm either way
                if path.stat().st_mtime < before:
                    path.unlink()

    def _write(self, suffix: str, text: str) -> None:
        private_folder(self.folder)
        name = new_id()
        temporary = self.folder / f".{name}.tmp"
        try:
            with os.fdopen(open_private(temporary, os.O_EXCL), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temporary, self.folder / f"{name}{suffix}")
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _pack(row: Row) -> Row:
    packed = dict(row, body=base64.b64encode(row["body"]).decode("ascii"))
    return packed | {key: row[key].isoformat() for key in _TIMES}


def _unpack(packed: Row) -> Row:
    row = dict(packed, body=base64.b64decode(packed["body"]))
    return row | {key: datetime.fromisoformat(packed[key]) for key in _TIMES}


def _pack_incident(one: Incident) -> Row:
    return {
        "part": one.part,
        "kind": one.kind,
        "count": one.count,
        "message": one.message,
        "at": one.at.isoformat(),
    }


def _unpack_incident(packed: Row) -> Incident:
    return Incident(
        str(packed["part"]),
        str(packed["kind"]),
        int(packed["count"]),
        str(packed["message"]),
        datetime.fromisoformat(packed["at"]),
    )
