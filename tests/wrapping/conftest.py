"""A home of its own for each test, and the runtimes that it started closed at its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph import runtime as runtimes
from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.runtime import Runtime
from tests.wrapping.embedders import TOPICS
from tests.wrapping.support import stop_exporter

Wrap = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("METACLAW_", "LANGSMITH_", "LANGCHAIN_")) or "MLFLOW" in name:
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def wrap(home: Path) -> Iterator[Wrap]:
    """`with_metaclaw` on the test's home; no tracing and a small embedder unless asked for."""
    before = set(runtimes._runtimes.values())

    def wrapped(graph: Any, **settings: Any) -> Any:
        retrieval = {"embedder": TOPICS, **settings.pop("retrieval", {})}
        defaults = {"home": home, "tracing": False}
        return with_metaclaw(graph, **{**defaults, **settings}, retrieval=retrieval)

    yield wrapped
    close_runtimes(set(runtimes._runtimes.values()) - before)


def close_runtimes(started: set[Runtime]) -> None:
    for runtime in started:
        runtime.close(timeout=1.0)
        stop_exporter(runtime)
