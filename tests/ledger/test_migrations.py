"""The migrations lead to the tables of the code, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, bindparam, inspect, text

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger, SkillCounts
from metaclaw_langgraph.ledger.engine import new_engine, parse_url
from metaclaw_langgraph.ledger.migrate import HEAD, VERSION_TABLE, alembic_config
from metaclaw_langgraph.ledger.schema import UtcDateTime, metadata
from metaclaw_langgraph.types import SkillHit


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


OLD_RUNS = [
    ("ok", "ok", "query", 1.0, '[["add@1",0.5,true],["sub@1",0.25,false]]'),
    ("judged", "failed", "stale", 0.5, '[["add@1",0.5,false],["add@1",0.5,true]]'),
    ("unjudged", "failed", "unjudged", None, "[]"),
]


def _fill_0001(connection: Connection) -> None:
    """A ledger as the first version left it."""
    command.upgrade(alembic_config(connection), "0001")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    insert = text(
        "INSERT INTO metaclaw_trajectory (namespace, id, task, started_at, ended_at, outcome, role,"
        " reward, generation, retrieval, skills, n_calls, n_tools, trace_state, body)"
        " VALUES ('agent', :id, 'task', :at, :at, :outcome, :role, :reward, 1, 'hit', :skills,"
        " 0, 0, 'off', :body)"
    ).bindparams(bindparam("at", type_=UtcDateTime))
    parts = ("input", "output", "messages", "calls", "tools", "spans")
    body = zlib.compress(json.dumps({part: [] for part in parts}).encode())
    for id, outcome, role, reward, skills in OLD_RUNS:
        values = {"id": id, "outcome": outcome, "role": role, "reward": reward, "skills": skills}
        connection.execute(insert, {**values, "at": at, "body": body})
    for statement in (
        "INSERT INTO metaclaw_namespace VALUES ('agent', 1)",
        "INSERT INTO metaclaw_skill VALUES"
        " ('agent', 'add', 1, 'add@1', 'd', 'b', '{}', 'import', 'null', :at)",
        "INSERT INTO metaclaw_membership VALUES ('agent', 'add@1', 1, NULL)",
        "INSERT INTO metaclaw_generation VALUES ('agent', 1, :at, 'import')",
        "INSERT INTO metaclaw_verdict (namespace, trajectory_id, reward, source, reason, at)"
        " VALUES ('agent', 'ok', 1.0, 'human', 'yes', :at)",
        "INSERT INTO metaclaw_verdict (namespace, trajectory_id, reward, source, reason, at)"
        " VALUES ('agent', 'ok', 1.0, 'judge', 'yes too', :at)",
    ):
        given = text(statement)
        if ":at" in statement:
            given = given.bindparams(bindparam("at", at, type_=UtcDateTime))
        connection.execute(given)


def test_a_ledger_of_the_first_version_is_kept(url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with _connection(url) as connection:
        _fill_0001(connection)
    with Ledger.open(url) as ledger:
        found = {one.id: (one.role, one.reward) for one in ledger.trajectories("agent")}
        assert found == {id: (role, reward) for id, _, role, reward, _ in OLD_RUNS}
        assert ledger.trajectory("agent", "ok").skills[0] == SkillHit("add@1", 0.5, True)
        given = ledger.verdicts("agent", "ok")
        assert [(one.source, one.origin) for one in given] == [("human", None), ("judge", None)]
        (generation,) = ledger.unexported_generations("agent", 9)
        assert (generation.generation, generation.added) == (1, ("add@1",))
        assert (generation.reason, generation.details) == ("import", {})
        assert ledger.skill_counts("agent") == {
            "add@1": SkillCounts(found=2, injected=2, helped=2),
            "sub@1": SkillCounts(found=1),
        }
        assert ledger.verdicts("agent", "unjudged") == []
        assert ledger.drain_query("agent", "run").trajectories == ("ok",)
    with _connection(url) as connection:
        assert _differences(connection) == []


def test_more_old_runs_than_one_batch_are_filled_in(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with _connection(sqlite_url) as connection:
        command.upgrade(alembic_config(connection), "0001")
        connection.execute(
            text(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
                " INSERT INTO metaclaw_trajectory (namespace, id, started_at, ended_at, outcome,"
                " role, retrieval, skills, n_calls, n_tools, trace_state, body)"
                " SELECT 'ns' || (i % 3), 'run' || i, '2026-01-01', '2026-01-01', 'ok', 'unjudged',"
                """ 'hit', '[["add@1",0.5,true]]', 0, 0, 'off', x'' FROM n"""
            )
        )
    with Ledger.open(sqlite_url) as ledger:
        found = [ledger.skill_counts(f"ns{n}")["add@1"].injected for n in range(3)]
    assert found == [833, 834, 833]


def test_down_to_the_first_version_and_up_again(url: str) -> None:
    with Ledger.open(url) as ledger:
        ledger.commit_generation("agent", expected=0, reason="kept")
    with _connection(url) as connection:
        command.downgrade(alembic_config(connection), "0001")
        tables = inspect(connection).get_table_names()
        assert "metaclaw_draft" not in tables
        assert "metaclaw_trajectory" in tables
    with Ledger.open(url) as ledger:
        assert [one.reason for one in ledger.unexported_generations("agent", 9)] == ["kept"]


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
