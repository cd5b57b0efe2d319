"""The user's run comes first: every part is broken in turn, and the graph answers as if bare.

Each test breaks one part and asks for three things: the answer is the unwrapped one, it came
within the retrieval deadline (and a generous margin), and the failure was counted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from metaclaw_langgraph import MetaClawConfig
from metaclaw_langgraph.learning import recorder
from metaclaw_langgraph.ledger import Ledger, engine
from metaclaw_langgraph.wrapping import boundary, handler
from tests.wrapping import embedders
from tests.wrapping.conftest import Wrap
from tests.wrapping.skilled_home import add_skill
from tests.wrapping.support import (
    ask,
    atalk,
    closed_port,
    conversation,
    counted,
    eventually,
    exporter_of,
    only,
    opened,
    process_env,
    run_python,
    saved,
    shown,
    silent_server,
    status_json,
    stored,
    talk,
    texts,
)

DEADLINE = 0.3
SOON = 3.0
"""A coarse upper bound of one answer: the deadline, and a busy machine."""
BARE = ["hello", "echo hello"]


def retrieval(**changes: Any) -> dict[str, Any]:
    return {"deadline": DEADLINE, "warmup": 0.1, "embedder": embedders.TOPICS, **changes}


def answers_in_time(agent: Any, times: int = 1) -> None:
    """Ask, and see that the answer is the bare graph's and did not take long."""
    for _ in range(times):
        started = time.monotonic()
        assert texts(agent.invoke(ask("hello"))) == BARE
        assert time.monotonic() - started < SOON


async def aanswers_in_time(agent: Any) -> None:
    started = time.monotonic()
    assert texts(await agent.ainvoke(ask("hello"))) == BARE
    assert time.monotonic() - started < SOON


@pytest.fixture
def skilled(home: Path) -> Path:
    """A home with a skill, so that there is something to look up."""
    add_skill(MetaClawConfig.load(home=home))
    return home


# ---------------------------------------------------------------- retrieval


async def test_chroma_that_never_answers(skilled: Path, wrap: Wrap) -> None:
    with silent_server() as url:
        settings = {"chroma_url": url, "retrieval": retrieval()}
        agent = wrap(talk(), **settings)
        answers_in_time(agent)
        await aanswers_in_time(wrap(atalk(), **settings))
        assert counted(agent, "retrieval", "missed") + counted(agent, "retrieval", "failed") == 2
        assert [one.retrieval for one in stored(agent)] != ["hit", "hit"]
        started = time.monotonic()
        agent.metaclaw.close(timeout=0.5)
        assert time.monotonic() - started < SOON


def test_chroma_that_refuses_connections(skilled: Path, wrap: Wrap) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    agent = wrap(talk(), chroma_url=url, retrieval=retrieval())
    answers_in_time(agent, 2)
    found = stored(agent)
    assert [one.generation for one in found] == [None, None]
    assert counted(agent, "retrieval") >= 2
    assert saved(agent.metaclaw._store.ledger(), "retrieval") >= 2


async def test_embedder_that_raises(skilled: Path, wrap: Wrap) -> None:
    settings = retrieval(embedder=embedders.RAISING, deadline=5)
    agent = wrap(talk(), retrieval=settings)
    answers_in_time(agent)
    await aanswers_in_time(wrap(atalk(), retrieval=settings))
    assert [one.retrieval for one in stored(agent)] == ["failed", "failed"]
    messages = [one.message for one in agent.metaclaw.incidents.total()]
    assert any("no vector for you" in message for message in messages)


@pytest.fixture
def _release() -> Iterator[None]:
    embedders.released.clear()
    yield
    embedders.released.set()


@pytest.mark.usefixtures("_release")
def test_embedder_that_hangs(skilled: Path, wrap: Wrap) -> None:
    agent = wrap(talk(), retrieval=retrieval(embedder=embedders.HANGING, warmup=0, deadline=0.1))
    answers_in_time(agent, 5)
    started = time.monotonic()
    answers_in_time(agent, 10)
    # All threads hang by now: runs are not made to wait any more.
    assert time.monotonic() - started < SOON
    found = [one.retrieval for one in stored(agent)]
    assert found[0] == "missed"
    assert found[-1] == "failed"
    assert counted(agent, "retrieval") == 15


