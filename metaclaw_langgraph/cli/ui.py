"""`metaclaw ui`: the MLflow UI on the store that the traces go to.

The server listens on the loopback only, with one worker and without MLflow's job runner: the UI of
one person needs neither, and they cost seconds and gigabytes.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Annotated

import typer

from metaclaw_langgraph._settings import hide_secrets
from metaclaw_langgraph.cli._common import load_config, opened_ledger
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import ConfigError, MetaClawError, StoreError
from metaclaw_langgraph.tracing.launcher import ExporterLauncher, anything_pending

__all__ = ["app"]

app = typer.Typer()

_HOST = "127.0.0.1"


@app.command()
def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port on the loopback.")] = 5000,
) -> None:
    """Start the MLflow UI on the right store. Ctrl-C stops it."""
    config = load_config()
    config.check_tracking_uri()
    uri = config.resolved_mlflow_uri
    if uri.startswith(("http://", "https://")):
        typer.echo(f"MLflow already runs as a server: open {uri}")
        return
    if uri.startswith("databricks"):
        typer.echo("The traces are in Databricks: open its Experiments page")
        return
    _check_port(port)
    _prepare(config, uri)
    _show_what_waits(config)
    typer.echo(f"MLflow UI: http://{_HOST}:{port} on {hide_secrets(uri)} (Ctrl-C stops it)")
    sys.stdout.flush()
    command = server_command(port)
    os.execve(command[0], command, {**os.environ, **server_environment(config)})


def _show_what_waits(config: MetaClawConfig) -> None:
    """Have runs and generations that are not in MLflow yet written there, in the background."""
    try:
        with opened_ledger(config) as ledger:
            if anything_pending(ledger, config.namespace):
                ExporterLauncher.of(config).ensure_running()
    except (MetaClawError, OSError) as error:
        typer.echo(f"metaclaw: not all is shown yet: {error}", err=True)


def server_command(port: int) -> list[str]:
    """The server's command line; the store is in the environment, for it may hold a password."""
    mlflow = [sys.executable, "-m", "mlflow", "server"]
    return [*mlflow, "--host", _HOST, "--port", str(port), "--workers", "1"]


def server_environment(config: MetaClawConfig) -> dict[str, str]:
    """The variables that the server needs beside those of this process."""
    return {
        "MLFLOW_BACKEND_STORE_URI": config.resolved_mlflow_uri,
        "MLFLOW_ARTIFACTS_DESTINATION": str(config.home / "mlartifacts"),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        # As the server does, or a port that was in use a moment ago would be refused here.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}); choose another with --port"
            ) from error


def _prepare(config: MetaClawConfig, uri: str) -> None:
    """Make the home, and let a SQLite store be read while traces are written."""
    try:
        config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"{config.home} cannot be written ({error.strerror}); mend it or set METACLAW_HOME"
        ) from error
    path = Path(uri.removeprefix("sqlite:///"))
    if uri.startswith("sqlite:///") and path.is_file():
        _tune(path)


def _tune(path: Path) -> None:
    # Without ANALYZE, a search over ten thousand traces takes minutes.
    try:
        connection = sqlite3.connect(path, timeout=2, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("ANALYZE")
        finally:
            connection.close()
    except sqlite3.Error as error:
        typer.echo(f"metaclaw: {path} could not be tuned for reading: {error}", err=True)
