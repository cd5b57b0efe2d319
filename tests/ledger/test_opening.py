"""Opening a ledger: at once from many sides, in a bad place, from another version."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, Pool

from metaclaw_langgraph.errors import MissingExtraError, StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Trajectory

Build = Callable[..., Trajectory]

OPENER = """
import sys
from datetime import UTC, datetime
from metaclaw_langgraph.ledger import Incident, Ledger
print("ready", flush=True)
sys.stdin.readline()
with Ledger.open(sys.argv[1]) as ledger:
    for _ in range(20):
        ledger.add_incidents("agent", [Incident("p", "k", 1, "m", datetime.now(UTC))])
"""


def test_several_processes_open_a_new_ledger_at_once(url: str) -> None:
    command = [sys.executable, "-c", OPENER, url]
    pipe = subprocess.PIPE
    openers = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(3)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    for opener in openers:
        _, problems = opener.communicate(timeout=60)
        assert opener.returncode == 0, problems
    with Ledger.open(url) as ledger:
        assert ledger.incidents("agent")[0].count == 60


def test_many_threads_share_a_ledger(ledger: Ledger, trajectory: Build) -> None:
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for n in range(10):
                ledger.add_trajectories([trajectory(f"{worker}-{n}"), trajectory(f"shared-{n}")])
                ledger.generation("agent")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ledger.counts("agent").total == 90


def test_a_closed_ledger_leaves_no_connection_behind(sqlite_url: str) -> None:
    ledger = Ledger.open(sqlite_url)
    ledger.check()
    ledger.close()
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    # The last connection to close takes the write-ahead log along.
    assert not Path(f"{file}-wal").exists()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nonsense", "is not a URL: use sqlite"),
        ("mysql://me:word@host/db", r"mysql://me:\*\*\*@host/db cannot be used: use sqlite"),
        ("sqlite://", "cannot be used"),
        ("sqlite:///:memory:", "cannot be used"),
        ("postgresql+asyncpg://host/db", "cannot be used"),
    ],
)
def test_a_url_of_another_kind_is_refused(bad: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        Ledger.open(bad)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaclaw_langgraph.ledger.engine.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"metaclaw-langgraph\[postgres\]"):
        Ledger.open("postgresql://host/db")


def _below_a_file(folder: Path) -> str:
    (folder / "file").write_text("")
    return f"sqlite:///{folder / 'file' / 'ledger.db'}"


def _a_folder(folder: Path) -> str:
    (folder / "ledger.db").mkdir()
    return f"sqlite:///{folder / 'ledger.db'}"


def _not_a_database(folder: Path) -> str:
    (folder / "ledger.db").write_bytes(b"once upon a time " * 99)
    return f"sqlite:///{folder / 'ledger.db'}"


def _nobody_listens(folder: Path) -> str:
    return "postgresql+psycopg://me:hidden-word@127.0.0.1:1/db"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (_below_a_file, "METACLAW_HOME must be a folder"),
        (_a_folder, "unable to open database file: check that its folder"),
        (_not_a_database, "file is not a database: this is not a ledger"),
        (_nobody_listens, "127.0.0.1.*(start the server|check that the server)"),
    ],
)
def test_a_bad_place_is_one_clear_line(
    tmp_path: Path, place: Callable[[Path], str], words: str
) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        Ledger.open(place(tmp_path))
    assert "\n" not in str(caught.value)
    assert "hidden-word" not in str(caught.value)


def test_a_wrong_password_is_not_repeated(postgres_url: str) -> None:
    wrong = postgres_url.replace("open-sesame-42", "sesame-seeds")
    with pytest.raises(StoreError, match="check the user and password") as caught:
        Ledger.open(wrong)
    assert "sesame-seeds" not in str(caught.value)
    absent = postgres_url.replace("/postgres?", "/absent?")
    with pytest.raises(StoreError, match="create the database"):
        Ledger.open(absent)


def test_a_read_only_ledger_is_read_but_not_written(
    sqlite_url: str, trajectory: Build, tmp_path: Path
) -> None:
    with Ledger.open(sqlite_url) as ledger:
        ledger.add_trajectories([trajectory("t")])
    file = sqlite_url.removeprefix("sqlite:///")
    with Ledger.open(f"sqlite:///file:{file}?mode=ro&uri=true") as ledger:
        assert ledger.trajectory("agent", "t").id == "t"
        assert ledger.generation("agent") == 0
        with pytest.raises(StoreError, match=r"readonly database: make the file.*writable"):
            ledger.add_trajectories([trajectory("u")])
        with pytest.raises(StoreError, match="readonly"):
            ledger.check()


@pytest.fixture
def no_more_pages(sqlite_url: str) -> Iterator[str]:
    """From now on the database cannot grow: what SQLite says is what a full disk makes it say."""
    Ledger.open(sqlite_url).close()

    def limit(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA max_page_count=1")
        cursor.close()

    event.listen(Pool, "connect", limit)
    yield sqlite_url
    event.remove(Pool, "connect", limit)


def test_a_full_disk_loses_nothing_that_was_there(no_more_pages: str, trajectory: Build) -> None:
    many = [trajectory(f"t{n}", input={"noise": os.urandom(3000).hex()}) for n in range(50)]
    with Ledger.open(no_more_pages) as ledger:
        with pytest.raises(StoreError, match=r"full: free some disk space"):
            ledger.add_trajectories(many)
        assert ledger.counts("agent").total == 0
        assert ledger.namespaces() == []


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)


def _check_often(ledger: Ledger) -> None:
    # A write goes to what the write-ahead log already has before it needs more of the disk.
    for _ in range(2000):
        ledger.check()


def test_check_finds_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs more rights")
    try:
        with Ledger.open(f"sqlite:///{disk / 'ledger.db'}") as ledger:
            ledger.check()
            _fill(disk / "filler")
            with pytest.raises(StoreError, match=r"free some disk space|check the disk"):
                _check_often(ledger)
            (disk / "filler").unlink()
            ledger.check()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_lost_server_is_a_store_error_and_comes_back(postgres_url: str) -> None:
    with Ledger.open(postgres_url) as ledger:
        ledger.check()
        engine = create_engine(postgres_url)
        with engine.connect() as other:
            other.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            )
        engine.dispose()
        assert ledger.generation("agent") == 0
        ledger.check()


def test_a_writer_that_waits_too_long_says_so(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclaw_langgraph.ledger.engine._BUSY_SECONDS", 0.05)
    with Ledger.open(sqlite_url) as ledger:
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked: another process has been writing"):
            ledger.check()
        assert ledger.generation("agent") == 0
        other.execute("ROLLBACK")
        other.close()
        ledger.check()
