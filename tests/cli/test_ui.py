"""`metaclaw ui`: really started, looked at and stopped; and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

Run = Callable[..., Any]

SCRIPT = "from metaclaw_langgraph.cli import main; main()"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(port: int) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, ready to answer."""
    command = [sys.executable, "-c", SCRIPT, "ui", "--port", str(port)]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    late = threading.Timer(120, server.kill)
    late.start()
    try:
        seen = wait_until_ready(server)
        threading.Thread(target=drain, args=(server,), daemon=True).start()
        assert f"http://127.0.0.1:{port}" in seen[0]
        yield server
    finally:
        late.cancel()
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_until_ready(server: subprocess.Popen[str]) -> list[str]:
    assert server.stdout is not None
    seen = []
    for line in server.stdout:
        seen.append(line)
        if "Uvicorn running on" in line:
            return seen
    raise AssertionError("the server ended: " + "".join(seen))


def drain(server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    with server.stdout as output:
        for _ in output:
            pass


def test_it_serves_the_store_of_the_home_and_stops_cleanly(home: Path) -> None:
    port = free_port()
    with started(port) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            assert "MLflow" in answer.read().decode()
        search = f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/search?max_results=5"
        with urllib.request.urlopen(search, timeout=30) as answer:
            assert json.load(answer)["experiments"][0]["name"] == "Default"
        listening = {
            one.laddr.ip
            for process in family(server.pid)
            for one in process.net_connections("inet")
            if one.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        members = family(server.pid)
        server.terminate()
        assert server.wait(timeout=60) in (0, -signal.SIGTERM)
        _, alive = psutil.wait_procs(members, timeout=30)
        assert alive == []
    assert (home / "mlflow.db").is_file()
    assert os.listdir() == ["home"]


def family(pid: int) -> list[psutil.Process]:
    head = psutil.Process(pid)
    return [head, *head.children(recursive=True)]


def test_a_port_in_use_is_refused(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("ui", "--port", str(port))
    assert result.exit_code == 2
    assert f"port {port} cannot be used" in result.stderr
    assert "--port" in result.stderr


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("http://mlflow.example:5000", "open http://mlflow.example:5000"),
        ("databricks", "Databricks"),
    ],
)
def test_a_server_is_only_pointed_to(
    run: Run, monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    result = run("ui")
    assert result.exit_code == 0
    assert says in result.stdout


@pytest.mark.parametrize("uri", ["file:./mlruns", "mlruns", "postgresql:///"])
@pytest.mark.parametrize("tracing", ["true", "false"])
def test_a_tracking_uri_that_cannot_be_used_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, uri: str, tracing: str
) -> None:
    monkeypatch.setattr("os.execve", lambda *arguments: pytest.fail("the server was started"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("METACLAW_TRACING", tracing)
    result = run("ui", "--port", str(free_port()))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"bad setting MLFLOW_TRACKING_URI = {uri!r}" in result.stderr


def test_a_home_that_cannot_be_made_is_refused(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file")
    result = run("ui", "--port", str(free_port()))
    assert result.exit_code == 2
    assert "METACLAW_HOME" in result.stderr


def test_a_password_is_not_on_the_command_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr("os.execve", lambda *arguments: called.append(arguments))
    monkeypatch.setenv("METACLAW_MLFLOW_URI", "postgresql://ann:Pa55@127.0.0.1:1/none")
    result = run("ui", "--port", str(free_port()))
    (_, command, environment) = called[0]
    assert "Pa55" not in " ".join(command) + result.output
    assert environment["MLFLOW_BACKEND_STORE_URI"] == "postgresql://ann:Pa55@127.0.0.1:1/none"
