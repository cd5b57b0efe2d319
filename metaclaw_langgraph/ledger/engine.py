"""Connections to the ledger's database, and how its transactions begin.

SQLite: WAL, so that readers never wait; writers begin with BEGIN IMMEDIATE, because a reader that
turns into a writer fails at once when another process wrote in between. PostgreSQL: defaults.
"""

from __future__ import annotations

import sqlite3
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from metaclaw_langgraph.errors import MissingExtraError, StoreError

__all__ = ["WRITE", "new_engine", "parse_url", "sqlite_path"]

WRITE = {"metaclaw_write": True}
"""Execution options of a connection that is going to write."""

_BUSY_SECONDS = 5


def parse_url(url: str) -> URL:
    """The URL, checked; only SQLite files and PostgreSQL are ledgers."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"ledger {url!r} is not a URL: {_ALLOWED}") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed
    if backend == "postgresql" and parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return _with_psycopg(parsed)
    shown = parsed.render_as_string(hide_password=True)
    raise StoreError(f"ledger {shown} cannot be used: {_ALLOWED}")


_ALLOWED = "use sqlite:///path/to/ledger.db or postgresql+psycopg://user:password@host/database"


def _with_psycopg(url: URL) -> URL:
    if find_spec("psycopg") is None:
        raise MissingExtraError(
            "a PostgreSQL ledger needs psycopg: pip install 'metaclaw-langgraph[postgres]'"
        )
    return url.set(drivername="postgresql+psycopg")


def sqlite_path(url: URL) -> Path | None:
    """The database file, or None for PostgreSQL."""
    if url.get_backend_name() != "sqlite" or url.database is None:
        return None
    # A "file:" URI carries SQLite's own options after a question mark.
    return Path(url.database.removeprefix("file:").partition("?")[0])


def new_engine(url: URL) -> Engine:
    """An engine whose connections are set up for the ledger."""
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5})


def _set_up_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    # The driver must not begin transactions by itself: _begin_sqlite does.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("metaclaw_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
