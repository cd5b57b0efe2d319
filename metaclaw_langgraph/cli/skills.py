"""`metaclaw skills`: import, look at, export and roll back skills."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from metaclaw_langgraph._json import plain
from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    opened_ledger,
    print_json,
    when,
)
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills import chroma
from metaclaw_langgraph.skills.block import TooBig, too_big
from metaclaw_langgraph.skills.embedding import Embedder, load_embedder
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.skills.index import SkillIndex, open_index, rebuild_index
from metaclaw_langgraph.skills.library import ImportReport, SkillLibrary
from metaclaw_langgraph.types import Skill

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Import, show, export and roll back skills.")

_Names = Annotated[list[str] | None, typer.Argument(help="Skills by name; all when none.")]


@app.command("import")
def import_skills(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Holds skill folders.")],
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Import the good files although some are refused.")
    ] = False,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import the SKILL.md files in and below DIR. All of them, or none."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, _indexed_library(config, ledger) as library:
        report = library.import_skills(folder, keep_going=keep_going)
        done = {*report.added, *report.updated, *report.unchanged}
        imported = [skill for skill in library.active() if skill.id in done]
    big = too_big(imported, report.generation, config.retrieval.token_budget)
    if as_json:
        print_json(_report_json(report, big))
    else:
        _print_report(report, big)
    if report.refused:
        raise typer.Exit(2)


@app.command("list")
def list_skills(namespace: NamespaceOption = None, as_json: JsonOption = False) -> None:
    """List the active skills."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        skills = _library(config, ledger).active()
        generation = ledger.generation(config.namespace)
    big = {one.name: one for one in too_big(skills, generation, config.retrieval.token_budget)}
    if as_json:
        rows = [_skill_json(skill, big.get(skill.name)) for skill in skills]
        print_json({"namespace": config.namespace, "generation": generation, "skills": rows})
    else:
        new_console().print(_skill_table(skills, generation, big))


@app.command("show")
def show_skill(
    name: Annotated[str, typer.Argument(help="The skill's name.")],
    version: Annotated[int | None, typer.Option(help="Which version; else the active one.")] = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print a skill as a SKILL.md file."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        record = _library(config, ledger).show(name, version)
    typer.echo(render_skill(record.skill), nl=False)


@app.command("export")
def export_skills(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write skill folders.")],
    names: _Names = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    namespace: NamespaceOption = None,
) -> None:
    """Write active skills to DIR, one folder each."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        written = _library(config, ledger).export(folder, names or (), force=force)
    typer.echo(f"wrote {len(written)} skills to {folder}")


@app.command("history")
def history(
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 20,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the generations and what each changed, the newest first."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        records = _library(config, ledger).history(limit)
    if as_json:
        print_json(
            [
                {
                    "generation": one.generation,
                    "at": one.at.isoformat(),
                    "reason": one.reason,
                    "added": one.added,
                    "removed": one.removed,
                }
                for one in records
            ]
        )
        return
    table = Table("generation", "at", "reason", "added", "removed")
    for one in records:
        added, removed = _some(one.added), _some(one.removed)
        table.add_row(str(one.generation), when(one.at), one.reason, added, removed)
    new_console().print(table)


@app.command("remove")
def remove(
    names: Annotated[list[str], typer.Argument(help="Skills by name.")],
    namespace: NamespaceOption = None,
) -> None:
    """Take skills out of use. Their versions stay on record: rollback brings them back."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, _indexed_library(config, ledger) as library:
        generation = library.remove(names)
    typer.echo(f"removed {len(set(names))}; generation {generation}")


@app.command("rollback")
def rollback(
    to: Annotated[int, typer.Argument(metavar="GENERATION", help="Whose skills to bring back.")],
    namespace: NamespaceOption = None,
) -> None:
    """Start a new generation with the skills of an old one."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, _indexed_library(config, ledger) as library:
        generation = library.rollback(to)
    typer.echo(f"generation {generation} has the skills of generation {to}")


@app.command("reindex")
def reindex(namespace: NamespaceOption = None) -> None:
    """Rebuild the Chroma index from the ledger."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        embedder = load_embedder(config.retrieval.embedder)
        rows = rebuild_index(ledger, embedder, config.namespace, config.home, config.chroma_url)
    typer.echo(f"indexed {rows} skills")


def _library(
    config: MetaClawConfig, ledger: Ledger, index: SkillIndex | None = None
) -> SkillLibrary:
    def embedder() -> Embedder:
        return _embedder(config.retrieval.embedder)

    redactor = Redactor(config.redact)
    return SkillLibrary(ledger, embedder, config.namespace, redactor=redactor, index=index)


@contextmanager
def _indexed_library(config: MetaClawConfig, ledger: Ledger) -> Iterator[SkillLibrary]:
    """A library that also brings the index along, if this process can hold it."""
    index = _index(config, ledger)
    try:
        yield _library(config, ledger, index)
    finally:
        if index is not None:
            index.close()


def _index(config: MetaClawConfig, ledger: Ledger) -> SkillIndex | None:
    """The index, up to date; None when a running agent holds it (it follows the ledger itself)."""
    home, url = config.home, config.chroma_url
    try:
        held = None if url else chroma.open_folder(home)
        if held is None and not url:
            return None
        embedder = _embedder(config.retrieval.embedder)
        index = open_index(ledger, embedder, config.namespace, home, url)
        index.sync(ledger.generation(config.namespace))
    except StoreError as error:
        typer.echo(f"the index cannot be brought along: {error}", err=True)
        return None
    if held is not None:
        held.close()
    return index


@cache
def _embedder(spec: str) -> Embedder:
    return load_embedder(spec)


def _skill_json(skill: Skill, big: TooBig | None) -> dict[str, object]:
    row = {"name": skill.name, "version": skill.version, "description": skill.description}
    return {**row, "warning": str(big)} if big else row


def _skill_table(skills: Iterable[Skill], generation: int, big: Mapping[str, TooBig]) -> Table:
    table = Table("name", "version", "description", title=f"generation {generation}")
    for skill in skills:
        found = big.get(skill.name)
        mark = (
            f"\nTOO BIG to be injected: {found.tokens} tokens, budget {found.budget}"
            if found
            else ""
        )
        table.add_row(skill.name, str(skill.version), f"{skill.description}{mark}")
    return table


def _print_report(report: ImportReport, big: Iterable[TooBig]) -> None:
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


def _report_json(report: ImportReport, big: Iterable[TooBig]) -> dict[str, object]:
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


def _some(ids: tuple[str, ...]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"
