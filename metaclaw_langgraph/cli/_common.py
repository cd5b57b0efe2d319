"""What the subcommands share: options, the configuration, the ledger, printing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from getpass import getuser
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Json

__all__ = [
    "JsonOption",
    "NamespaceOption",
    "load_config",
    "new_console",
    "one_line",
    "opened_ledger",
    "os_user",
    "print_json",
    "visible",
    "when",
]

NamespaceOption: TypeAlias = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The agent; by default the configured one.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_config(namespace: str | None = None) -> MetaClawConfig:
    """The configuration, with the namespace of the command line if one was given."""
    return MetaClawConfig.load(**({"namespace": namespace} if namespace is not None else {}))


@contextmanager
def opened_ledger(config: MetaClawConfig) -> Iterator[Ledger]:
    """The ledger, closed at the end."""
    ledger = Ledger.open(config.resolved_ledger_url, redactor=Redactor(config.redact))
    try:
        yield ledger
    finally:
        ledger.close()


def new_console() -> Console:
    """A console for what is not JSON; texts from trajectories are never read as markup."""
    return Console(markup=False, highlight=False, emoji=False)


def print_json(value: Json | Mapping[str, object]) -> None:
    """JSON for other programs: not wrapped, not coloured."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def when(moment: datetime) -> str:
    """A time for people, in their time zone."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def one_line(text: str, length: int = 60) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def visible(text: str) -> str:
    """A text that nobody has vouched for, for a terminal: what cannot be seen is written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def os_user() -> str:
    """The name of who types, as far as the system knows one."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):  # a container without a name for its user
        return "unknown"
