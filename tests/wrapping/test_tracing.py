"""Trajectories as MLflow traces, made by another process: the app does not even import MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.types import interrupt

from metaclaw_langgraph import MetaClawConfig, with_metaclaw
from metaclaw_langgraph import runtime as runtimes
from metaclaw_langgraph.types import Trajectory
from tests.wrapping.conftest import Wrap, close_runtimes
from tests.wrapping.embedders import TOPICS
from tests.wrapping.graphs import calling, scripted
from tests.wrapping.skilled_home import add_skill
from tests.wrapping.support import (
    ask,
    closed_port,
    conversation,
    eventually,
    exporter_of,
    run_python,
    stored,
    talk,
)

RETRIEVAL = {"min_score": -1, "deadline": 20, "warmup": 20, "embedder": TOPICS}


@tool
def price(item: str) -> str:
    """The price of an item."""
    return f"{item} costs 7"


def broken(state: MessagesState) -> Any:
    raise ValueError("no such order")


def waiting(state: MessagesState) -> Any:
    interrupt("sure?")


@dataclass(frozen=True)
class Traced:
    """What was run, and what MLflow has of it, by thread."""

    home: Path
    runtime: Any
    trajectories: dict[str | None, Trajectory]
    traces: dict[str | None, Any]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    home = tmp_path_factory.mktemp("traced")
    config = MetaClawConfig.load(home=home, retrieval=RETRIEVAL, namespace="shop", mlflow_uri=None)
    add_skill(config)
    before = set(runtimes._runtimes.values())
    model = scripted(calling("price", {"item": "tea"}, "c1"), "Seven.")
    agent = with_metaclaw(create_agent(model, [price], name="seller"), config)
    agent.invoke(ask("what is the price?"), thread("sold"))
    # Killed before it has done anything: the next run starts another one.
    assert agent.metaclaw.flush(20)
    first = exporter_of(agent.metaclaw)
    assert first is not None
    first.kill()
    first.wait(10)
    failing = with_metaclaw(conversation(broken), config)
    with pytest.raises(ValueError, match="no such order"):
        failing.invoke(ask("hello"), thread("broken"))
    asking = with_metaclaw(conversation(waiting, InMemorySaver()), config)
    asking.invoke(ask("hello"), thread("asked"))
    asking.invoke(ask("hello"), {"configurable": {"thread_id": "again"}, "run_name": "named"})
    assert agent.metaclaw.flush(90, traces=True)
    second = exporter_of(agent.metaclaw)
    assert second is not None
    assert second.pid != first.pid
    found = {one.thread_id: one for one in stored(agent)}
    yield Traced(home, agent.metaclaw, found, read_traces(home))
    close_runtimes(set(runtimes._runtimes.values()) - before)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def read_traces(home: Path) -> dict[str | None, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("metaclaw/shop/runs")
    assert experiment is not None
    found = client.search_traces(locations=[experiment.experiment_id])
    return {trace.info.trace_metadata.get("mlflow.trace.session"): trace for trace in found}


def test_every_run_has_its_trace_and_the_two_know_each_other(traced: Traced) -> None:
    assert set(traced.traces) == set(traced.trajectories) == {"sold", "broken", "asked", "again"}
    for name, trajectory in traced.trajectories.items():
        info = traced.traces[name].info
        assert trajectory.trace_id == info.trace_id
        assert info.tags["metaclaw.trajectory"] == trajectory.id


def test_tags(traced: Traced) -> None:
    tags = traced.traces["sold"].info.tags
    ours = {key: value for key, value in tags.items() if key.startswith("metaclaw.")}
    del ours["metaclaw.trajectory"]
    assert ours == {
        "metaclaw.namespace": "shop",
        "metaclaw.outcome": "ok",
        "metaclaw.generation": "1",
        "metaclaw.adapter": "",
        "metaclaw.skills": "check-twice@1",
        "metaclaw.retrieval": "hit",
    }
    assert traced.traces["broken"].info.tags["metaclaw.outcome"] == "failed"
    assert traced.traces["asked"].info.tags["metaclaw.outcome"] == "interrupted"


def test_tree_of_spans(traced: Traced) -> None:
    spans = traced.traces["sold"].data.spans
    by_id = {span.span_id: span for span in spans}

    def path(span: Any) -> list[str]:
        above = by_id.get(span.parent_id)
        return [*(path(above) if above else []), span.name]

    # MLflow numbers spans of the same name.
    tree = sorted(re.sub(r"_\d+", "", "/".join(path(span))) for span in spans)
    assert tree == [
        "seller",
        "seller/model",
        "seller/model",
        "seller/model/ScriptedModel",
        "seller/model/ScriptedModel",
        "seller/tools",
        "seller/tools/price",
    ]
    kinds = {span.name.partition("_")[0]: span.span_type for span in spans}
    assert kinds["ScriptedModel"] == "CHAT_MODEL"
    assert kinds["price"] == "TOOL"


def test_times_are_those_of_the_run(traced: Traced) -> None:
    for name, trajectory in traced.trajectories.items():
        begin = trajectory.started_at.timestamp() * 1e9 - 1e6
        end = trajectory.ended_at.timestamp() * 1e9 + 1e6
        for span in traced.traces[name].data.spans:
            assert begin <= span.start_time_ns <= span.end_time_ns <= end


def test_what_went_in_and_out(traced: Traced) -> None:
    spans = traced.traces["sold"].data.spans
    root = next(span for span in spans if span.parent_id is None)
    assert "what is the price?" in str(root.inputs)
    assert "Seven." in str(root.outputs)
    tool_span = next(span for span in spans if span.name == "price")
    assert "tea" in str(tool_span.inputs)
    assert "tea costs 7" in str(tool_span.outputs)
    model = next(span for span in spans if span.name.startswith("ScriptedModel"))
    assert "<metaclaw_skills" in str(model.inputs)


def test_errors_show_as_errors(traced: Traced) -> None:
    states = {name: str(trace.info.state) for name, trace in traced.traces.items()}
    assert states == {
        "sold": "OK",
        "broken": "ERROR",
        "asked": "OK",
        "again": "OK",
    }
    assert "no such order" in str([span.events for span in traced.traces["broken"].data.spans])


def test_names(traced: Traced) -> None:
    roots = {
        name: next(span.name for span in trace.data.spans if span.parent_id is None)
        for name, trace in traced.traces.items()
    }
    assert roots == {
        "sold": "seller",
        "broken": "LangGraph",
        "asked": "LangGraph",
        "again": "named",
    }


def test_nothing_is_pending_and_nothing_went_wrong(traced: Traced) -> None:
    ledger = traced.runtime._store.ledger()
    assert ledger.counts("shop").trace == {"done": 4}
    assert [one for one in ledger.incidents("shop") if one.part == "mlflow"] == []


def test_the_generation_that_the_runs_had_is_shown_too(traced: Traced) -> None:
    from mlflow import MlflowClient

    ledger = traced.runtime._store.ledger()
    (generation,) = ledger.generations("shop")
    run_id = generation.run_id or eventually(lambda: ledger.generations("shop")[0].run_id, 60)
    run = MlflowClient(f"sqlite:///{traced.home / 'mlflow.db'}").get_run(run_id)
    assert run.info.run_name == "generation 1"


def test_the_app_does_not_import_mlflow(tmp_path: Path) -> None:
    code = """
