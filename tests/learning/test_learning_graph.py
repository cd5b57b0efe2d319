"""The learning graph by itself: drawn, run, and served by LangGraph's own server."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_sync_client

from metaclaw_langgraph.learning.graph import LearningState, build_learning_graph
from metaclaw_langgraph.types import Verdict
from tests.learning.conftest import Learn
from tests.learning.support import (
    LESSON,
    TASK,
    WORDS,
    Held,
    StandInEvolver,
    judged,
    ledger_of,
    says,
)
from tests.wrapping.support import ROOT, ask, closed_port, opened, stored, talk
from tests.wrapping.test_langgraph_dev import start, wait_until_up

NODES = {"__start__", "metaclaw_judge", "metaclaw_keep", "metaclaw_evolver", "__end__"}


class Lessons:
    """Says what it was told to, and keeps who was asked."""

    def __init__(
        self, judge: LearningState, evolve: LearningState | None = None, *, failures: bool = True
    ) -> None:
        self.asked: list[Any] = []
        self._judge = judge
        self._evolve = evolve or {}
        self._failures = failures

    def failures_wait(self) -> bool:
        return self._failures

    def judge(self) -> LearningState:
        return self._judge

    def keep(self) -> LearningState:
        self.asked.append("keep")
        return {}

    def evolve(self, at_once: bool) -> LearningState:
        self.asked.append(("evolve", at_once))
        return self._evolve


@pytest.mark.parametrize("passed", [["a"], []])
@pytest.mark.parametrize("failures", [True, False])
def test_failures_that_wait_are_evolved_from_whatever_was_judged_now(
    passed: list[str], failures: bool
) -> None:
    """On a busy service every pass finds good runs; they must not keep a correction waiting."""
    lessons = Lessons({"passed": passed, "failed": []}, failures=failures)
    build_learning_graph(lessons).invoke({"at_once": False})
    assert lessons.asked == ([("evolve", False)] if failures else ["keep"])


@pytest.mark.parametrize(
    ("judge", "evolve", "soonest"),
    [(0.0, 10.0, 0.0), (None, 10.0, 10.0), (0.0, None, 0.0), (None, None, None)],
)
def test_the_soonest_of_what_waits_counts(
    judge: float | None, evolve: float | None, soonest: float | None
) -> None:
    """A batch of runs to judge does not wait for failures that are being gathered."""
    lessons = Lessons({"failed": ["b"], "look_again_in": judge}, {"look_again_in": evolve})
    assert build_learning_graph(lessons).invoke({"at_once": True})["look_again_in"] == soonest


def test_it_can_be_drawn_and_run_by_itself(learning: Learn) -> None:
    agent = learning(
        talk(), judge=lambda _: (False, LESSON), evolving={"support_wait": 3600}, draw=False
    )
    agent.invoke(ask(TASK))
    assert agent.metaclaw.flush(20)
    graph = agent.metaclaw.learning_graph()
    assert set(graph.get_graph().nodes) == NODES
    assert "metaclaw_evolver" in graph.get_graph().draw_mermaid()
    states = [graph.invoke({"at_once": True}), graph.invoke({"at_once": True})]
    json.dumps(states)  # what LangGraph's tools show is JSON
    made = [state["generation"] for state in states if state.get("generation")]
    assert made in ([1], [])  # the learner in the background may have been faster with the verdict
    assert ledger_of(agent).generation("default") == 1
    assert stored(agent)[0].role == "consumed"


def test_more_runs_than_one_batch_are_judged_while_failures_wait(learning: Learn) -> None:
    judge = says(-1)
    settings = {"support_wait": 3600, "support_size": 1000}
    agent = learning(talk(), judge=judge, evolver=StandInEvolver(), evolving=settings)
    graph = agent.metaclaw.learning_graph()
    agent.metaclaw._learner.close(10)  # only this graph judges now
    for number in range(20):
        agent.invoke(ask(f"{TASK} {number}"))
    assert len(stored(agent)) == 20
    first = graph.invoke({})
    assert (len(first["failed"]), first["look_again_in"]) == (8, 0)
    assert [len(graph.invoke({})["failed"]) for _ in range(2)] == [8, 4]


def test_opening_it_waits_for_no_judge(learning: Learn, held: Held) -> None:
    agent = learning(talk(), judge=lambda _: held())
    agent.invoke(ask(TASK))
    assert held.reached.wait(30)
    assert set(agent.metaclaw.learning_graph().get_graph().nodes) == NODES


def test_langgraph_dev_serves_what_the_project_exports(tmp_path: Path) -> None:
    home = tmp_path / "home"
    exported = json.loads((ROOT / "langgraph.json").read_text())
    file, _, name = exported["graphs"]["metaclaw_learning"].partition(":")
    exported |= {"dependencies": ["."], "graphs": {"metaclaw_learning": f"{ROOT / file}:{name}"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(exported))
    (tmp_path / "metaclaw.toml").write_text(
        f'tracing = false\nhome = "{home}"\n[retrieval]\nembedder = "{WORDS}"\n'
        "[evolving]\nsupport_wait = 3600\n"
    )
    with opened(home) as ledger:
        failure = judged(ledger, Verdict(-1.0, "human", LESSON), namespace="default")
    port = closed_port()
    process = start(tmp_path, port)
    try:
        wait_until_up(process, port, tmp_path / "log.txt")
        with get_sync_client(url=f"http://127.0.0.1:{port}") as client:
            drawn = client.assistants.get_graph("metaclaw_learning")
            assert {node["id"] for node in drawn["nodes"]} == NODES
            state: Any = client.runs.wait(None, "metaclaw_learning", input={"at_once": True})
        assert state["generation"] == 1, (state, (tmp_path / "log.txt").read_text()[-3000:])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    with opened(home) as ledger:
        assert ledger.trajectory("default", failure).role == "consumed"
