"""What every part of the ledger builds on: transactions, errors, namespaces, forks.

In one process writers queue on a lock: SQLite's own waiting polls, and under load is unfair.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from metaclaw_langgraph.ledger.engine import WRITE, new_engine, parse_url, sqlite_path
from metaclaw_langgraph.ledger.faults import store_errors
from metaclaw_langgraph.ledger.migrate import bring_to_head
from metaclaw_langgraph.ledger.schema import namespaces, probe
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Json

__all__ = ["Store", "chunks", "clean", "dump", "now", "require_namespace"]

T = TypeVar("T")

_POINTER = select(namespaces.c.generation).where(namespaces.c.namespace == bindparam("namespace"))


class Store:
    """One database, its transactions and its redactor."""

    def __init__(self, engine: Engine, redactor: Redactor) -> None:
        self.url = engine.url.render_as_string(hide_password=True)
        self._engine = engine
        self._redactor = redactor
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._writing = threading.Lock()
        self._pointer_sql = str(_POINTER.compile(dialect=engine.dialect))
        _stores.add(self)

    @classmethod
    def open(cls, url: str, *, redactor: Redactor | None = None) -> Self:
        """Open the ledger at `url`, created or migrated as needed. StoreError when it cannot be.

        Without a redactor, one with the default settings is used: nothing is stored unredacted.
        """
        parsed = parse_url(url)
        engine = new_engine(parsed)
        try:
            with store_errors(parsed.render_as_string(hide_password=True)):
                bring_to_head(engine, sqlite_path(parsed))
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, redactor or Redactor())

    def close(self) -> None:
        """Close all connections. Nothing is pending: every call is its own transaction."""
        _stores.discard(self)
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Read and write for real; StoreError says what is wrong."""
        row = {"id": 1, "flag": False}
        with self._write() as connection:
            connection.execute(select(namespaces).limit(1)).all()
            connection.execute(self._insert(probe).on_conflict_do_nothing(), row)
            connection.execute(probe.update().values(flag=~probe.c.flag))

    def namespaces(self) -> list[str]:
        """Every namespace that something was stored in, sorted."""
        with self._read() as connection:
            found = connection.execute(select(namespaces.c.namespace).order_by("namespace"))
            return list(found.scalars())

    def generation(self, namespace: str) -> int:
        """The current generation; 0 before the first. Past SQLAlchemy's layers: each run asks."""
        require_namespace(namespace)
        with store_errors(self.url, driver=self._engine.dialect.loaded_dbapi.Error):
            raw = self._engine.raw_connection()
            try:
                cursor = raw.cursor()
                cursor.execute(self._pointer_sql, self._pointer_parameters(namespace))
                row = cursor.fetchone()
                cursor.close()
            finally:
                raw.close()
        return int(row[0]) if row else 0

    def _pointer_parameters(self, namespace: str) -> tuple[str, ...] | dict[str, str]:
        return (namespace,) if self._is_sqlite else {"namespace": namespace}

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with store_errors(self.url), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with store_errors(self.url), self._one_writer(), self._engine.connect() as connection:
            connection.execution_options(**WRITE)
            with connection.begin():
                yield connection

    @contextmanager
    def _one_writer(self) -> Iterator[None]:
        if not self._is_sqlite:
            yield
            return
        with self._writing:
            yield

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that knows ON CONFLICT: both dialects have it, under different classes."""
        return sqlite.insert(table) if self._is_sqlite else postgresql.insert(table)

    def _know(self, connection: Connection, names: Iterable[str]) -> None:
        """Make sure that the namespaces have their row."""
        rows = [{"namespace": name, "generation": 0} for name in sorted(set(names))]
        connection.execute(self._insert(namespaces).on_conflict_do_nothing(), rows)

    def _lock(self, connection: Connection, namespace: str) -> int:
        """The generation of the namespace, kept from moving until this transaction ends."""
        self._know(connection, [namespace])
        row = connection.execute(_POINTER.with_for_update(), {"namespace": namespace})
        return int(row.scalar_one())

    def _safe(self, text: str) -> str:
        """Text as it may be stored: redacted, and such that both databases can hold it."""
        return clean(self._redactor.text(text))

    def _safe_json(self, value: Json) -> str:
        """A JSON value as it may be stored in a text column."""
        return dump(self._redactor.json(value))

    def _after_fork(self) -> None:
        # The child must neither use nor close the parent's sockets and file locks.
        self._engine.dispose(close=False)
        self._writing = threading.Lock()


_stores: WeakSet[Store] = WeakSet()


def _forget_parents_connections() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents_connections)


def require_namespace(namespace: str) -> str:
    """Reads and writes without a namespace are mistakes, never "all of them"."""
    if not isinstance(namespace, str) or not namespace:
        raise ValueError(f"a namespace is needed, got {namespace!r}")
    return namespace


def clean(text: str) -> str:
    """Text that both databases can hold: no NUL, no lone surrogates."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def chunks(items: Iterable[T], size: int = 1000) -> Iterator[list[T]]:
    """Lists short enough for one IN clause: databases limit the number of parameters."""
    every = list(items)
    for start in range(0, len(every), size):
        yield every[start : start + size]


def dump(value: Json) -> str:
    """JSON for a text column. Escapes keep it free of anything that PostgreSQL refuses."""
    return json.dumps(value, separators=(",", ":"))


def now() -> datetime:
    return datetime.now(UTC)
