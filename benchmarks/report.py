"""Result files that say on what machine, under what load and with which versions they were made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "environment", "write_results"]

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    *("metaclaw-langgraph", "langgraph", "langchain", "langchain-core", "mlflow", "chromadb"),
    *("onnxruntime", "tokenizers", "numpy", "sqlalchemy"),
)


def environment() -> dict[str, Any]:
    """The machine, its load now, and the versions of what is measured."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "load_before": [round(value, 2) for value in os.getloadavg()],
        "versions": versions,
    }


def write_results(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    before: Mapping[str, Any],
    *,
    title: str,
    notes: Sequence[str] = (),
) -> None:
    """Write `results/NAME.json` and a readable `results/NAME.md` beside it."""
    after = [round(value, 2) for value in os.getloadavg()]
    about = {**before, "load_after": after}
    RESULTS.mkdir(exist_ok=True)
    report = {"about": about, "notes": list(notes), "rows": list(rows)}
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    (RESULTS / f"{name}.md").write_text(_markdown(title, about, notes, rows), "utf-8")


def _markdown(
    title: str,
    about: Mapping[str, Any],
    notes: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        f"# {title}",
        "",
        f"{about['date']}; {about['machine']}, Python {about['python']}; load average before "
        f"{about['load_before']}, after {about['load_after']}; {versions}.",
        "",
        *(f"- {note}" for note in notes),
        "",
    ]
    if rows:
        columns = list(rows[0])
        lines.append("| " + " | ".join(columns) + " |")
        lines.append("|" + "---|" * len(columns))
        lines += ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"
