"""A wrapped graph behind a real `langgraph dev` server, called as its clients call it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from metaclaw_langgraph import MetaClawConfig
from metaclaw_langgraph.types import Trajectory
from tests.wrapping.embedders import TOPICS
from tests.wrapping.skilled_home import SKILL_TEXT, add_skill
from tests.wrapping.support import all_of, closed_port, eventually, opened, process_env

GRAPHS = """
from langchain_core.messages import AIMessage
from langgraph.graph import MessagesState
from langgraph.types import interrupt

from metaclaw_langgraph import with_metaclaw
from tests.wrapping.support import conversation, talk
from tests.wrapping.graphs import scripted


def ask_first(state: MessagesState):
    return {"messages": [AIMessage(f"{interrupt('sure?')}, then")]}


agent = with_metaclaw(talk())
asking = with_metaclaw(conversation(ask_first))
words = with_metaclaw(talk(scripted("one word after the other")))
bare = talk()
"""
INPUT = {"messages": [{"role": "user", "content": "hello"}]}


@dataclass(frozen=True)
class Server:
    home: Path
    client: SyncLangGraphClient

    def stored(self, task: str) -> list[Trajectory]:
        with opened(self.home) as ledger:
            return [one for one in all_of(ledger) if one.task == task]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("project")
    home = folder / "home"
    (folder / "graphs.py").write_text(GRAPHS)
    names = ("agent", "asking", "words", "bare")
    settings = {"dependencies": ["."], "graphs": {n: f"./graphs.py:{n}" for n in names}}
    (folder / "langgraph.json").write_text(json.dumps(settings))
    (folder / "metaclaw.toml").write_text(
        f'tracing = false\nhome = "{home}"\n'
        f'[retrieval]\nembedder = "{TOPICS}"\nmin_score = -1\ndeadline = 10\n'
    )
    add_skill(MetaClawConfig.load(home=home))
    port = closed_port()
    process = start(folder, port)
    try:
        wait_until_up(process, port, folder / "log.txt")
        with get_sync_client(url=f"http://127.0.0.1:{port}") as client:
            yield Server(home, client)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    command = shutil.which("langgraph", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("langgraph-cli[inmem] is not installed")
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "NO_COLOR": "1"}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(
            [command, "dev", "--no-browser", "--no-reload", "--port", str(port)],
            cwd=folder,
            env=process_env(quiet),
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-5000:]
        try:
            return httpx.get(f"http://127.0.0.1:{port}/ok", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    eventually(answers, timeout=90)


def said(state: Any) -> list[str]:
    return [message["content"] for message in state["messages"]]


def test_wait(server: Server) -> None:
    task = "a run without a thread"
    sent = {"messages": [{"role": "user", "content": task}]}
    result = server.client.runs.wait(None, "agent", input=sent)
    assert said(result) == [task, f"echo {task}"]
    (one,) = eventually(lambda: server.stored(task))
    assert (one.outcome, one.retrieval) == ("ok", "hit")
    assert [hit.id for hit in one.skills] == ["check-twice@1"]
    assert SKILL_TEXT in json.dumps(one.messages)


def test_threads(server: Server) -> None:
    client = server.client
    thread = client.threads.create()["thread_id"]
    for text in ("first of two", "second of two"):
        client.runs.wait(thread, "agent", input={"messages": [{"role": "user", "content": text}]})
    state = client.threads.get_state(thread)
    assert said(state["values"])[-2:] == ["second of two", "echo second of two"]
    assert "metaclaw" not in json.dumps(client.threads.get_history(thread)).lower()
    (one,) = eventually(lambda: server.stored("second of two"))
    assert one.thread_id == thread
    assert len(one.calls[0].prompt) == 4  # the skills, and the conversation so far


def test_stream_modes(server: Server) -> None:
    """The same parts as from the bare graph beside it."""
    modes: Any = ["values", "updates", "messages-tuple", "events", "debug", "custom"]
    seen = {}
    for name in ("bare", "agent"):
        thread = server.client.threads.create()["thread_id"]
        parts = list(server.client.runs.stream(thread, name, input=INPUT, stream_mode=modes))
        seen[name] = [(part.event, shape(part.data)) for part in parts]
    assert seen["agent"] == seen["bare"]
    assert {event for event, _ in seen["agent"]} >= {"values", "updates", "messages", "events"}


def shape(value: Any) -> Any:
    """The keys and types of a part; prompts differ by the skills, ids by the run."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items() if key not in ("input", "chunk")}
    return type(value).__name__


def test_tokens_are_streamed(server: Server) -> None:
    parts = list(
        server.client.runs.stream(None, "words", input=INPUT, stream_mode="messages-tuple")
    )
    words = [part.data[0]["content"] for part in parts if part.event == "messages"]
    assert "".join(words) == "one word after the other"
    assert len([word for word in words if word]) > 3


def test_interrupt_and_resume(server: Server) -> None:
    client = server.client
    thread = client.threads.create()["thread_id"]
    task = "ask me first"
    client.runs.wait(thread, "asking", input={"messages": [{"role": "user", "content": task}]})
    state = client.threads.get_state(thread)
    assert state["next"] == ["answer"]
    assert state["tasks"][0]["interrupts"][0]["value"] == "sure?"
    result = client.runs.wait(thread, "asking", command={"resume": "yes"})
    assert said(result)[-1] == "yes, then"

    def of_thread() -> list[Trajectory] | None:
        with opened(server.home) as ledger:
            found = [one for one in all_of(ledger) if one.thread_id == thread]
        return found if len(found) == 2 else None

    assert [one.outcome for one in eventually(of_thread)] == ["interrupted", "ok"]


def test_the_server_draws_the_loop(server: Server) -> None:
    drawn = server.client.assistants.get_graph(assistant(server, "agent"))
    names = {str(node["id"]) for node in drawn["nodes"]}
    assert {"metaclaw_retrieve", "answer", "metaclaw_judge", "metaclaw_evolver"} <= names


def assistant(server: Server, graph: str) -> str:
    (found,) = server.client.assistants.search(graph_id=graph)
    return str(found["assistant_id"])