import sys
from tests.wrapping.support import ask, talk
from metaclaw_langgraph import with_metaclaw
agent = with_metaclaw(talk(), home=sys.argv[1], mlflow_uri=f"sqlite:///{sys.argv[1]}/m.db")
agent.invoke(ask("hello"))
assert agent.metaclaw.flush(20)
agent.metaclaw._store._launcher._process.kill()
heavy = {"mlflow", "torch", "transformers"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
    done = run_python(code, str(tmp_path / "home"))
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_the_users_own_mlflow_is_left_alone(traced: Traced, wrap: Wrap) -> None:
    import mlflow

    own = f"sqlite:///{traced.home / 'mlflow.db'}"
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(own)
    try:
        mine = mlflow.set_experiment("mine").experiment_id
        agent = wrap(talk(), tracing=True, mlflow_uri=f"http://127.0.0.1:{closed_port()}")
        agent.invoke(ask("hello"))
        with mlflow.start_run() as run:
            agent.invoke(ask("again"))
        assert len(stored(agent)) == 2
        assert mlflow.get_tracking_uri() == own
        assert run.info.experiment_id == mine
        assert mlflow.MlflowClient(own).search_traces(locations=[mine]) == []
        names = {one.name for one in mlflow.MlflowClient(own).search_experiments()}
        assert names - {"metaclaw/shop/skills"} == {"Default", "mine", "metaclaw/shop/runs"}
    finally:
        mlflow.set_tracking_uri(before)
