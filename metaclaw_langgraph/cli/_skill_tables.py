"""What `metaclaw skills` prints: the list, the log, the report of an import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import typer
from rich.table import Table

from metaclaw_langgraph._json import plain, plain_table
from metaclaw_langgraph.cli._common import when
from metaclaw_langgraph.evolving.probation import Evidence
from metaclaw_langgraph.ledger import GenerationRecord, ProbationState, SkillCounts
from metaclaw_langgraph.skills.block import TooBig
from metaclaw_langgraph.skills.library import ImportReport
from metaclaw_langgraph.types import Json, Skill

__all__ = ["Listed", "log_table", "print_import", "report_json", "skill_json", "skill_table"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A live skill and what is known of it."""

    skill: Skill
    counts: SkillCounts
    probation: Evidence | None = None
    """What the runs say so far, when it is on probation."""
    big: TooBig | None = None
    """Set when it takes more than the token budget."""


def skill_json(one: Listed) -> dict[str, object]:
    """A row of `list --json`."""
    skill = one.skill
    row: dict[str, object] = {
        "name": skill.name,
        "version": skill.version,
        "description": skill.description,
        "counts": plain_table(one.counts),
    }
    if one.probation:
        row["probation"] = one.probation.to_json()
    if one.big:
        row["warning"] = str(one.big)
    return row


def skill_table(found: Iterable[Listed], generation: int) -> Table:
    """The list for people."""
    table = Table("name", "version", "description", "given", "helped", "hurt")
    table.title = f"generation {generation}"
    for one in found:
        text = [one.skill.description]
        if one.probation:
            text.append(_on_probation(one.probation))
        if one.big:
            size = f"{one.big.tokens} tokens, budget {one.big.budget}"
            text.append(f"TOO BIG to be injected: {size}")
        counts = (one.counts.injected, one.counts.helped, one.counts.hurt)
        table.add_row(one.skill.name, str(one.skill.version), "\n".join(text), *map(str, counts))
    return table


def _on_probation(found: Evidence) -> str:
    given = f"{found.with_passed} of {found.with_passed + found.with_failed}"
    withheld = f"{found.without_passed} of {found.without_passed + found.without_failed}"
    return (
        f"ON PROBATION: passed {given} with it, {withheld} without it; "
        f"evidence for it {found.helps:.1f} of 20, against it {found.hurts:.1f} of 10"
    )


def log_table(
    records: Iterable[GenerationRecord], probations: Mapping[str, ProbationState]
) -> Table:
    """The generations for people."""
    table = Table("generation", "at", "reason", "added", "removed")
    for one in records:
        added = [f"{id}{_mark(probations.get(id))}" for id in one.added]
        reason = "\n".join([one.reason, *_evidence(one.details)])
        number = str(one.generation)
        table.add_row(number, when(one.at), reason, _some(added), _some(one.removed))
    return table


def _mark(state: ProbationState | None) -> str:
    if state is None:
        return ""
    return " (on probation)" if state == "open" else f" (probation: {state})"


def _evidence(details: Mapping[str, Json]) -> list[str]:
    """What a change rests on, shortly; `log --json` has it all."""
    lines = []
    if source := details.get("source"):
        by = details.get("by") or details.get("evolver")
        lines.append(f"by {source}" + (f" {by}" if by else ""))
    for key in ("skills", "probation"):
        lines += [f"{name}: {_short(why)}" for name, why in _items(details.get(key))]
    return lines


def _items(value: Json) -> Sequence[tuple[str, Json]]:
    return list(value.items())[:5] if isinstance(value, Mapping) else ()


def _short(why: Json) -> str:
    if not isinstance(why, Mapping):
        return str(why)
    number = {key: why.get(key, 0) for key in ("with_passed", "with_failed")}
    other = {key: why.get(key, 0) for key in ("without_passed", "without_failed")}
    given = f"{number['with_passed']} passed and {number['with_failed']} failed with it"
    withheld = f"{other['without_passed']} and {other['without_failed']} without it"
    return f"{why.get('decision')}, {given}, {withheld}"


def print_import(report: ImportReport, big: Iterable[TooBig]) -> None:
    """The report of an import for people."""
    for refusal in report.refused:
        typer.echo(f"{refusal.path}:{refusal.line}: {refusal.problem}", err=True)
    done = [*report.added, *report.updated, *report.unchanged]
    if report.refused and not done:
        typer.echo("nothing was imported; mend the files, or use --keep-going", err=True)
        return
    counts = f"{len(report.added)} added, {len(report.updated)} updated"
    same = f"{len(report.unchanged)} unchanged, {len(report.refused)} refused"
    typer.echo(f"{counts}, {same}; generation {report.generation}")
    for one in big:
        typer.echo(f"warning: {one}", err=True)
    for left in report.left_out:
        typer.echo(
            f"note: of {left.name} only SKILL.md was imported, without {_some(left.files)}",
            err=True,
        )


def report_json(report: ImportReport, big: Iterable[TooBig]) -> dict[str, object]:
    """The same as JSON."""
    return {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "refused": [
            {"path": one.path, "line": one.line, "problem": one.problem} for one in report.refused
        ],
        "left_out": [{"name": one.name, "files": one.files} for one in report.left_out],
        "too_big": plain(list(big)),
        "generation": report.generation,
    }


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"
