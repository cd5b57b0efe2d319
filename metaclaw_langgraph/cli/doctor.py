"""`metaclaw doctor`: checks every part by using it, and says how to mend what is broken."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from rich.console import Console

from metaclaw_langgraph._json import plain
from metaclaw_langgraph.cli._checks import Finding, checks
from metaclaw_langgraph.cli._common import JsonOption, load_config, new_console, print_json
from metaclaw_langgraph.errors import ConfigError

__all__ = ["app"]

app = typer.Typer()

_MARKS = {
    "ok": ("ok", "green"),
    "optional": ("--", "yellow"),
    "warning": ("WARN", "bold yellow"),
    "broken": ("BROKEN", "bold red"),
}


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check every part and say how to mend it. Exit code 1 when a needed one is broken."""
    console = None if as_json else new_console()
    found = []
    for finding in _findings():
        found.append(finding)
        if console:
            _show(finding, console)
    if as_json:
        print_json(plain(found))
    if any(finding.state == "broken" for finding in found):
        raise typer.Exit(1)


def _findings() -> Iterator[Finding]:
    try:
        config = load_config()
    except ConfigError as error:
        yield from (Finding("config", "broken", line) for line in str(error).splitlines())
        return
    yield Finding("config", "ok", f"namespace {config.namespace}")
    yield from checks(config)


def _show(finding: Finding, console: Console) -> None:
    mark, style = _MARKS[finding.state]
    console.print(f"{mark:<7}{finding.part:<16}{finding.detail}", style=style, soft_wrap=True)
    if finding.fix and finding.state != "ok":
        console.print(f"{'':<23}mend: {finding.fix}", soft_wrap=True)