def test_a_process_with_hanging_parts_can_still_end(skilled: Path) -> None:
    """And what it did is in the ledger then, without a word from the program."""
    code = """
import sys
from tests.wrapping.support import ask, talk
from metaclaw_langgraph import with_metaclaw
retrieval = {"deadline": 0.1, "warmup": 0, "embedder": "tests.wrapping.embedders:Hanging"}
agent = with_metaclaw(talk(), home=sys.argv[1], tracing=False, retrieval=retrieval)
for _ in range(6):
    print(agent.invoke(ask("hello"))["messages"][-1].content)
"""
    done = run_python(code, str(skilled))
    assert (done.stdout, done.returncode) == ("echo hello\n" * 6, 0), done.stderr
    with opened(skilled) as ledger:
        assert ledger.counts("default").outcome == {"ok": 6}
        assert saved(ledger, "retrieval") >= 6


def test_a_process_may_end_while_the_embedding_model_is_loading(skilled: Path) -> None:
    """A thread that the interpreter's end finds in native code would abort the process."""
    code = """
import sys
from tests.wrapping.support import ask, talk
from metaclaw_langgraph import with_metaclaw
agent = with_metaclaw(talk(), home=sys.argv[1], tracing=False, retrieval={"warmup": 0})
print(agent.invoke(ask("hello"))["messages"][-1].content)
"""
    done = run_python(code, str(skilled))
    assert (done.stdout, done.returncode) == ("echo hello\n", 0), done.stderr


def test_embedder_that_does_not_exist(skilled: Path, wrap: Wrap) -> None:
    agent = wrap(talk(), retrieval=retrieval(embedder="no_such_module:thing"))
    answers_in_time(agent)
    assert only(agent).retrieval == "failed"
    assert counted(agent, "retrieval", "failed") >= 1


# ---------------------------------------------------------------- the ledger


def test_home_below_a_file(tmp_path: Path, wrap: Wrap) -> None:
    (tmp_path / "file").write_text("not a folder")
    agent = wrap(talk(), home=tmp_path / "file" / "home")
    answers_in_time(agent, 2)
    eventually(lambda: counted(agent, "ledger", "lost") == 2)
    assert counted(agent, "ledger", "unavailable") >= 1
    status = agent.metaclaw.status()
    assert not status.working
    assert any("file" in problem.message for problem in status.problems)


