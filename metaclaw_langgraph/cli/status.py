"""`metaclaw status`: what has been learned and recorded, what is broken, what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import typer
from rich.console import Console
from rich.table import Table

from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    print_json,
    when,
)
from metaclaw_langgraph.ledger import IncidentRecord, JudgingCounts
from metaclaw_langgraph.status import JudgeAgreement, NamespaceStatus, Status, gather_status

__all__ = ["app"]

app = typer.Typer()


@app.command()
def status(namespace: NamespaceOption = None, as_json: JsonOption = False) -> None:
    """Show what there is and what is broken. Exit code 1 when a part does not work."""
    found = gather_status(load_config(namespace), namespace=namespace)
    if as_json:
        print_json(found.to_json())
    else:
        show_status(found, new_console())
    if not found.working:
        raise typer.Exit(1)


def show_status(found: Status, console: Console) -> None:
    """Print a status for people."""
    tracing = found.mlflow if found.tracing else "off (tracing = false)"
    console.print(f"home     {found.home}\nledger   {found.ledger}", soft_wrap=True)
    console.print(f"skills   {found.skills_index}\ntraces   {tracing}", soft_wrap=True)
    console.print(_namespaces(found.namespaces))
    for one in found.namespaces:
        for line in _learning(one):
            console.print(f"{one.namespace}: {line}", soft_wrap=True)
    _show_incidents(found, console)
    _show_waiting(found, console)
    for problem in found.problems:
        console.print(f"BROKEN {problem.part}: {problem.message}", style="bold red", soft_wrap=True)


def _namespaces(found: Iterable[NamespaceStatus]) -> Table:
    table = Table("namespace", "generation", "skills", "trajectories", "roles", "traces waiting")
    for one in found:
        counts = one.trajectories
        table.add_row(
            one.namespace,
            _known(one.generation),
            _known(one.skills),
            _counted(counts.outcome) if counts else "?",
            _counted(counts.role) if counts else "?",
            str(one.traces_pending) if counts else "?",
        )
    return table


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"


def _learning(one: NamespaceStatus) -> Iterator[str]:
    """What waits to be learnt, and for whom."""
    if one.support_waiting:
        yield f"{one.support_waiting} failures wait to be learnt from"
    if one.drafts_waiting:
        yield f"{one.drafts_waiting} drafts wait for you: metaclaw skills review"
    if one.on_probation:
        yield f"{one.on_probation} skills are on probation: metaclaw skills list"
    if one.judging:
        yield from _judging(one.judging, one.incidents)
    if one.agreement:
        yield _agreement(one.agreement)


def _judging(counts: JudgingCounts, incidents: Iterable[IncidentRecord]) -> Iterator[str]:
    numbers = {
        "nobody judged yet": counts.waiting,
        "to be judged again": counts.retrying,
        "given up": counts.given_up,
    }
    if any(numbers.values()):
        some = ", ".join(f"{number} {name}" for name, number in numbers.items() if number)
        yield f"recent runs without a verdict: {some}"
    if counts.retrying or counts.given_up:
        for one in incidents:
            if (one.part, one.kind) == ("judge", "failed"):
                last = when(one.last_at)
                yield f"the judge failed {one.count} times, last at {last}: {one.message}"


def _agreement(found: JudgeAgreement) -> str:
    kappa = "not defined" if found.kappa is None else f"{found.kappa:.2f}"
    share = f"{found.observed or 0:.0%} of the {found.n} runs that they judged too"
    return f"the judge agrees with people and verifiers on {share} (kappa {kappa})"


def _show_incidents(found: Status, console: Console) -> None:
    rows = [(one.namespace, incident) for one in found.namespaces for incident in one.incidents]
    if rows:
        console.print(_incidents(rows))
    unknown = [one.namespace for one in found.namespaces if not one.incidents_known]
    if unknown:
        names = ", ".join(unknown)
        console.print(f"Incidents of {names} unknown: the ledger does not answer.", soft_wrap=True)
    elif not rows:
        console.print(_no_incidents(found))


def _no_incidents(found: Status) -> str:
    """What can be said for sure: a run that still waits may yet be lost."""
    if found.waiting or found.spool_waiting or found.spool_unreadable:
        return "No incidents so far; not every finished run is stored:"
    return "No incidents so far." if found.problems else "No incidents: nothing was lost."


def _incidents(rows: Iterable[tuple[str, IncidentRecord]]) -> Table:
    table = Table("namespace", "part", "what", "times", "last", "message", title="Incidents")
    for namespace, one in rows:
        last = when(one.last_at)
        table.add_row(namespace, one.part, one.kind, str(one.count), last, one.message)
    return table


def _show_waiting(found: Status, console: Console) -> None:
    if found.waiting:
        console.print(f"{found.waiting} finished runs wait in this process to be stored.")
    if found.spool_waiting:
        console.print(
            f"{found.spool_waiting} spool files wait for the ledger; "
            "the next process that uses this home stores them."
        )
    if found.spool_unreadable:
        console.print(f"{found.spool_unreadable} spool files cannot be read: {found.home}/spool")
