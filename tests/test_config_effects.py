"""Every setting has an effect: a graph is wrapped and run with two values of each, and differs.

`EFFECTS` has one entry for each setting, and a test that it has: a setting that nothing reads
cannot be added, and one that is no longer read is found.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph import runtime as runtimes
from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.learning.store import LearningStore
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.tracing.launcher import ExporterLauncher
from metaclaw_langgraph.wrapping import graph as graphs
from tests.learning.effects import LEARNING_EFFECTS
from tests.skills.conftest import WordEmbedder
from tests.wrapping.skilled_home import add_skill
from tests.wrapping.support import all_of, ask, closed_port, counted, only, talk

SMALL = "tests.test_config_effects:Small"
HANGING = "tests.test_config_effects:Hanging"
TASK = "bake bread"
Others = Mapping[str, Any]
NONE: Others = {}
_released = threading.Event()


class Small(WordEmbedder):
    """Counts how often it is loaded."""

    loaded = 0

    def __init__(self) -> None:
        super().__init__("small")
        Small.loaded += 1


class Hanging(WordEmbedder):
    """Reads skills, but is not done with a task before the test is over."""

    def embed_query(self, text: str) -> Any:
        _released.wait(60)
        return super().embed_query(text)


class Bench:
    """Wraps and runs graphs on homes of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        self.home = folder / "0"

    def config(self, key: str, value: object, others: Others) -> MetaClawConfig:
        """One setting changed; small and quick otherwise, and with three skills."""
        self.home = self.folder / str(int(self.home.name) + 1)
        table: dict[str, Any] = {"home": self.home, "tracing": False, "draw": False}
        table["retrieval"] = {"embedder": SMALL, "deadline": 30.0}
        for name, chosen in {**others, key: value}.items():
            section, _, option = name.rpartition(".")
            (table.setdefault(section, {}) if section else table)[option] = chosen
        return MetaClawConfig.load(**table)

    def wrapped(
        self, key: str, value: object, others: Others = NONE, graph: Any = None, **parts: Any
    ) -> Any:
        config = self.config(key, value, others)
        for name in ("bake-bread", "bake-cake", "undo-commit"):
            add_skill(config, name, f"Do it as {name} says.", f"How to {name.replace('-', ' ')}")
        return with_metaclaw(graph or talk(), config, **parts)

    def ran(self, key: str, value: object, others: Others = NONE, task: str = TASK) -> Any:
        agent = self.wrapped(key, value, others)
        agent.invoke(ask(task))
        return agent


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in [*os.environ]:
        if name.upper().startswith("METACLAW_") or name == "MLFLOW_TRACKING_URI":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    _released.clear()
    before = set(runtimes._runtimes.values())
    yield Bench(tmp_path, monkeypatch)
    _released.set()
    for runtime in set(runtimes._runtimes.values()) - before:
        runtime.close(timeout=1.0)


def namespace(bench: Bench) -> None:
    only(bench.ran("namespace", "other"))
    with Ledger.open(f"sqlite:///{bench.home / 'ledger.db'}") as ledger:
        assert ledger.namespaces() == ["other"]
        assert [one.generation for one in all_of(ledger, "other")] == [3]


def home(bench: Bench) -> None:
    only(bench.ran("home", bench.folder / "elsewhere"))
    assert (bench.folder / "elsewhere" / "ledger.db").is_file()
    assert (bench.folder / "elsewhere" / "chroma").is_dir()
    assert not bench.home.exists()


def draw(bench: Bench) -> None:
    drawn = [set(bench.wrapped("draw", value).get_graph().nodes) for value in (False, True)]
    assert drawn[0] < drawn[1]


def tracing(bench: Bench) -> None:
    started: list[object] = []
    bench.patch.setattr(ExporterLauncher, "ensure_running", lambda self: started.append(self))
    for value, state in ((False, "off"), (True, "pending")):
        agent = bench.ran("tracing", value)
        only(agent)
        with Ledger.open(agent.metaclaw.config.resolved_ledger_url) as ledger:
            assert ledger.counts("default").trace == {state: 1}
        assert bool(started) is value


def hook(bench: Bench) -> None:
    installed: list[int] = []
    bench.patch.setattr(graphs, "install_hook", lambda: installed.append(1))
    bench.wrapped("hook", False)
    assert installed == []
    bench.wrapped("hook", True)
    assert installed == [1]


def ledger_url(bench: Bench) -> None:
    only(bench.ran("ledger_url", f"sqlite:///{bench.folder / 'mine.db'}"))
    assert (bench.folder / "mine.db").is_file()
    assert not (bench.home / "ledger.db").exists()


def chroma_url(bench: Bench) -> None:
    agent = bench.ran("chroma_url", f"http://127.0.0.1:{closed_port()}")
    assert only(agent).retrieval == "failed"
    assert not (bench.home / "chroma").exists()


def mlflow_uri(bench: Bench) -> None:
    orders: list[Any] = []
    bench.patch.setattr(
        ExporterLauncher, "ensure_running", lambda self: orders.append(self._order["mlflow_uri"])
    )
    for uri in ("http://127.0.0.1:9", "sqlite:///mine.db"):
        agent = bench.ran("mlflow_uri", uri, {"tracing": True})
        only(agent)
        agent.metaclaw.close()
        assert set(orders) == {uri}
        orders.clear()


