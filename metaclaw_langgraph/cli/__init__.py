"""The `metaclaw` command. Each subcommand is imported only when it is used.

An error that a user can mend (MetaClawError) is one line on stderr and exit code 2, never a
traceback.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from metaclaw_langgraph import __version__
from metaclaw_langgraph.errors import MetaClawError

__all__ = ["app", "main"]


class _LazyGroup(TyperGroup):
    """Finds its subcommands in the modules of this package, in the order of the help."""

    modules: ClassVar[tuple[str, ...]] = (
        "demo",
        "status",
        "doctor",
        "learn",
        "feedback",
        "skills",
        "trajectories",
        "ui",
    )

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.modules:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"metaclaw_langgraph.cli.{cmd_name}")
            command = get_command(module.app)
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands[cmd_name]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MetaClawError as error:
            typer.echo(f"metaclaw: {error}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Makes a LangGraph agent learn from its own use.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Makes a LangGraph agent learn from its own use."""


def main() -> None:
    """The entry point of the `metaclaw` script."""
    app()
