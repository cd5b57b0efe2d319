"""The migrations lead to the tables of the code, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.ledger.engine import new_engine, parse_url
from metaclaw_langgraph.ledger.migrate import HEAD, VERSION_TABLE, alembic_config
from metaclaw_langgraph.ledger.schema import metadata


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = new_engine(parse_url(url))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
    )
    return list(compare_metadata(context, metadata))


def test_the_migrations_make_the_tables_of_the_code(url: str) -> None:
    Ledger.open(url).close()
    with _connection(url) as connection:
        assert _differences(connection) == []


def test_down_and_up_again(url: str) -> None:
    Ledger.open(url).close()
    with _connection(url) as connection:
        command.downgrade(alembic_config(connection), "base")
        assert set(inspect(connection).get_table_names()) == {VERSION_TABLE}
    with Ledger.open(url) as ledger:
        ledger.check()


def test_head_is_the_newest_migration(sqlite_url: str) -> None:
    Ledger.open(sqlite_url).close()
    with _connection(sqlite_url) as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
    assert script.get_heads() == [HEAD]


def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(url: str) -> None:
    Ledger.open(url).close()
    with _connection(url) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"schema 9999.*pip install -U metaclaw-langgraph"):
        Ledger.open(url)
    with _connection(url) as connection:
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    assert version == "9999"


def test_a_migration_that_fails_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade_and_fail(*arguments: object) -> None:
        upgrade(*arguments)  # type: ignore[arg-type]
        raise OSError("no space left on device")

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgrade_and_fail)
    with pytest.raises(StoreError, match="free some disk space"):
        Ledger.open(url)
    with _connection(url) as connection:
        assert inspect(connection).get_table_names() == []
    monkeypatch.undo()
    with Ledger.open(url) as ledger:
        ledger.check()


def test_the_database_can_be_shared_with_another_program(postgres_url: str) -> None:
    with _connection(postgres_url) as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
        connection.execute(text("CREATE TABLE skills (id INTEGER)"))
    with Ledger.open(postgres_url) as ledger:
        ledger.check()
    with _connection(postgres_url) as connection:
        assert connection.execute(text("SELECT * FROM alembic_version")).scalar() == "theirs"
