"""A writer that is killed loses nothing that it acknowledged and leaves nothing half done."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from metaclaw_langgraph.ledger import Ledger

BATCH = 7

WRITER = """
import sys
from datetime import UTC, datetime
from itertools import count
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.types import Skill, Trajectory

url, round_, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
ledger = Ledger.open(url)
at = datetime(2026, 1, 1, tzinfo=UTC)
for n in count():
    ledger.add_trajectories([
        Trajectory(f"{round_}-{n}-{i}", "agent", None, "task", at, at, "ok", None, 0, None,
                   "empty", (), {"text": "x" * 2000}, {})
        for i in range(size)
    ])
    print("batch", n, flush=True)
    version = ledger.latest_version("agent", "a") + 1
    now = ledger.generation("agent")
    ledger.stage_skills("agent", [NewSkill(Skill("a", "d", "b", version), b"v" * 999, "e")])
    ledger.commit_generation("agent", expected=now, add=[f"a@{version}"],
                             remove=ledger.members("agent", now), reason=round_)
    print("generation", now + 1, flush=True)
"""


def _write_and_die(url: str, round_: int) -> tuple[list[int], int]:
    """Run a writer, kill it after some answers: the batches and the generation it acknowledged."""
    command = [sys.executable, "-c", WRITER, url, str(round_), str(BATCH)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    lines = []
    # Different moments in the cycle; and the writer is always ahead of the reader.
    for _ in range(20 + 3 * round_):
        lines.append(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    lines += writer.stdout.readlines()
    writer.stdout.close()
    assert writer.wait() == -signal.SIGKILL
    answers = [line.split() for line in lines if line.endswith("\n")]
    batches = [int(value) for kind, value in answers if kind == "batch"]
    return batches, max(int(value) for kind, value in answers if kind == "generation")


def test_kill_9_in_mid_stream(url: str) -> None:
    Ledger.open(url).close()
    acknowledged: dict[str, int] = {}
    for round_ in range(3):
        batches, generation = _write_and_die(url, round_)
        acknowledged.update({f"{round_}-{n}": BATCH for n in batches})
        with Ledger.open(url) as ledger:
            stored = ledger.trajectories("agent", limit=1_000_000)
            found = Counter(one.id.rpartition("-")[0] for one in stored)
            # The batch in flight may or may not be there, but never in part.
            assert set(found.values()) == {BATCH}
            assert acknowledged.items() <= found.items()
            assert len(found) <= len(acknowledged) + round_ + 1
            current = ledger.generation("agent")
            assert generation <= current <= generation + 1
            assert ledger.generations("agent", 1)[0].generation == current
            assert len(ledger.members("agent", current)) == 1
            ledger.check()


def test_a_killed_writer_leaves_a_sound_file(sqlite_url: str) -> None:
    _write_and_die(sqlite_url, 1)
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(file)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_uses_connections_of_its_own(url: str) -> None:
    # In a fresh process: pytest's own may have threads, with which a fork is unsafe.
    program = """
import os, sys
from metaclaw_langgraph.ledger import Incident, Ledger
from datetime import UTC, datetime
ledger = Ledger.open(sys.argv[1])
one = [Incident("p", "k", 1, "m", datetime(2026, 1, 1, tzinfo=UTC))]
ledger.add_incidents("agent", one)
child = os.fork()
for _ in range(50):
    ledger.add_incidents("agent", one)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ledger.incidents("agent")[0].count == 101, ledger.incidents("agent")
"""
    done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
