"""One exporter a namespace, however many processes share a home, and a log that is fit to keep."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.tracing import exporter, log
from metaclaw_langgraph.tracing.launcher import ExporterLauncher, anything_pending
from metaclaw_langgraph.types import Trajectory
from tests.wrapping.conftest import Wrap
from tests.wrapping.support import (
    ask,
    closed_port,
    eventually,
    exporter_of,
    opened,
    process_env,
    stored,
    talk,
)

NAMESPACE = "shop"


@pytest.fixture
def launcher(home: Path) -> Iterator[ExporterLauncher]:
    made = ExporterLauncher(
        namespace=NAMESPACE,
        home=home,
        ledger_url=f"sqlite:///{home / 'ledger.db'}",
        mlflow_uri=f"http://127.0.0.1:{closed_port()}",
        redact={},
    )
    yield made
    end(made)


def end(launcher: ExporterLauncher) -> None:
    if launcher._process is not None:
        launcher._process.kill()
        launcher._process.wait(10)


def test_another_processs_exporter_is_enough(launcher: ExporterLauncher, home: Path) -> None:
    (home / "logs").mkdir(parents=True)
    said = home / "logs" / f"exporter-{NAMESPACE}.log"
    said.write_text("at work\n")
    with FileLock(home / "logs" / f"exporter-{NAMESPACE}.lock"):
        launcher.ensure_running()
        assert launcher.at_work()
        assert launcher._process is None
    assert said.read_text() == "at work\n"
    assert not launcher.at_work()


def test_the_log_is_added_to(launcher: ExporterLauncher, home: Path) -> None:
    (home / "logs").mkdir(parents=True, mode=0o755)
    said = home / "logs" / f"exporter-{NAMESPACE}.log"
    said.write_text("earlier\n")
    launcher.ensure_running()
    end(launcher)
    assert said.read_text().startswith("earlier\n")
    assert stat.S_IMODE(said.stat().st_mode) == 0o600
    assert stat.S_IMODE(said.parent.stat().st_mode) == 0o700


def test_threads_take_turns(launcher: ExporterLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(2)
    met: list[int] = []

    def locked() -> bool:
        try:
            met.append(meeting.wait(0.5))
        except threading.BrokenBarrierError:
            return True
        return True

    monkeypatch.setattr(launcher, "_locked", locked)
    threads = [threading.Thread(target=launcher.ensure_running) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert met == []


def test_failed_starts_are_spaced_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    made = ExporterLauncher(
        namespace=NAMESPACE, home=home, ledger_url="", mlflow_uri="", redact={}, clock=lambda: now
    )
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    spaces = []
    for _ in range(9):
        with pytest.raises(FileNotFoundError):
            made.ensure_running()
        spaces.append(made._not_before - now)
        now = made._not_before
    assert spaces == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_what_waits_to_be_shown(home: Path) -> None:
    with opened(home) as ledger:
        assert not anything_pending(ledger, NAMESPACE)
        ledger.add_trajectories([trajectory()], trace="pending")
        assert anything_pending(ledger, NAMESPACE)
        ledger.set_trace(NAMESPACE, "1", "trace")
        assert not anything_pending(ledger, NAMESPACE)
        ledger.commit_generation(NAMESPACE, expected=0, reason="nothing new")
        assert anything_pending(ledger, NAMESPACE)
        ledger.set_generation_run(NAMESPACE, 1, "run")
        assert not anything_pending(ledger, NAMESPACE)


def test_a_long_log_becomes_the_old_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_MOST_BYTES", 100)
    path = home / "logs" / "some.log"
    stream = log.RedactedLog(path, lambda text: text)
    for number in range(50):
        stream.write(f"line {number:04}\n")
    old = path.with_name("some.log.1")
    assert sorted(path.parent.iterdir()) == [path, old]
    assert path.stat().st_size <= 110
    assert "line 0049" in old.read_text() + path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_exporters_log_holds_no_secrets(home: Path) -> None:
    order = {
        "namespace": NAMESPACE,
        "home": str(home),
        "ledger_url": "hunter2",
        "mlflow_uri": "",
        "redact": {"patterns": [r"hunter\d"]},
        "parent": 1,
    }
    done = subprocess.run(
        [sys.executable, "-m", "metaclaw_langgraph.tracing.exporter"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=60,
        env=process_env(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    said = (home / "logs" / f"exporter-{NAMESPACE}.log").read_text()
    assert "[redacted:pattern]' is not a URL" in said
    assert "hunter2" not in said


def test_what_comes_when_the_exporter_is_about_to_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its storer saw the lock held and started nothing."""
    url = f"sqlite:///{home / 'ledger.db'}"
    runs: list[int] = []

    def run(one: Any) -> None:
        runs.append(len(one._ledger.untraced(NAMESPACE, limit=10)))
        if len(runs) == 1:
            one._ledger.add_trajectories([trajectory()], trace="pending")
        else:
            one._ledger.set_trace(NAMESPACE, "1", "trace")

    monkeypatch.setattr(exporter._Exporter, "run", run)
    (home / "logs").mkdir(parents=True)
    exporter._work(exporter.Order(NAMESPACE, str(home), url, "", {}, 1), Redactor())
    assert runs == [0, 1]
    with opened(home) as ledger:
        assert ledger.counts(NAMESPACE).trace == {"done": 1}


def trajectory() -> Trajectory:
    now = datetime.now(UTC)
    return Trajectory(
        id="1",
        namespace=NAMESPACE,
        thread_id=None,
        task="hello",
        started_at=now,
        ended_at=now,
        outcome="ok",
        error=None,
        generation=None,
        adapter=None,
        retrieval="empty",
        skills=(),
        input=None,
        output=None,
        messages=(),
        calls=(),
        tools=(),
        spans=(),
    )


def test_an_exporter_that_ended_too_early_is_replaced_without_another_run(
    wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metaclaw_langgraph.learning.recorder._LOOK_AGAIN", 0.2)
    agent = wrap(talk(), tracing=True, mlflow_uri=f"http://127.0.0.1:{closed_port()}")
    agent.invoke(ask("hello"))
    assert len(stored(agent)) == 1
    first = exporter_of(agent.metaclaw)
    assert first is not None
    first.kill()
    eventually(lambda: exporter_of(agent.metaclaw) is not first, 10)
