"""`metaclaw learn`: judge and evolve now, for cron jobs and where no app runs.

A running app does this by itself. Here the configured models are asked, and what happened is read
from the ledger: what it was before, and what it is afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from metaclaw_langgraph._json import plain_table
from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    opened_ledger,
    print_json,
    visible,
)
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Counts, DraftRecord, EvolutionRecord, Ledger, Probation
from metaclaw_langgraph.redaction import Redactor

__all__ = ["app"]

app = typer.Typer()

_PARTS = ("judge", "evolver", "learning")
_LOOKED_AT = 1000
_Stored = TypeVar("_Stored", DraftRecord, EvolutionRecord)


@dataclass(frozen=True, slots=True)
class _Roles:
    """The runs by what their verdicts say."""

    passed: int
    failed: int
    unjudged: int
    support: int
    """Failures that nothing was learnt from yet."""


@dataclass(frozen=True, slots=True)
class _Before:
    """What there was before."""

    generation: int
    roles: _Roles
    evolutions: frozenset[str]
    drafts: frozenset[str]
    probations: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Draft:
    """What became of a draft."""

    id: str
    skill: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Report:
    """What happened."""

    namespace: str
    generation_before: int
    generation: int
    before: _Roles
    after: _Roles
    consumed: int
    drafts: tuple[_Draft, ...]
    probations: tuple[tuple[str, str], ...]
    """Skills whose probation ended, and how."""
    problems: tuple[str, ...]


@app.command()
def learn(
    timeout: Annotated[float, typer.Option(min=0.1, help="The most seconds to take.")] = 600.0,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge recorded runs and make skills of failures, now. Exit code 1 when that failed."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        before = _before(ledger, config.namespace)
        problems = _learn(config, timeout)
        report = _report(ledger, config.namespace, before, problems)
    if as_json:
        print_json({"working": not problems, **plain_table(report)})
    else:
        _show(report, config, new_console())
    if problems:
        raise typer.Exit(1)


def _learn(config: MetaClawConfig, timeout: float) -> tuple[str, ...]:
    """Let the runtime learn; what went wrong."""
    from metaclaw_langgraph.learning.parts import parts_for
    from metaclaw_langgraph.runtime import runtime_for

    parts_for(config)  # a model that cannot be made is the user's to mend, and no incident
    runtime = runtime_for(config)
    try:
        done = runtime.learn(timeout)
        incidents = runtime.incidents.total()
    finally:
        runtime.close()
    text = Redactor(config.redact).text
    told = {
        one: f"{one.part} {one.kind}, {one.count} times: {text(one.message)}" for one in incidents
    }
    ours = tuple(line for one, line in told.items() if one.part in _PARTS)
    if done or ours:
        return ours
    return *told.values(), f"not done after {timeout:g} s: give it more (--timeout)"


def _before(ledger: Ledger, namespace: str) -> _Before:
    return _Before(
        generation=ledger.generation(namespace),
        roles=_roles(ledger.counts(namespace)),
        evolutions=frozenset(one.id for one in ledger.evolutions(namespace)),
        drafts=frozenset(one.id for one in ledger.drafts(namespace)),
        probations=frozenset(one.skill_id for one in ledger.probations(namespace)),
    )


def _report(ledger: Ledger, namespace: str, before: _Before, problems: tuple[str, ...]) -> _Report:
    evolutions = _new(ledger.evolutions(namespace, _LOOKED_AT), before.evolutions)
    drafts = _new(ledger.drafts(namespace, limit=_LOOKED_AT), before.drafts)
    return _Report(
        namespace=namespace,
        generation_before=before.generation,
        generation=ledger.generation(namespace),
        before=before.roles,
        after=_roles(ledger.counts(namespace)),
        consumed=sum(len(one.consumed) for one in evolutions),
        drafts=tuple(_Draft(one.id, one.skill.name, one.state, one.reason) for one in drafts),
        probations=_ended(ledger.probations(namespace, state=None), before.probations),
        problems=problems,
    )


def _roles(counts: Counts) -> _Roles:
    def number(*roles: str) -> int:
        return sum(counts.role.get(role, 0) for role in roles)

    return _Roles(
        passed=number("query", "stale", "trained"),
        failed=number("support", "consumed"),
        unjudged=number("unjudged"),
        support=number("support"),
    )


def _new(newest_first: Sequence[_Stored], known: frozenset[str]) -> list[_Stored]:
    """Those that were not there before, oldest first."""
    return list(takewhile(lambda one: one.id not in known, newest_first))[::-1]


def _ended(
    probations: Sequence[Probation], open_before: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    latest = {one.skill_id: one.state for one in probations if one.skill_id in open_before}
    return tuple((id, state) for id, state in latest.items() if state != "open")


def _show(report: _Report, config: MetaClawConfig, console: Console) -> None:
    before, after = report.before, report.after
    runs = ", ".join(
        f"{now} {name}" + (f" ({now - was:+d})" if now != was else "")
        for name, now, was in (
            ("passed", after.passed, before.passed),
            ("failed", after.failed, before.failed),
            ("not judged", after.unjudged, before.unjudged),
        )
    )
    moved = f" (was {report.generation_before})"
    changed = moved if report.generation != report.generation_before else ", as before"
    console.print(f"runs        {runs}\nlearnt from {report.consumed} failures", soft_wrap=True)
    for draft in report.drafts:
        line = f"draft       {draft.skill}: {draft.state}, {draft.reason}"
        console.print(visible(line), soft_wrap=True)
    for id, state in report.probations:
        console.print(f"probation   {id}: {state}", soft_wrap=True)
    console.print(f"generation  {report.generation}{changed}")
    _show_what_waits(report, config, console)
    for problem in report.problems:
        console.print(f"FAILED      {visible(problem)}", style="bold red", soft_wrap=True)


def _show_what_waits(report: _Report, config: MetaClawConfig, console: Console) -> None:
    if any(draft.state == "review" for draft in report.drafts):
        console.print("Drafts wait for you: metaclaw skills review")
    if not report.after.support:
        return
    why = ""
    if not config.evolving.enabled:
        why = ": evolving.enabled = false"
    elif config.evolving.model is None:
        why = ": without evolving.model, only corrections in words become skills"
    console.print(f"{report.after.support} failures wait to be learnt from{why}", soft_wrap=True)
