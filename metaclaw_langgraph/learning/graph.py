"""The learning graph: what runs in the background on finished runs.

    metaclaw_judge ──ok──────► metaclaw_keep       the query set
                   └─failure─► metaclaw_evolver    the support set

A run that raised or reached its recursion limit has failed; no judge is asked. Interrupted and
cancelled runs say nothing about the agent and are not judged. Everything else stays unjudged
until somebody gives a verdict (`feedback`).

It is a graph of its own, never part of the user's: a judge woven into the user's graph would not
run after an exception, and would hold up the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Outcome, Verdict
from metaclaw_langgraph.wrapping.drawing import EVOLVER, JUDGE, KEEP

__all__ = ["Judgeable", "LearningState", "build_learning_graph"]


class Judgeable(TypedDict):
    """What the judge needs to know of a finished run."""

    id: str
    outcome: Outcome
    error: str | None


class LearningState(TypedDict, total=False):
    """A batch of finished runs, and the verdicts on them by trajectory id."""

    runs: list[Judgeable]
    verdicts: Mapping[str, Verdict]


def build_learning_graph(ledger: Ledger, namespace: str) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile the learning graph of one namespace."""

    def judge(state: LearningState) -> LearningState:
        failed = [run for run in state["runs"] if run["outcome"] == "failed"]
        return {
            "verdicts": {
                run["id"]: Verdict(reward=-1.0, source="run", reason=run["error"] or "failed")
                for run in failed
            }
        }

    def store(state: LearningState, *, good: bool) -> LearningState:
        for trajectory_id, verdict in state["verdicts"].items():
            if (verdict.reward > 0) == good:
                ledger.add_verdict(namespace, trajectory_id, verdict)
        return {}

    def keep(state: LearningState) -> LearningState:
        return store(state, good=True)

    def evolver(state: LearningState) -> LearningState:
        return store(state, good=False)

    def route(state: LearningState) -> list[str]:
        rewards = [verdict.reward for verdict in state["verdicts"].values()]
        routes = [KEEP] if any(r > 0 for r in rewards) else []
        return [*routes, EVOLVER] if any(r <= 0 for r in rewards) else routes or [END]

    builder = StateGraph(LearningState)
    builder.add_node(JUDGE, judge)
    builder.add_node(KEEP, keep)
    builder.add_node(EVOLVER, evolver)
    builder.add_edge(START, JUDGE)
    builder.add_conditional_edges(JUDGE, route, [KEEP, EVOLVER, END])
    builder.add_edge(KEEP, END)
    builder.add_edge(EVOLVER, END)
    return builder.compile(name="metaclaw_learning")
