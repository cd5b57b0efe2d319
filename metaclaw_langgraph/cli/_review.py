"""`metaclaw skills review`, `approve` and `reject`: what a person decides about drafts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from metaclaw_langgraph._json import plain, plain_table
from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    one_line,
    opened_ledger,
    os_user,
    print_json,
    visible,
    when,
)
from metaclaw_langgraph.cli._library import indexed_library
from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.evolving.review import approve, reject
from metaclaw_langgraph.ledger import DraftRecord, Ledger
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.types import Json, Skill

__all__ = ["app"]

app = typer.Typer()

_Ids = Annotated[list[str], typer.Argument(help="Drafts by id, or enough of its beginning.")]
_Reason = Annotated[str, typer.Option(help="Why, for the record.")]


@app.command("review")
def review(
    id: Annotated[str | None, typer.Argument(help="Show this draft; else list them.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that are decided, or were refused.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 50,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the drafts that wait for a person, or show one with its findings."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        if id is not None:
            _review_one(ledger, config.namespace, id, as_json)
            return
        found = ledger.drafts(config.namespace, state=None if every else "review", limit=limit)
    if as_json:
        print_json(plain(found))
    elif found:
        new_console().print(_table(found))
    else:
        typer.echo("no drafts yet" if every else "no draft waits for review")


@app.command("approve")
def approve_drafts(ids: _Ids, reason: _Reason = "", namespace: NamespaceOption = None) -> None:
    """Make drafts live, each in a generation of its own."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, indexed_library(config, ledger) as library:
        for id in ids:
            draft = ledger.draft(config.namespace, id)
            generation = approve(ledger, library, draft.id, os_user(), reason)
            live = ledger.draft(config.namespace, draft.id).skill_id
            typer.echo(f"approved {live}; generation {generation}")


@app.command("reject")
def reject_drafts(ids: _Ids, reason: _Reason = "", namespace: NamespaceOption = None) -> None:
    """Turn drafts down. They stay on record."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        for id in ids:
            draft = ledger.draft(config.namespace, id)
            reject(ledger, config.namespace, draft.id, os_user(), reason)
            typer.echo(f"rejected {draft.skill.name} ({draft.id})")


def _table(found: Iterable[DraftRecord]) -> Table:
    """Two lines or more for each draft, so that 80 columns hold a whole id: `approve` needs it."""
    table = Table("id, written from", "skill", "state, why", show_lines=True)
    table.columns[0].min_width = 36
    table.columns[0].overflow = "fold"
    for one in found:
        more = f"\nand {len(one.origin) - 3} more runs" if len(one.origin) > 3 else ""
        runs = "".join(f"\n← {run}" for run in one.origin[:3])
        kind = f"{_kind(one)}\nUNTRUSTED" if one.untrusted else _kind(one)
        by = f" by {one.decided_by}" if one.decided_by else ""
        why = visible(one_line(one.reason, 200))
        table.add_row(
            f"{one.id}{runs}{more}", f"{one.skill.name}\n{kind}", f"{one.state}{by}\n{why}"
        )
    return table


def _kind(draft: DraftRecord) -> str:
    return f"better version of {draft.replaces}" if draft.replaces else "new"


def _review_one(ledger: Ledger, namespace: str, id: str, as_json: bool) -> None:
    draft = ledger.draft(namespace, id)
    names = [draft.replaces] if draft.replaces else []
    live = next(iter(ledger.live_versions(namespace, names).values()), None)
    if as_json:
        print_json({**plain_table(draft), "live": live and plain_table(live)})
        return
    console = new_console()
    _show_facts(draft, console)
    for run in draft.origin:
        console.print(f"from run   {run}: {_task(ledger, namespace, run)}", soft_wrap=True)
    _show_findings(draft, console)
    if not draft.skill.body:
        console.print("Its text was not kept.")
        return
    console.rule("SKILL.md", align="left")
    typer.echo(visible(render_skill(draft.skill)))
    if live is not None:
        console.rule(f"against {live.id}, which is live", align="left")
        typer.echo(visible(_diff(live, draft.skill)))


def _show_facts(draft: DraftRecord, console: Console) -> None:
    facts = {
        "draft": draft.id,
        "skill": f"{draft.skill.name}, {_kind(draft)}",
        "state": f"{draft.state}: {draft.reason}",
        "decided by": draft.decided_by,
        "became": draft.skill_id,
        "written": when(draft.created_at) if draft.created_at else None,
        "because": draft.evidence.get("why"),
        "trust": "UNTRUSTED: a tool result or a user may have dictated it"
        if draft.untrusted
        else None,
        "gate": _figures(draft.evidence.get("gate")),
    }
    for name, value in facts.items():
        if value:
            console.print(f"{name:<11}{visible(str(value))}", soft_wrap=True)


def _figures(gate: Json) -> str:
    if not isinstance(gate, Mapping):
        return ""
    return ", ".join(f"{key} {value}" for key, value in gate.items() if not _nested(value))


def _nested(value: Json) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _task(ledger: Ledger, namespace: str, run: str) -> str:
    try:
        return visible(one_line(ledger.trajectory(namespace, run).task or "(no task)"))
    except NotFoundError:
        return "(not in the ledger)"


def _show_findings(draft: DraftRecord, console: Console) -> None:
    found = draft.evidence.get("guard")
    lines = draft.skill.body.split("\n")
    for one in found if isinstance(found, Sequence) and not isinstance(found, str) else ():
        if isinstance(one, Mapping):
            number = one.get("line")
            place = ""
            if isinstance(number, int) and 0 < number <= len(lines):
                place = f", line {number} of its body: {visible(one_line(lines[number - 1]))}"
            console.print(f"finding    {one.get('kind')}{place}", style="yellow", soft_wrap=True)


def _diff(live: Skill, draft: Skill) -> str:
    before, after = render_skill(live).split("\n"), render_skill(draft).split("\n")
    return "\n".join(unified_diff(before, after, live.id, "draft", lineterm=""))
