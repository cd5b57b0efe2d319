"""Bring a ledger to the schema of this version, whoever else opens it at the same moment.

The migrations are ordinary Alembic scripts in `migrations/`. Alembic is imported only when there is
something to migrate: opening a ledger that is up to date costs one SELECT.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock
from sqlalchemy import Connection, Engine, inspect, text

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger.engine import WRITE

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["HEAD", "VERSION_TABLE", "alembic_config", "bring_to_head"]

HEAD = "0002"
"""The newest migration of this version."""

VERSION_TABLE = "metaclaw_version"
"""Not Alembic's default, which MLflow uses when it shares the database."""

# Any number that no other program is likely to lock on.
_ADVISORY_LOCK = 0x6D657461636C6177
_LOCK_SECONDS = 60


def bring_to_head(engine: Engine, file: Path | None) -> None:
    """Create or migrate the schema; one process does it while the others wait."""
    if file is None:
        if _version(engine) != HEAD:
            _migrate(engine)
        return
    if file.exists() and _journal_mode(engine) == "wal" and _version(engine) == HEAD:
        return
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(f"{file}.lock", timeout=_LOCK_SECONDS):
        _use_wal(engine)
        if _version(engine) != HEAD:
            _migrate(engine)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for the packaged migrations on `connection`."""
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _journal_mode(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())


def _use_wal(engine: Engine) -> None:
    # Outside a transaction, where alone the mode can change; and under the file lock, because
    # two processes that change it at once fail without waiting.
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        raw.close()


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _version_on(connection)


def _version_on(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def _migrate(engine: Engine) -> None:
    from alembic import command

    with engine.connect().execution_options(**WRITE) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = alembic_config(connection)
        _refuse_newer(config, _version_on(connection))
        command.upgrade(config, "head")


def _refuse_newer(config: Config, version: str | None) -> None:
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise StoreError(
            f"the ledger is at schema {version}, this version of metaclaw-langgraph knows only up "
            f"to {HEAD}: upgrade it with pip install -U metaclaw-langgraph"
        )
