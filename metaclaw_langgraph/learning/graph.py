"""The learning graph: what runs in the background on stored runs.

    metaclaw_judge ──passed──► metaclaw_keep       the query set; skills on probation
                   └─failed──► metaclaw_evolver    the support set; new skills

It is a graph of its own, never part of the user's: a judge woven into the user's graph would not
run after an exception, and would hold up the answer. Its state is JSON, so that it can be looked at
in LangGraph's own tools; `langgraph.json` names it as `metaclaw_learning`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from metaclaw_langgraph.wrapping.drawing import EVOLVER, JUDGE, KEEP

__all__ = ["LearningState", "Lessons", "build_learning_graph", "learning_graph"]


class LearningState(TypedDict, total=False):
    """One pass over what is stored."""

    at_once: bool
    """Given: whether to evolve now, without waiting for more failures."""
    passed: list[str]
    """Trajectories that were judged good in this pass."""
    failed: list[str]
    """Trajectories that were judged bad in this pass."""
    kept: list[str]
    """Skills whose probation ended well."""
    retired: list[str]
    """Skills whose probation ended badly."""
    generation: int | None
    """The generation that was made, if one was."""
    drafts: list[dict[str, str]]
    """What became of each draft."""
    evolver_failed: bool
    """Whether the evolver was asked and failed; the failures then wait."""
    look_again_in: float | None
    """Seconds until what waits may be due; 0 when there is more to do now."""


class Lessons(Protocol):
    """What the nodes do."""

    def judge(self) -> LearningState:
        """Judge what is unjudged."""

    def keep(self) -> LearningState:
        """Decide on skills on probation."""

    def evolve(self, at_once: bool) -> LearningState:
        """Make skills of the failures, if it is time."""


def build_learning_graph(lessons: Lessons) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile the learning graph of one namespace."""

    def judge(state: LearningState) -> LearningState:
        return lessons.judge()

    def keep(state: LearningState) -> LearningState:
        return lessons.keep()

    def evolver(state: LearningState) -> LearningState:
        found = lessons.evolve(state.get("at_once", False))
        waits = (state.get("look_again_in"), found.get("look_again_in"))
        soonest = min((wait for wait in waits if wait is not None), default=None)
        return {**found, "look_again_in": soonest}

    def route(state: LearningState) -> str:
        """A pass that only found good runs has nothing to evolve from."""
        return KEEP if state.get("passed") and not state.get("failed") else EVOLVER

    builder = StateGraph(LearningState)
    builder.add_node(JUDGE, judge)
    builder.add_node(KEEP, keep)
    builder.add_node(EVOLVER, evolver)
    builder.add_edge(START, JUDGE)
    builder.add_conditional_edges(JUDGE, route, [KEEP, EVOLVER])
    builder.add_edge(KEEP, END)
    builder.add_edge(EVOLVER, END)
    return builder.compile(name="metaclaw_learning")


def learning_graph() -> CompiledStateGraph[Any, Any, Any, Any]:
    """The learning graph of the configured namespace, for LangGraph's own server."""
    from metaclaw_langgraph.runtime import runtime_for

    return runtime_for().learning_graph()
