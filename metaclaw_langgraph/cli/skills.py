"""`metaclaw skills`: import, look at, review, export and roll back skills."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metaclaw_langgraph._json import plain
from metaclaw_langgraph.cli import _review
from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    opened_ledger,
    print_json,
)
from metaclaw_langgraph.cli._library import indexed_library, library_of
from metaclaw_langgraph.cli._skill_tables import (
    Listed,
    log_table,
    print_import,
    report_json,
    skill_json,
    skill_table,
)
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.evolving.trials import probation_evidence
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.block import too_big
from metaclaw_langgraph.skills.diff import diff_generations
from metaclaw_langgraph.skills.embedding import load_embedder
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.skills.index import rebuild_index

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Import, show, review, export and roll back skills.")
app.add_typer(_review.app)

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
    with opened_ledger(config) as ledger, indexed_library(config, ledger) as library:
        report = library.import_skills(folder, keep_going=keep_going)
        done = {*report.added, *report.updated, *report.unchanged}
        imported = [skill for skill in library.active() if skill.id in done]
    big = too_big(imported, report.generation, config.retrieval.token_budget)
    if as_json:
        print_json(report_json(report, big))
    else:
        print_import(report, big)
    if report.refused:
        raise typer.Exit(2)


@app.command("list")
def list_skills(namespace: NamespaceOption = None, as_json: JsonOption = False) -> None:
    """List the active skills, how often runs were given them, and how those ended."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        generation = ledger.generation(config.namespace)
        found = _listed(config, ledger, generation)
    if as_json:
        rows = [skill_json(one) for one in found]
        print_json({"namespace": config.namespace, "generation": generation, "skills": rows})
    else:
        new_console().print(skill_table(found, generation))


@app.command("show")
def show_skill(
    name: Annotated[str, typer.Argument(help="The skill's name.")],
    version: Annotated[int | None, typer.Option(help="Which version; else the active one.")] = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print a skill as a SKILL.md file."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        record = library_of(config, ledger).show(name, version)
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
        written = library_of(config, ledger).export(folder, names or (), force=force)
    typer.echo(f"wrote {len(written)} skills to {folder}")


@app.command("log")
def log(
    limit: Annotated[int, typer.Option(min=1, help="The most to list.")] = 20,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the generations, what each changed and what that rests on, the newest first."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        records = ledger.generations(config.namespace, limit)
        probations = {
            one.skill_id: one.state for one in ledger.probations(config.namespace, state=None)
        }
    if as_json:
        print_json(plain(records))
    else:
        new_console().print(log_table(records, probations))


@app.command("diff")
def diff(
    one: Annotated[int, typer.Argument(metavar="GENERATION", help="The older one.")],
    other: Annotated[
        int | None, typer.Argument(metavar="[OTHER]", help="The newer one; else the current.")
    ] = None,
    namespace: NamespaceOption = None,
) -> None:
    """Show what changed between two generations, as a diff of the SKILL.md texts."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        newer = ledger.generation(config.namespace) if other is None else other
        text = diff_generations(ledger, config.namespace, one, newer)
    if text:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"generations {one} and {newer} have the same skills", err=True)


@app.command("retire")
def retire(
    names: Annotated[list[str], typer.Argument(help="Skills by name.")],
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    namespace: NamespaceOption = None,
) -> None:
    """Take skills out of use. Their versions stay on record: rollback brings them back."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, indexed_library(config, ledger) as library:
        generation = library.retire(names, reason)
    typer.echo(f"retired {len(set(names))}; generation {generation}")


@app.command("rollback")
def rollback(
    to: Annotated[int, typer.Argument(metavar="GENERATION", help="Whose skills to bring back.")],
    namespace: NamespaceOption = None,
) -> None:
    """Start a new generation with the skills of an old one."""
    config = load_config(namespace)
    with opened_ledger(config) as ledger, indexed_library(config, ledger) as library:
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


def _listed(config: MetaClawConfig, ledger: Ledger, generation: int) -> list[Listed]:
    namespace, limit = config.namespace, config.evolving.probation_runs
    skills = ledger.active_skills(namespace)
    counts = ledger.skill_counts(namespace, [skill.id for skill in skills])
    big = {one.name: one for one in too_big(skills, generation, config.retrieval.token_budget)}
    trials = {
        probation.skill_id: probation_evidence(ledger, namespace, probation, limit)
        for probation in ledger.probations(namespace)
    }
    return [
        Listed(skill, counts[skill.id], trials.get(skill.id), big.get(skill.name))
        for skill in skills
    ]
