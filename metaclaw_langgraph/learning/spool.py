"""The spool: where finished runs wait on disk when the ledger cannot take them.

Each file holds some rows of the ledger, already redacted, and is written under a temporary name
and renamed, so that it is there whole or not at all. Any process that has the ledger may take a
file in: the ledger ignores rows that it has, so a file read twice does no harm.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["Row", "Spool"]

Row = dict[str, Any]
_TIMES = ("started_at", "ended_at")


class Spool:
    """A folder of waiting rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, rows: Sequence[Row]) -> None:
        """Keep the rows; OSError when the disk does not take them either."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = new_id()
        temporary = self.folder / f".{name}.tmp"
        try:
            temporary.write_text("\n".join(json.dumps(_pack(row)) for row in rows), "utf-8")
            os.replace(temporary, self.folder / f"{name}.jsonl")
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def files(self) -> list[Path]:
        """The waiting files, oldest first."""
        return sorted(self.folder.glob("*.jsonl"))

    def take(self) -> Iterator[tuple[Path, list[Row]]]:
        """Each waiting file with its rows; the caller deletes the file when they are stored."""
        for path in self.files():
            try:
                lines = path.read_text("utf-8").splitlines()
            except FileNotFoundError:
                continue  # another process was faster
            try:
                rows = [_unpack(json.loads(line)) for line in lines if line]
            except (ValueError, KeyError):
                path.rename(path.with_suffix(".bad"))  # for a person to look at
                continue
            yield path, rows


def _pack(row: Row) -> Row:
    packed = dict(row, body=base64.b64encode(row["body"]).decode("ascii"))
    return packed | {key: row[key].isoformat() for key in _TIMES}


def _unpack(packed: Row) -> Row:
    row = dict(packed, body=base64.b64decode(packed["body"]))
    return row | {key: datetime.fromisoformat(packed[key]) for key in _TIMES}
