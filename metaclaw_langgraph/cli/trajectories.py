"""`metaclaw trajectories`: the recorded runs, listed and shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from metaclaw_langgraph._json import plain, plain_table
from metaclaw_langgraph._messages import message_text, role_of, value_text
from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    one_line,
    opened_ledger,
    print_json,
    when,
)
from metaclaw_langgraph.ledger import TrajectorySummary
from metaclaw_langgraph.types import Outcome, Role, SkillHit, Trajectory, Verdict

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="List and show recorded runs.")

_LINE = 2000


@app.command("list")
def list_trajectories(
    namespace: NamespaceOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 20,
    outcome: Annotated[Outcome | None, typer.Option(help="Only runs that ended so.")] = None,
    role: Annotated[Role | None, typer.Option(help="Only runs with this role.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, the newest first."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        found = ledger.trajectories(config.namespace, limit=limit, outcome=outcome, role=role)
    if as_json:
        print_json([plain(one) for one in found])
        return
    new_console().print(_table(found))


@app.command("show")
def show_trajectory(
    id: Annotated[str, typer.Argument(help="The id, or enough of its beginning.")],
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: its messages, tool calls, skills and verdicts."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        found = ledger.trajectory(config.namespace, id)
        verdicts = ledger.verdicts(config.namespace, found.id)
        used = ledger.consumption(config.namespace, found.id)
    if as_json:
        consumed = used and {"evolution": used[0], "reason": used[1]}
        print_json({**plain_table(found), "verdicts": plain(verdicts), "consumed": consumed})
        return
    console = new_console()
    _show(found, console)
    _show_verdicts(verdicts, console)
    if used:
        console.print(f"consumed   by evolution {used[0]}: {used[1]}", soft_wrap=True)


def _table(found: Sequence[TrajectorySummary]) -> Table:
    """Two lines or more for each run, so that 80 columns hold a whole id: `show` needs it."""
    table = Table(show_lines=True)
    longest = max((len(one.id) for one in found), default=0)
    table.add_column("id, task", min_width=longest, overflow="fold")
    table.add_column("outcome, role")
    table.add_column("started, skills")
    for one in found:
        reward = "" if one.reward is None else f" {one.reward:+.2f}"
        steps = f"{one.n_calls} model, {one.n_tools} tool calls"
        skills = [hit.id for hit in one.skills if hit.injected]
        stamp = [] if one.generation is None else [f"generation {one.generation}"]
        table.add_row(
            f"{one.id}\n{one_line(one.task or '')}",
            f"{one.outcome}\n{one.role}{reward}",
            "\n".join([when(one.started_at), steps, *stamp, *skills]),
        )
    return table


def _show(found: Trajectory, console: Console) -> None:
    seconds = (found.ended_at - found.started_at).total_seconds()
    facts = {
        "id": found.id,
        "task": found.task,
        "started": f"{when(found.started_at)}, {seconds:.2f} s",
        "outcome": found.outcome if found.error is None else f"{found.outcome}: {found.error}",
        "role": found.role,
        "thread": found.thread_id,
        "generation": found.generation,
        "adapter": found.adapter,
        "retrieval": found.retrieval,
        "skills": _skills(found.skills),
        "trace": found.trace_id,
    }
    for name, value in facts.items():
        if value not in (None, ""):
            console.print(f"{name:<11}{value}", soft_wrap=True)
    _show_steps(found, console)


def _show_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    for verdict in verdicts:
        given = f"{when(verdict.at)} " if verdict.at else ""
        who = f"{verdict.source} {verdict.author or ''}".strip()
        said = f"{verdict.reward:+.2f} by {who}: {verdict.reason}"
        console.print(f"verdict    {given}{said}", soft_wrap=True)
        if verdict.step_scores:
            steps = ", ".join("?" if one is None else f"{one:+g}" for one in verdict.step_scores)
            console.print(f"{'':<11}its steps: {steps}", soft_wrap=True)
        if verdict.origin:
            console.print(f"{'':<11}read from {verdict.origin}", soft_wrap=True)


def _show_steps(found: Trajectory, console: Console) -> None:
    for message in found.messages:
        console.rule(role_of(message), align="left")
        console.print(_cut(message_text(message)), soft_wrap=True)
    if not found.messages:  # No model was called: what went in and out is all there is.
        console.print(_cut(f"input      {value_text(found.input)}"), soft_wrap=True)
        console.print(_cut(f"output     {value_text(found.output)}"), soft_wrap=True)
    for tool in found.tools:
        console.rule(f"run of tool {tool.name}", align="left")
        result = value_text(tool.output) if tool.error is None else f"error: {tool.error}"
        console.print(_cut(f"{value_text(tool.input)} -> {result}"), soft_wrap=True)


def _skills(hits: Sequence[SkillHit]) -> str:
    """The hits and their scores. Where none was injected, the budget need not be the reason."""
    reason = "over budget" if any(hit.injected for hit in hits) else "not injected"
    return ", ".join(f"{hit.id} ({hit.score:.2f}{_note(hit, reason)})" for hit in hits)


def _note(hit: SkillHit, reason: str) -> str:
    if hit.injected:
        return ""
    return ", withheld: on probation" if hit.withheld else f", {reason}"


def _cut(text: str) -> str:
    left = len(text) - _LINE
    return text if left <= 0 else f"{text[:_LINE]}… ({left} more characters; --json has them all)"
