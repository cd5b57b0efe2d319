"""Ledgers to test on: SQLite files, and databases of a PostgreSQL server of our own."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Json, ModelCall, SkillHit, Span, ToolCall, Trajectory

START = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
PASSWORD = "open-sesame-42"


def _postgres_bin() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    # Debian keeps the server's programs out of PATH.
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def _server_user() -> list[str]:
    """How to become somebody who may run the server: it refuses to run as root."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user `postgres`")
    return ["runuser", "-u", "postgres", "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own on the loopback."""
    binaries = _postgres_bin()
    if binaries is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    become = _server_user()
    # Not under pytest's own folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(prefix="metaclaw-pg-") as folder:
        data, port = Path(folder, "data"), _free_port()
        passwords = Path(folder, "password")
        passwords.write_text(PASSWORD)
        if become:
            for path in (folder, passwords):
                shutil.chown(path, "postgres")

        def run(program: str, *arguments: str) -> None:
            command = [*become, str(binaries / program), *arguments]
            log = Path(folder, "log")
            with log.open("ab") as out:
                code = subprocess.run(command, stdout=out, stderr=out, cwd=folder).returncode
            assert code == 0, log.read_text()

        run("initdb", "-D", str(data), "-U", "tester", "-A", "scram-sha-256", "--no-sync",
            f"--pwfile={passwords}", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(Path(folder, "server.log")),
            "-o", options, "start")  # fmt: skip
        try:
            yield f"postgresql+psycopg://tester:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")


_numbers = itertools.count()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new, empty schema: as good as a database, and much faster to make."""
    import psycopg

    name = f"ledger_{next(_numbers)}"
    with psycopg.connect(postgres_server.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{postgres_server}?options=-csearch_path%3D{name}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'home' / 'ledger.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Both kinds of ledger must behave alike."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as opened:
        yield opened


@pytest.fixture
def trajectory() -> Callable[..., Trajectory]:
    """Builds trajectories with every field filled; the keywords replace some."""

    def build(id: str, /, *, minute: int = 0, **changes: Any) -> Trajectory:
        began = START + timedelta(minutes=minute)
        return replace(_full(id, began, began + timedelta(seconds=3)), **changes)

    return build


def _full(id: str, began: datetime, ended: datetime) -> Trajectory:
    messages: tuple[dict[str, Json], ...] = (
        {"type": "human", "content": "What is 6 times 7?"},
        {"type": "ai", "content": "", "tool_calls": [{"name": "multiply", "args": {"a": 6}}]},
        {"type": "tool", "content": "42 \x00 \ud800 caf\u00e9"},
    )
    call = ModelCall(
        (0,), 1, "small", began, ended, None, {"input_tokens": 9}, (1, 2), (3,), (-0.5,)
    )
    return Trajectory(
        id=id,
        namespace="agent",
        thread_id="thread-1",
        task="What is 6 times 7?",
        started_at=began,
        ended_at=ended,
        outcome="ok",
        error=None,
        generation=0,
        adapter=None,
        retrieval="hit",
        skills=(SkillHit("arithmetic@1", 0.75, True), SkillHit("cooking@2", 0.31, False)),
        input={"messages": [messages[0]], "depth": [1, 2.5, None, True]},
        output={"messages": list(messages)},
        messages=messages,
        calls=(call,),
        tools=(ToolCall("multiply", "call-1", {"a": 6}, "42", None, began, ended),),
        spans=(Span("span-1", None, "chain", "agent", began, ended, input={"x": 1}),),
        run_id=f"run-{id}",
    )
