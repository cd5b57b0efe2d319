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


EVOLVER = """
import sys
from datetime import UTC, datetime
from itertools import count
from metaclaw_langgraph.errors import ConflictError
from metaclaw_langgraph.ledger import Evolution, Ledger, NewSkill
from metaclaw_langgraph.types import Skill, Trajectory, Verdict

url, round_ = sys.argv[1], sys.argv[2]
ledger = Ledger.open(url)
at = datetime(2026, 1, 1, tzinfo=UTC)
print("ready", flush=True)
for n in count():
    current = ledger.generation("agent")
    ids = [f"{round_}-{n}-{i}" for i in range(6)]
    ledger.add_trajectories([
        Trajectory(id, "agent", None, "task", at, at, "failed" if i == 0 else "ok", None,
                   max(0, current - (i == 5)), None, "empty", (), {}, {})
        for i, id in enumerate(ids)
    ])
    print("added", *ids, flush=True)
    for i in (1, 2, 3, 4, 5):
        ledger.add_verdict("agent", ids[i], Verdict(-1.0 if i == 1 else 1.0, "judge"))
    ledger.add_verdict("agent", ids[2], Verdict(-1.0, "human"))  # perhaps drained by now
    failed = [one.trajectory.id for one in ledger.failures("agent", limit=4)]
    if n % 3 == 0:
        # Too much: the other process may be training on some of these.
        failed += ids[3:]
    evolution = Evolution(f"{round_}-{n}", "test", dict.fromkeys(failed, "learnt"))
    try:
        if n % 2:
            ledger.record_evolution("agent", evolution)
        else:
            skill = Skill("a", "d", "b", ledger.latest_version("agent", "a") + 1)
            ledger.stage_skills("agent", [NewSkill(skill)])
            ledger.commit_generation("agent", expected=current, add=[skill.id], reason="learnt",
                                     remove=ledger.members("agent", current), evolution=evolution)
        print("consumed", *failed, flush=True)
    except ConflictError:
        pass
"""

TRAINER = """
import sys
from itertools import count
from metaclaw_langgraph.ledger import Ledger

url, round_ = sys.argv[1], sys.argv[2]
ledger = Ledger.open(url)
print("ready", flush=True)
for n in count():
    run = ledger.drain_query("agent", f"{round_}-{n}", limit=3)
    print("drained", run.id, *run.trajectories, flush=True)
    if n % 2:
        ledger.abort_training("agent", run.id)
    else:
        ledger.finish_training("agent", run.id)
    print("aborted" if n % 2 else "done", run.id, flush=True)
"""


def _work_and_die(url: str, round_: int) -> dict[str, list[list[str]]]:
    """Evolve and train at once, kill both in mid-stream: what they acknowledged, by kind."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, url, str(round_)], stdout=subprocess.PIPE, text=True
        )
        for program in (EVOLVER, TRAINER)
    ]
    answers: dict[str, list[list[str]]] = {}
    outputs = [worker.stdout for worker in workers if worker.stdout is not None]
    lines = [out.readline() for out in outputs]
    lines += [outputs[n % 2].readline() for n in range(60 + 7 * round_)]
    for worker, out in zip(workers, outputs, strict=True):
        os.kill(worker.pid, signal.SIGKILL)
        lines += out.readlines()
        out.close()
        assert worker.wait() == -signal.SIGKILL
    for line in lines:
        if line.endswith("\n"):
            kind, *words = line.split()
            answers.setdefault(kind, []).append(words)
    return answers


def _check_separation(ledger: Ledger) -> None:
    runs, evolutions = ledger.training_runs("agent"), ledger.evolutions("agent", 1_000_000)
    consumed = Counter(id for one in evolutions for id in one.consumed)
    trained = Counter(id for run in runs for id in run.trajectories)
    assert set((consumed + trained).values()) <= {1}
    stored = {one.id: one for one in ledger.trajectories("agent", limit=1_000_000)}
    assert set(consumed) == {id for id, one in stored.items() if one.role == "consumed"}
    assert set(trained) == {id for id, one in stored.items() if one.role == "trained"}
    began = {one.generation: one.at for one in ledger.generations("agent", 1_000_000)}
    for run in runs:
        assert {stored[id].generation for id in run.trajectories} <= {run.generation}
        # It was drained while that generation was the current one.
        assert began.get(run.generation, run.started_at) <= run.started_at
        assert run.started_at <= began.get(run.generation + 1, run.started_at)
    current = ledger.generation("agent")
    for one in stored.values():
        if one.role == "query":
            assert (one.generation, one.reward) == (current, 1.0)


def test_kill_9_of_one_that_evolves_and_one_that_trains(url: str) -> None:
    Ledger.open(url).close()
    added: set[str] = set()
    consumed: set[str] = set()
    ended: dict[str, str] = {}
    drained: set[str] = set()
    for round_ in range(2):
        answers = _work_and_die(url, round_)
        added.update(id for ids in answers["added"] for id in ids)
        consumed.update(id for ids in answers["consumed"] for id in ids)
        drained.update(id for _, *ids in answers["drained"] for id in ids)
        ended.update((id, state) for state in ("done", "aborted") for (id,) in answers[state])
        with Ledger.open(url) as ledger:
            _check_separation(ledger)
            stored = {one.id for one in ledger.trajectories("agent", limit=1_000_000)}
            assert added <= stored
            # The batch in flight may be there too, as a whole.
            assert len(stored - added) in {6 * n for n in range(round_ + 2)}
            assert consumed <= {
                id for one in ledger.evolutions("agent", 1_000_000) for id in one.consumed
            }
            states = {run.id: run.state for run in ledger.training_runs("agent")}
            assert ended.items() <= states.items()
            for run in ledger.training_runs("agent", state="running"):
                ledger.abort_training("agent", run.id)
                ended[run.id] = "aborted"
            _check_separation(ledger)
            assert ledger.training_runs("agent", state="running") == []
            ledger.check()
    # They were at it, both of them.
    assert consumed
    assert drained


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
