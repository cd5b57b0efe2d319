"""Small models, graphs and servers that the tests of wrapping share."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import Field

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.runtime import Runtime
from metaclaw_langgraph.types import Trajectory

ROOT = Path(__file__).parents[2]


class EchoModel(BaseChatModel):
    """Answers with the user's last words; keeps the prompts that it was given."""

    prompts: list[list[BaseMessage]] = Field(default_factory=list)
    delay: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.prompts.append(messages)
        if self.delay:
            time.sleep(self.delay)
        said = next(m.content for m in reversed(messages) if isinstance(m, HumanMessage))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"echo {said}"))])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def system_prompts(self) -> list[str]:
        """The system prompt of each call, empty where there was none."""
        return [
            "".join(str(m.content) for m in prompt if isinstance(m, SystemMessage))
            for prompt in self.prompts
        ]


def talk(model: BaseChatModel | None = None, saver: Any = None) -> Any:
    """One node that answers."""
    chosen = model or EchoModel()

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [chosen.invoke(state["messages"])]}

    return conversation(answer, saver)


def atalk(model: BaseChatModel | None = None, saver: Any = None) -> Any:
    """The same, async only."""
    chosen = model or EchoModel()

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await chosen.ainvoke(state["messages"])]}

    return conversation(answer, saver)


def conversation(node: Callable[[MessagesState], Any], saver: Any = None) -> Any:
    """A graph of one node over messages."""
    builder = StateGraph(MessagesState)
    builder.add_node("answer", node)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def ask(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=f"u-{text[:20]}")]}


def texts(result: Mapping[str, Any]) -> list[Any]:
    """What was said, without ids."""
    return [message.content for message in result["messages"]]


def counted(agent: Any, part: str, kind: str | None = None) -> int:
    """How often this process has seen something go wrong."""
    found = agent.metaclaw.incidents.total()
    return sum(i.count for i in found if i.part == part and kind in (None, i.kind))


def stored(agent: Any, timeout: float = 10.0) -> list[Trajectory]:
    """Everything that the agent's namespace holds, oldest first."""
    assert agent.metaclaw.flush(timeout)
    ledger: Ledger = agent.metaclaw._store.ledger()
    return all_of(ledger, agent.metaclaw.namespace)


def all_of(ledger: Ledger, namespace: str = "default") -> list[Trajectory]:
    found = ledger.trajectories(namespace, limit=100_000)
    return [ledger.trajectory(namespace, one.id) for one in reversed(found)]


def only(agent: Any) -> Trajectory:
    """The one trajectory that there is."""
    (found,) = stored(agent)
    return found


@contextmanager
def opened(home: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(f"sqlite:///{home / 'ledger.db'}")
    with closing(ledger):
        yield ledger


def run_python(
    code: str, *arguments: str, env: Mapping[str, str] | None = None, **kwargs: Any
) -> Any:
    """Run a script in a process of its own, with the project importable."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=process_env(env),
        **kwargs,
    )


def process_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(extra or {})}


def status_json(home: Path) -> dict[str, Any]:
    """What `metaclaw status --json` prints in another process."""
    code = "import sys; from metaclaw_langgraph.cli import main; sys.exit(main())"
    done = run_python(code, "status", "--json", env={"METACLAW_HOME": str(home)}, cwd=home.parent)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(status: Mapping[str, Any], part: str, kind: str, namespace: str = "default") -> int:
    """The count of an incident in a status."""
    return sum(
        one["count"]
        for space in status["namespaces"]
        if space["namespace"] == namespace
        for one in space["incidents"]
        if (one["part"], one["kind"]) == (part, kind)
    )


def saved(ledger: Ledger, part: str, kind: str | None = None) -> int:
    """The count of an incident in the ledger."""
    found = ledger.incidents("default")
    return sum(one.count for one in found if one.part == part and kind in (None, one.kind))


def closed_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def silent_server() -> Iterator[str]:
    """Accepts connections and never answers."""
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in kept:
                connection.close()
            thread.join(5)


def exporter_of(runtime: Runtime) -> subprocess.Popen[bytes] | None:
    return runtime._store._launcher._process


def stop_exporter(runtime: Runtime) -> None:
    process = exporter_of(runtime)
    if process is not None and process.poll() is None:
        process.kill()
        process.wait(10)


def eventually(condition: Callable[[], Any], timeout: float = 20.0) -> Any:
    """For other processes, whose events cannot be awaited."""
    give_up = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < give_up, "it did not come true in time"
        time.sleep(0.05)
    return found