def test_ledger_file_that_is_no_database(home: Path, wrap: Wrap) -> None:
    home.mkdir()
    (home / "ledger.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    agent = wrap(talk())
    answers_in_time(agent, 2)
    eventually(lambda: counted(agent, "ledger", "unavailable"))
    eventually(lambda: agent.metaclaw.waiting == 0)
    assert spooled(home)
    assert counted(agent, "ledger", "lost") == 0
    (home / "ledger.db").unlink()
    assert len(stored(agent)) == 2
    assert not spooled(home)


def test_full_disk(tmp_path: Path) -> None:
    """On a disk of its own, of one megabyte, in a mount namespace that ends with the process."""
    code = """
import json, os, pathlib, sys
from tests.wrapping.support import ask, counted, talk, texts
from metaclaw_langgraph import with_metaclaw
disk = pathlib.Path(sys.argv[1])
agent = with_metaclaw(talk(), home=disk, tracing=False)
agent.invoke(ask("hello"))
assert agent.metaclaw.flush(20)
filler = (disk / "filler").open("wb", buffering=0)
try:
    while True:
        filler.write(os.urandom(4096))
except OSError as error:
    assert "No space left" in str(error), error
answers = [texts(agent.invoke(ask("hello")))]
assert agent.metaclaw.flush(20)
lost = counted(agent, "ledger", "lost"), counted(agent, "ledger", "unavailable")
problems = [problem.message for problem in agent.metaclaw.status().problems]
filler.close(); (disk / "filler").unlink()
answers.append(texts(agent.invoke(ask("hello"))))
flushed = agent.metaclaw.flush(20)
ledger = agent.metaclaw._store.ledger()
incidents = {f"{i.part} {i.kind}": i.count for i in ledger.incidents("default")}
print(json.dumps([answers, lost, problems, flushed, ledger.counts("default").total, incidents]))
"""
    script = tmp_path / "full.py"
    script.write_text(code)
    disk = tmp_path / "disk"
    disk.mkdir()
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "-r"]
    mount = f"mount -t tmpfs -o size=1m tmpfs {disk}"
    if shutil.which("unshare") is None or subprocess.run([*unshare, "sh", "-c", mount]).returncode:
        pytest.skip("no disk of its own can be mounted here")
    done = subprocess.run(
        [*unshare, "sh", "-c", f"{mount} && exec {sys.executable} {script} {disk}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=process_env(),
    )
    assert done.returncode == 0, done.stderr
    answers, (lost, unavailable), problems, flushed, total, incidents = json.loads(done.stdout)
    assert answers == [BARE, BARE]
    assert (lost, unavailable >= 1) == (1, True)
    assert any("free some disk space" in problem for problem in problems)
    assert flushed
    assert total == 2
    assert incidents["ledger lost"] == 1


def test_read_only_ledger(home: Path, wrap: Wrap) -> None:
    """Root may write to read-only files, so SQLite is told not to."""
    with opened(home):
        pass
    url = f"sqlite:///file:{home / 'ledger.db'}?mode=ro&uri=true"
    agent = wrap(talk(), ledger_url=url)
    answers_in_time(agent, 2)
    eventually(lambda: counted(agent, "ledger", "unavailable"))
    eventually(lambda: agent.metaclaw.waiting == 0)
    assert not agent.metaclaw.status().working
    agent.metaclaw.close()
    assert spooled(home)
    again = wrap(talk())
    assert len(stored(again)) == 2
    assert not spooled(home)


def test_ledger_locked_by_another_process(
    home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_BUSY_SECONDS", 0.5)
    with opened(home):
        pass
    code = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "ledger.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout is not None
        other.stdout.readline()
        agent = wrap(talk())
        answers_in_time(agent, 3)
        eventually(lambda: spooled(home))
        answers_in_time(agent, 3)
        eventually(lambda: agent.metaclaw.waiting == 0)
        assert not agent.metaclaw.flush(0.1)
        other.kill()
    found = stored(agent)
    assert len(found) == len({one.run_id for one in found}) == 6
    assert counted(agent, "ledger", "unavailable") >= 1
    assert counted(agent, "ledger", "lost") == 0
    assert not spooled(home)
    assert shown(status_json(home), "ledger", "unavailable") >= 1


def spooled(home: Path) -> list[Path]:
    return sorted((home / "spool").glob("*"))


class Gate:
    """Holds up the ledger's writes until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        original = Ledger.add_rows

        def add_rows(ledger: Ledger, rows: Any) -> int:
            self.reached.set()
            assert self.open.wait(30)
            return original(ledger, rows)

        monkeypatch.setattr(Ledger, "add_rows", add_rows)


def test_queue_overflow(home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    agent = wrap(talk(), learning={"queue_size": 1})
    answers_in_time(agent)
    assert gate.reached.wait(10)
    answers_in_time(agent, 9)
    assert counted(agent, "queue", "overflow") == 8
    eventually(lambda: agent.metaclaw.waiting == 2)  # the others are on disk
    assert spooled(home)
    gate.open.set()
    found = stored(agent)
    assert len(found) == len({one.run_id for one in found}) == 10
    assert not spooled(home)
    assert saved(agent.metaclaw._store.ledger(), "queue", "overflow") == 8


def test_overflow_after_the_last_write_is_not_left_in_the_spool(
    home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = wrap(talk(), learning={"queue_size": 1})
    answers_in_time(agent)
    assert len(stored(agent)) == 1
    monkeypatch.setattr(agent.metaclaw._recorder, "_limit", 0)
    answers_in_time(agent)
    assert len(stored(agent)) == 2
    assert not spooled(home)


def test_closing_with_a_ledger_that_hangs(
    home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        gate = Gate(patch)
        agent = wrap(talk())
        answers_in_time(agent)
        assert gate.reached.wait(10)
        answers_in_time(agent, 2)
        agent.metaclaw.close(timeout=0.2)
    again = wrap(talk())
    eventually(lambda: len(stored(again)) == 3)
    assert not spooled(home)
    gate.open.set()  # now the batch that hung is stored as well: the same runs, not more
    before = counted(agent, "retrieval")
    answers_in_time(agent)  # closed: it answers, unobserved
    assert len(stored(again)) == 3
    assert counted(agent, "retrieval") == before


def test_a_bug_in_the_store_costs_no_record(
    home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger works and refuses every row: they are set aside, and new ones not kept back."""
    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "add_rows", lambda *_: 1 / 0)
        agent = wrap(talk())
        answers_in_time(agent)
        eventually(lambda: [path.suffix for path in spooled(home)] == [".bad"])
    answers_in_time(agent)
    assert len(stored(agent)) == 1
    assert counted(agent, "spool", "set aside") == 1
    assert counted(agent, "ledger", "unavailable") == 0
    for path in spooled(home):
        path.rename(path.with_suffix(".jsonl"))
    agent.metaclaw._recorder.take_in_spool()
    assert len(stored(agent)) == 2


DAMAGED = {
    "cut off": '{"id": "cut off',
    "a list": "[]",
    "a number": "7",
    "not text": b"\xff\xfe\x00",
    "no body": '{"id": "1"}',
    "a body that is a number": '{"body": 1}',
    "no namespace": json.dumps(
        {"body": "", "started_at": "2026-01-01T00:00+00:00", "ended_at": "2026-01-01T00:00+00:00"}
    ),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=list(DAMAGED))
def test_a_spool_file_that_is_damaged_is_set_aside(
    content: str | bytes, home: Path, wrap: Wrap
) -> None:
    (home / "spool").mkdir(parents=True)
    file = home / "spool" / "1.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    agent = wrap(talk())
    answers_in_time(agent)
    assert only(agent).outcome == "ok"
    assert [path.name for path in spooled(home)] == ["1.bad"]
    assert agent.metaclaw.status().spool_unreadable == 1
    assert counted(agent, "spool", "set aside") == 1
    assert counted(agent, "ledger", "unavailable") == 0


def test_a_slow_disk_does_not_delay_a_run(wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue, and a spool that takes a batch only when it is let."""
    gate = Gate(monkeypatch)
    agent = wrap(talk(), learning={"queue_size": 1})
    spool, slow = agent.metaclaw._recorder.spool, threading.Event()
    put = spool.put
    monkeypatch.setattr(spool, "put", lambda rows: slow.wait(30) and put(rows))
    answers_in_time(agent)
    assert gate.reached.wait(10)
    answers_in_time(agent, 5)
    assert agent.metaclaw.waiting == 6
    slow.set()
    gate.open.set()
    assert len(stored(agent)) == 6


def test_a_full_overflow_loses_runs_and_counts_them(
    wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_OVERFLOW_LEAST", 2)
    gate = Gate(monkeypatch)
    agent = wrap(talk(), learning={"queue_size": 1})
    spool, slow, reached = agent.metaclaw._recorder.spool, threading.Event(), threading.Event()
    put = spool.put

    def slowly(rows: Any) -> None:
        reached.set()
        assert slow.wait(30)
        put(rows)

    monkeypatch.setattr(spool, "put", slowly)
    answers_in_time(agent)
    assert gate.reached.wait(10)
    answers_in_time(agent, 2)  # one in the queue, one being written
    assert reached.wait(10)
    answers_in_time(agent, 5)  # two in the overflow
    assert counted(agent, "queue", "lost") == 3
    slow.set()
    gate.open.set()
    assert len(stored(agent)) == 5


def test_no_more_threads(wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs wait until a thread can be started."""
    agent = wrap(talk())
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "metaclaw-recorder":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        answers_in_time(agent, 2)
        assert counted(agent, "queue", "no thread") == 2
        assert agent.metaclaw.waiting == 2
    assert len(stored(agent)) == 2


def test_closing_without_a_thread_spools(
    home: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = wrap(talk())
    with monkeypatch.context() as patch:
        patch.setattr(type(agent.metaclaw._recorder), "_start", broken)
        answers_in_time(agent)
        agent.metaclaw.close(timeout=0.2)
    assert len(stored(wrap(talk()))) == 1


def test_incidents_outlive_a_process_whose_ledger_is_dead(home: Path, wrap: Wrap) -> None:
    home.mkdir()
    (home / "ledger.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    agent = wrap(talk())
    answers_in_time(agent)
    key = "sk-proj-" + "a1B2c3D4" * 6
    agent.metaclaw.incident("ledger", "lost", f"the disk said {key}")
    eventually(lambda: agent.metaclaw.waiting == 0)
    agent.metaclaw.close(timeout=0.5)
    assert key not in "".join(path.read_text() for path in spooled(home))
    (home / "ledger.db").unlink()
    again = wrap(talk())
    assert len(stored(again)) == 1
    ledger = again.metaclaw._store.ledger()
    assert saved(ledger, "ledger", "lost") == 1
    assert saved(ledger, "ledger", "unavailable") >= 1
    assert not spooled(home)


def test_closing_while_the_ledger_is_being_opened_does_not_wait_for_it(
    home: Path, wrap: Wrap
) -> None:
    """Another process holds the lock of migrations."""
    home.mkdir()
    with FileLock(home / "ledger.db.lock"):
        agent = wrap(talk(), retrieval=retrieval())
        answers_in_time(agent)
        started = time.monotonic()
        agent.metaclaw.close(timeout=0.5)
        assert time.monotonic() - started < 5
    assert len(stored(wrap(talk()))) == 1


def test_a_burst_loses_nothing(home: Path, wrap: Wrap) -> None:
    agent = wrap(conversation(lambda state: {}), learning={"queue_size": 50})
    for number in range(2000):
        agent.invoke(ask(str(number)))
    assert agent.metaclaw.flush(60)
    summaries = agent.metaclaw._store.ledger().trajectories("default", limit=10_000)
    assert sorted(int(one.task or "") for one in summaries) == list(range(2000))
    assert counted(agent, "ledger", "lost") == 0
    assert not spooled(home)


# ---------------------------------------------------------------- capture and the boundary


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("name", ["_open", "_close"])
async def test_a_bug_in_the_handler(
    name: str, skilled: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler.RunHandler, name, broken)
    agent = wrap(talk(), retrieval=retrieval(deadline=5, warmup=20))
    answers_in_time(agent)
    await aanswers_in_time(wrap(atalk(), retrieval=retrieval(deadline=5, warmup=20)))
    assert list(agent.stream(ask("hello"), stream_mode="values"))[-1]
    assert counted(agent, "capture") >= 3
    agent.metaclaw.close()
    with opened(skilled) as ledger:
        assert any(one.part == "capture" for one in ledger.incidents("default"))


def test_a_bug_when_a_run_begins(wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = wrap(talk())
    monkeypatch.setattr(type(agent.metaclaw), "new_run", broken)
    answers_in_time(agent)
    assert counted(agent, "capture") == 1


async def test_a_bug_in_the_boundary(
    skilled: Path, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "append_block", broken)
    agent = wrap(talk(), retrieval=retrieval(deadline=5, warmup=20))
    answers_in_time(agent)
    await aanswers_in_time(wrap(atalk(), retrieval=retrieval(deadline=5, warmup=20)))
    assert counted(agent, "boundary", "inject") == 2
    assert len(stored(agent)) == 2


def test_a_bug_in_encoding_costs_that_record_only(
    wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = wrap(talk())
    with monkeypatch.context() as patch:
        patch.setattr(agent.metaclaw._store, "encode", broken)
        answers_in_time(agent)
        assert agent.metaclaw.flush(10)
    answers_in_time(agent)
    assert len(stored(agent)) == 1
    assert counted(agent, "capture", "lost") == 1


def test_a_value_that_cannot_be_printed_costs_no_record(wrap: Wrap) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("leave me alone")

    agent = wrap(talk())
    assert agent.invoke({**ask("hello"), "extra": Shy()})
    assert only(agent).task == "hello"


def test_a_task_function_that_raises(wrap: Wrap) -> None:
    agent = wrap(talk(), task=broken)
    answers_in_time(agent)
    assert only(agent).task == "hello"  # from the first model call instead
    assert counted(agent, "task", "failed") == 1


def test_a_bug_in_learning(wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "unjudged", broken)
    agent = wrap(conversation(broken), judge=lambda trajectory: True)
    with pytest.raises(RuntimeError, match="a bug"):
        agent.invoke(ask("hello"))
    assert not agent.metaclaw.learn(20)
    assert (only(agent).outcome, only(agent).role) == ("failed", "support")
    assert counted(agent, "learning", "failed") >= 1


# ---------------------------------------------------------------- MLflow


def test_mlflow_unreachable(wrap: Wrap) -> None:
    uri = f"http://127.0.0.1:{closed_port()}"
    agent = wrap(talk(), tracing=True, mlflow_uri=uri)
    answers_in_time(agent, 2)
    assert len(stored(agent)) == 2
    ledger = agent.metaclaw._store.ledger()
    parts = eventually(lambda: [i for i in ledger.incidents("default") if i.part == "mlflow"], 40)
    assert [one.kind for one in parts] == ["unreachable"]
    assert ledger.counts("default").trace == {"pending": 2}
    assert not agent.metaclaw.flush(0.2, traces=True)
    assert agent.metaclaw.status().namespaces[0].traces_pending == 2


def test_exporter_that_cannot_start(wrap: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    agent = wrap(talk(), tracing=True)
    answers_in_time(agent)
    assert len(stored(agent)) == 1
    assert counted(agent, "mlflow", "no exporter") >= 1


@pytest.mark.parametrize("executable", ["", "/usr/sbin/uwsgi"])
def test_an_app_that_is_not_run_by_python(
    executable: str, wrap: Wrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    agent = wrap(talk(), tracing=True)
    answers_in_time(agent)
    assert len(stored(agent)) == 1
    (incident,) = agent.metaclaw.incidents.total()
    assert (incident.part, incident.kind) == ("mlflow", "no exporter")
    assert "sys.executable" in incident.message
    assert exporter_of(agent.metaclaw) is None


# ---------------------------------------------------------------- processes

APP = """
import os, sys
from tests.wrapping.support import ask, talk
from metaclaw_langgraph import with_metaclaw
agent = with_metaclaw(talk(), home=sys.argv[1], tracing=False)
"""


def test_killed_between_runs(home: Path, wrap: Wrap) -> None:
    code = (
        APP
        + """
import signal, sqlite3
for number in range(5):
    agent.invoke(ask(str(number)))
assert agent.metaclaw.flush(20)
lock = sqlite3.connect(f"{sys.argv[1]}/ledger.db", isolation_level=None)
lock.execute("BEGIN IMMEDIATE")
agent.metaclaw._recorder._retry_at = float("inf")  # the ledger is known to be out of order
for number in range(5, 8):
    agent.invoke(ask(str(number)))
while agent.metaclaw.waiting:
    pass
print("now", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    done = run_python(code, str(home))
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout == "now\n"
    with opened(home) as ledger:
        assert ledger.counts("default").total == 5
    assert spooled(home)
    agent = wrap(talk())
    eventually(lambda: len(stored(agent)) == 8)
    assert sorted(one.task or "" for one in stored(agent)) == [str(n) for n in range(8)]
    assert not spooled(home)


def test_fork(skilled: Path) -> None:
    """The child of a fork has none of the parent's threads; it starts its own."""
    code = """
import os, sys, warnings
from tests.wrapping.support import ask, talk
from metaclaw_langgraph import with_metaclaw
settings = {"min_score": -1, "deadline": 20, "embedder": "tests.wrapping.embedders:Topics"}
agent = with_metaclaw(talk(), home=sys.argv[1], tracing=False, retrieval=settings)
agent.invoke(ask("before"))
child = os.fork()
said = agent.invoke(ask("child" if child == 0 else "parent"))["messages"][-1].content
assert said == ("echo child" if child == 0 else "echo parent")
assert agent.metaclaw.flush(20)
assert not agent.metaclaw.incidents.total(), agent.metaclaw.incidents.total()
if child:
    assert os.waitpid(child, 0)[1] == 0
    agent.invoke(ask("after"))
"""
    done = run_python(code, str(skilled))
    assert done.returncode == 0, done.stderr
    with opened(skilled) as ledger:
        found = ledger.trajectories("default")
    assert sorted(one.task or "" for one in found) == ["after", "before", "child", "parent"]
    assert {one.skills[0].id for one in found} == {"check-twice@1"}
