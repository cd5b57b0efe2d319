"""Several processes on one home, a process that dies at the worst moment, a fork, a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.skills.library import SkillLibrary
from tests.skills.conftest import Retrieve, put, skill

ROOT = Path(__file__).parents[2]


class Process:
    """The worker, spoken to by method calls."""

    def __init__(self, home: Path, url: str | None = None) -> None:
        command = [sys.executable, "-m", "tests.skills.worker", str(home), *([url] if url else [])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._answer() == "ready"

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: str) -> Any:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps([verb, *arguments]) + "\n")
            self.process.stdin.flush()
            return self._answer()

        return call

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def stop(self) -> int:
        self.process.communicate(timeout=60)
        return self.process.returncode


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def make(url: str | None = None) -> Process:
        started.append(Process(tmp_path, url))
        return started[-1]

    yield make
    for process in started:
        if process.process.poll() is None:
            process.stop()
        for pipe in (process.process.stdin, process.process.stdout):
            assert pipe is not None
            pipe.close()


def test_two_processes_share_a_home(start: Start) -> None:
    first, second = start(), start()
    assert first.put("bake-bread") == 1
    assert first.retrieve("bake bread") == _found(1, "chroma", "bake-bread@1")
    assert second.retrieve("bake bread") == _found(1, "memory", "bake-bread@1")
    assert first.put("bake-rolls") == 2
    assert second.retrieve("bake rolls")["ids"][0] == "bake-rolls@1"
    assert second.put("knit-socks") == 3
    assert first.retrieve("knit socks") == _found(3, "chroma", "knit-socks@1")
    assert second.rollback("1") == 4
    for process in (first, second):
        answer = process.retrieve("bake rolls")
        assert (answer["generation"], answer["ids"]) == (4, ["bake-bread@1"])


def test_the_folder_is_free_again_when_its_holder_closes_or_dies(start: Start) -> None:
    first, second = start(), start()
    first.put("bake-bread")
    assert first.retrieve("bake bread")["kind"] == "chroma"
    assert second.retrieve("bake bread")["kind"] == "memory"
    first.process.kill()
    first.process.wait()
    second.close()
    assert second.retrieve("bake bread") == _found(1, "chroma", "bake-bread@1")


def test_killed_between_chroma_and_the_ledger(start: Start) -> None:
    """Rows of the lost import are in Chroma; whoever opens it next takes them out again."""
    first = start()
    first.put("bake-bread")
    first.retrieve("bake bread")
    assert first.die_before_commit("bake-rolls") is None
    assert first.stop() == -9
    second = start()
    assert second.retrieve("bake rolls") == _found(1, "chroma", "bake-bread@1")
    assert second.rows() == ["bake-bread@1"]
    assert second.put("bake-rolls") == 2
    assert second.retrieve("bake rolls")["ids"][0] == "bake-rolls@1"


def test_killed_between_the_ledger_and_chroma(
    start: Start, library: SkillLibrary, retriever: Retrieve
) -> None:
    """Skills of the ledger that Chroma lacks are put in when it is opened."""
    first = start()
    first.put("bake-bread")
    first.retrieve("bake bread")
    put(library, skill("bake-rolls"))
    first.process.kill()
    first.process.wait()
    one = retriever()
    assert one.retrieve("bake rolls").hits[0].id == "bake-rolls@1"
    assert one.index is not None
    assert one.index.kind == "chroma"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_builds_an_index_of_its_own(
    library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, skill("bake-bread"))
    one = retriever()
    one.warm()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = one.retrieve("bake bread")
            kind = one.index.kind if one.index else ""
            os.write(write, f"{found.hits[0].id} {kind}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "bake-bread@1 memory"
    os.waitpid(child, 0)
    assert one.retrieve("bake bread").hits[0].id == "bake-bread@1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A real Chroma server on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    chroma = Path(sys.executable).parent / "chroma"
    process = subprocess.Popen(
        [chroma, "run", "--host", "127.0.0.1", "--port", str(port), "--path", tmp_path / "server"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        # Nothing tells that a server is listening except asking it.
        time.sleep(0.05)
    raise AssertionError("the Chroma server did not start")


def test_processes_on_a_chroma_server(start: Start, server: str) -> None:
    first, second = start(server), start(server)
    first.put("bake-bread")
    assert second.retrieve("bake bread") == _found(1, "chroma server", "bake-bread@1")
    assert first.retrieve("bake bread") == _found(1, "chroma server", "bake-bread@1")
    second.put("bake-rolls")
    assert first.retrieve("bake rolls")["ids"][0] == "bake-rolls@1"
    first.put("knit-socks")
    first.rollback("2")
    assert second.retrieve("knit socks")["ids"] == first.retrieve("knit socks")["ids"]
    assert second.rows() == first.rows()


def _found(generation: int, kind: str, *ids: str) -> dict[str, object]:
    return {"generation": generation, "ids": list(ids), "kind": kind}
