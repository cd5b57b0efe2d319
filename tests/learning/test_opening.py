"""Whoever waits for the ledger is let go when it is closed."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.opening import LedgerHandle
from metaclaw_langgraph.redaction import Redactor


@pytest.fixture
def handle(home: Path) -> LedgerHandle:
    home.mkdir()
    return LedgerHandle(f"sqlite:///{home / 'ledger.db'}", Redactor())


def test_closing_lets_go_of_who_waits(handle: LedgerHandle, home: Path) -> None:
    problems: list[StoreError] = []

    def wait() -> None:
        try:
            handle.get()
        except StoreError as error:
            problems.append(error)

    with FileLock(home / "ledger.db.lock"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while handle._future is None:
            time.sleep(0.01)
        started = time.monotonic()
        handle.close(0.1)
        waiting.join(5)
        assert time.monotonic() - started < 3
    assert len(problems) == 1
    assert handle.current() is None
    assert handle.get().namespaces() == []
    handle.close(1)


def test_all_threads_have_the_same_ledger(handle: LedgerHandle) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(handle.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8
    assert {id(one) for one in found} == {id(handle.current())}
    handle.close(1)


def test_a_ledger_that_failed_is_opened_again(handle: LedgerHandle, home: Path) -> None:
    (home / "ledger.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    with pytest.raises(StoreError):
        handle.get()
    assert handle.current() is None
    (home / "ledger.db").unlink()
    assert handle.get() is handle.current()
    handle.close(1)


def test_without_threads_it_is_opened_by_the_caller(
    handle: LedgerHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert handle.get().namespaces() == []
    handle.close(1)


def test_secrets_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 6
    with caplog.at_level(logging.WARNING, "metaclaw"):
        Incidents().add("retrieval", "failed", ValueError(f"bad key {key}"))
    assert "retrieval failed: ValueError: bad key [redacted:" in caplog.text
    assert key not in caplog.text