def top_k(bench: Bench) -> None:
    agents = [bench.ran("retrieval.top_k", k, {"retrieval.min_score": -1}) for k in (1, 3)]
    assert [len(only(agent).skills) for agent in agents] == [1, 3]


def min_score(bench: Bench) -> None:
    found = [only(bench.ran("retrieval.min_score", least)).skills for least in (-1, 0.99)]
    assert [len(hits) for hits in found] == [3, 0]
    assert found[0][0].id == "bake-bread@1"


def token_budget(bench: Bench) -> None:
    least = {"retrieval.min_score": -1}
    found = [only(bench.ran("retrieval.token_budget", n, least)).skills for n in (10, 2000)]
    assert [sum(hit.injected for hit in hits) for hits in found] == [0, 3]


def deadline(bench: Bench) -> None:
    others = {"retrieval.embedder": HANGING, "retrieval.warmup": 0}
    agent = bench.ran("retrieval.deadline", 0.01, others)
    assert only(agent).retrieval == "missed"
    (late,) = [one for one in agent.metaclaw.incidents.total() if one.kind == "missed"]
    assert "0.01 s" in late.message


def warmup(bench: Bench) -> None:
    agent = bench.wrapped("retrieval.warmup", 0.01, {"retrieval.embedder": HANGING})
    assert counted(agent, "retrieval", "slow start") == 1
    agent = bench.wrapped("retrieval.warmup", 0, {"retrieval.embedder": HANGING})
    assert counted(agent, "retrieval", "slow start") == 0


def embedder(bench: Bench) -> None:
    before = Small.loaded
    bench.wrapped("retrieval.embedder", "tests.skills.conftest:WordEmbedder")
    assert Small.loaded == before
    bench.wrapped("retrieval.embedder", SMALL)
    assert Small.loaded == before + 1


def queue_size(bench: Bench) -> None:
    for size, overflowed in ((100, False), (1, True)):
        agent = bench.wrapped("learning.queue_size", size)
        with held_store(bench):
            for number in range(4):
                agent.invoke(ask(f"{TASK} {number}"))
            assert bool(counted(agent, "queue", "overflow")) is overflowed
        assert agent.metaclaw.flush(10)


def flush_interval(bench: Bench) -> None:
    for seconds, soon in ((0.001, True), (30, False)):
        agent = bench.ran("learning.flush_interval", seconds)
        only(agent)
        again = stored_event(bench)
        agent.invoke(ask(TASK))
        assert again.wait(10 if soon else 0.3) is soon


def redact_env(bench: Bench) -> None:
    bench.patch.setenv("BAKERY_PASSWORD", "flour-and-water")
    tasks = [
        only(bench.ran("redact.env", on, task="say flour-and-water")).task for on in (True, False)
    ]
    assert tasks == ["say [redacted:environment]", "say flour-and-water"]


def redact_patterns(bench: Bench) -> None:
    tasks = [
        only(bench.ran("redact.patterns", some, task="say bread-42")).task
        for some in ((), (r"bread-\d+",))
    ]
    assert tasks == ["say bread-42", "say [redacted:pattern]"]


@contextmanager
def held_store(bench: Bench) -> Iterator[None]:
    """While it lasts, the recorder does not get past storing."""
    free, store = threading.Event(), LearningStore.store

    def held(*given: Any) -> None:
        free.wait(30)
        store(*given)

    bench.patch.setattr(LearningStore, "store", held)
    yield
    free.set()


def stored_event(bench: Bench) -> threading.Event:
    """Set when something has been stored."""
    event, store = threading.Event(), LearningStore.store

    def spied(*given: Any) -> None:
        store(*given)
        event.set()

    bench.patch.setattr(LearningStore, "store", spied)
    return event


EFFECTS: dict[str, Callable[[Bench], None]] = {
    "namespace": namespace,
    "home": home,
    "draw": draw,
    "tracing": tracing,
    "hook": hook,
    "ledger_url": ledger_url,
    "chroma_url": chroma_url,
    "mlflow_uri": mlflow_uri,
    "retrieval.top_k": top_k,
    "retrieval.min_score": min_score,
    "retrieval.token_budget": token_budget,
    "retrieval.deadline": deadline,
    "retrieval.warmup": warmup,
    "retrieval.embedder": embedder,
    "learning.queue_size": queue_size,
    "learning.flush_interval": flush_interval,
    **LEARNING_EFFECTS,
    "redact.env": redact_env,
    "redact.patterns": redact_patterns,
}


def test_there_is_an_effect_for_every_setting() -> None:
    known: list[str] = []
    for name, value in MetaClawConfig.model_construct().model_dump().items():
        known += [f"{name}.{key}" for key in value] if isinstance(value, dict) else [name]
    assert known == [*EFFECTS]


@pytest.mark.parametrize("setting", EFFECTS)
def test_a_setting_changes_what_happens(bench: Bench, setting: str) -> None:
    EFFECTS[setting](bench)
