"""Text that MLflow shows well: a run's note, tables, and diffs that are not too long."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from metaclaw_langgraph.ledger import GenerationRecord

__all__ = ["LONGEST_NOTE", "fenced", "fitting", "note", "table"]

LONGEST_NOTE = 4500
"""For the tag that MLflow shows as a run's description: old servers take at most 5000."""
_MOST_ROWS = 30
_MOST_FIGURES = 12  # the others are among the run's metrics


def fitting(parts: Mapping[str, str], most: int) -> str:
    """As many of the parts as fit, whole, and a line that says how many do not."""
    kept: list[str] = []
    left = most
    for part in parts.values():
        left -= len(part)
        if left < 0 and kept:
            return "".join(kept) + f"# {len(parts) - len(kept)} more skills changed\n"
        kept.append(part)
    return "".join(kept)


def note(
    record: GenerationRecord, figures: Mapping[str, float], diff: str, most: int = LONGEST_NOTE
) -> str:
    """A generation as a page to read; cut so that it has no more than `most` characters."""
    changes = [
        [label, _names(ids)]
        for label, ids in (("added", record.added), ("removed", record.removed))
        if ids
    ]
    rows = [[name, f"{value:.4g}"] for name, value in [*figures.items()][:_MOST_FIGURES]]
    head = [
        _quoted(record.reason),
        table(["change", "skills"], changes),
        table(["skill", "why"], _reasons(record)),
    ]
    tail = table(["figure", "value"], rows)
    left = most - sum(len(part) for part in (*head, tail)) - 50
    shown = diff if len(diff) <= left else diff[: max(0, left)].rpartition("\n")[0] + "\n…"
    parts = [*head, fenced(shown, "diff") if diff else "", tail]
    return "\n\n".join(part for part in parts if part)[:most]


def _reasons(record: GenerationRecord) -> list[list[str]]:
    found = record.details.get("skills")
    if not isinstance(found, Mapping):
        return []
    return [[str(name), str(why)[:300]] for name, why in [*found.items()][:_MOST_ROWS]]


def fenced(text: str, language: str) -> str:
    """A block of code in Markdown that its own text cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; empty when it has no rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _names(ids: Sequence[str], most: int = 20) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(f"`{id}`" for id in ids[:most]) + more


def _quoted(text: str) -> str:
    """As a quotation: whatever it says, it is not the page's own voice."""
    return "\n".join(f"> {line}" for line in text[:1000].splitlines()) or "> (no reason given)"
