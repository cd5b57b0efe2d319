"""The spool keeps what it is given, for its owner alone, and gives it to one taker."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.learning.spool import Spool
from metaclaw_langgraph.ledger import Incident, Ledger
from tests.wrapping.conftest import Wrap
from tests.wrapping.support import ask, counted, eventually, saved, stored, talk

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
INCIDENTS = st.builds(
    Incident,
    part=st.text(),
    kind=st.text(),
    count=st.integers(min_value=1, max_value=2**60),
    message=st.text(),
    at=st.datetimes(timezones=st.just(UTC)),
)


@pytest.fixture
def spool(home: Path) -> Spool:
    return Spool(home / "spool")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@given(st.lists(INCIDENTS, max_size=3))
def test_incidents_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, incidents: list[Incident]
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"))
    spool.put_incidents("shop", incidents)
    (file,) = spool.incident_files()
    assert spool.read_incidents(file) == ("shop", incidents)
    assert spool.files() == []


def test_only_the_owner_may_read(spool: Spool, home: Path) -> None:
    spool.folder.mkdir(parents=True, mode=0o755)
    spool.put([row()])
    spool.put_incidents("shop", [Incident("ledger", "lost", 1, "gone", NOW)])
    assert mode(spool.folder) == 0o700
    assert [mode(path) for path in spool.folder.iterdir()] == [0o600, 0o600]


def row(**changes: Any) -> dict[str, Any]:
    return {"id": "1", "body": b"x", "started_at": NOW, "ended_at": NOW, **changes}


def test_rows_come_back_as_they_were(spool: Spool) -> None:
    spool.put([row(), row(id="2", body=b"\x00\xff")])
    (file,) = spool.files()
    assert spool.read(file) == [row(), row(id="2", body=b"\x00\xff")]


def test_what_a_killed_process_was_writing_is_removed_after_an_hour(
    spool: Spool, home: Path, wrap: Wrap
) -> None:
    spool.folder.mkdir(parents=True)
    old, fresh = spool.folder / ".a.tmp", spool.folder / ".b.tmp"
    for path in (old, fresh):
        path.write_text("half")
    hour_ago = time.time() - 3700
    os.utime(old, (hour_ago, hour_ago))
    wrap(talk())
    eventually(lambda: not old.exists())
    assert fresh.exists()


def test_a_claimed_file_is_gone_for_others(spool: Spool) -> None:
    spool.put_incidents("shop", [Incident("ledger", "lost", 1, "gone", NOW)])
    (file,) = spool.incident_files()
    claimed = spool.claim(file)
    assert spool.incident_files() == []
    with pytest.raises(FileNotFoundError):
        spool.claim(file)
    spool.give_back(claimed, file)
    assert spool.incident_files() == [file]


def test_incidents_of_any_namespace_are_taken_in_once(spool: Spool, home: Path, wrap: Wrap) -> None:
    spool.put_incidents("shop", [Incident("ledger", "lost", 3, "gone", NOW)])
    (spool.folder / "bad.incidents.json").write_text('{"namespace": "shop"}')
    agent = wrap(talk())
    agent.invoke(ask("hello"))
    assert len(stored(agent)) == 1
    found = agent.metaclaw._store.ledger().incidents("shop")
    assert [(one.part, one.kind, one.count) for one in found] == [("ledger", "lost", 3)]
    assert [path.name for path in spool.folder.iterdir()] == ["bad.incidents.bad"]
    assert counted(agent, "spool", "set aside") == 1


def spooled_runs(wrap: Wrap, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
    """An agent whose last two runs are in the spool."""
    agent = wrap(talk(), learning={"flush_interval": 0.5})

    def failing(*_: Any) -> int:
        raise error

    agent.invoke(ask("first"))
    assert len(stored(agent)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "add_rows", failing)
        for name in ("second", "third"):
            agent.invoke(ask(name))
        eventually(lambda: agent.metaclaw.waiting == 0)
        agent.metaclaw._recorder._retry_at = float("inf")
    return agent


def test_a_full_disk_of_the_ledger_means_waiting(
    spool: Spool, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check, which writes next to nothing, passes; the rows are not to blame."""
    error = StoreError("the disk is full")
    error.__cause__ = OperationalError("INSERT", {}, Exception("database or disk is full"))
    agent = spooled_runs(wrap, monkeypatch, error)
    assert spool.files()
    assert counted(agent, "ledger", "unavailable") >= 1
    assert len(stored(agent)) == 3
    assert counted(agent, "spool") == 0


def test_a_refused_row_costs_its_neighbours_nothing(
    spool: Spool, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = StoreError("not now")
    error.__cause__ = OSError()
    spooled_runs(wrap, monkeypatch, error).metaclaw.close(timeout=0.0)
    file, *_ = spool.files()
    lines = file.read_text().splitlines()
    without_outcome = {**json.loads(lines[0]), "id": "other", "outcome": None}
    file.write_text("\n".join([json.dumps(without_outcome), *lines]))
    agent = wrap(talk())
    assert len(stored(agent)) == 3
    assert [path.suffix for path in spool.folder.iterdir()] == [".bad"]
    assert counted(agent, "spool", "set aside") == 1


def test_late_incidents_are_saved_without_another_run(
    wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclaw_langgraph.learning.recorder._LOOK_AGAIN", 0.2)
    agent = wrap(talk())
    agent.invoke(ask("hello"))
    assert len(stored(agent)) == 1
    agent.metaclaw.incident("retrieval", "missed", "late")
    ledger = agent.metaclaw._store.ledger()
    eventually(lambda: saved(ledger, "retrieval", "missed") == 1, 5)
