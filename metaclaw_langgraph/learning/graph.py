"""The learning graph: what runs in the background on stored runs.

    metaclaw_judge ──no failure waits──► metaclaw_keep       skills on probation
                   └─failures wait─────► metaclaw_evolver    new skills; skills on probation

It is a graph of its own, never part of the user's: a judge woven into the user's graph would not
run after an exception, and would hold up the answer. Its state is JSON, so that it can be looked at
in LangGraph's own tools; `langgraph.json` names it as `metaclaw_learning`.
"""

from __future__ import annotations

import asyncio
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
    judge_rests: bool
    """Whether runs wait for a judge that is left alone for a while, because it hangs."""
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

    def failures_wait(self) -> bool:
        """Whether there is a failure that an evolution could be made from."""

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
        """Failures that wait go first, whenever they were judged."""
        return EVOLVER if lessons.failures_wait() else KEEP

    builder = StateGraph(LearningState)
    builder.add_node(JUDGE, judge)
    builder.add_node(KEEP, keep)
    builder.add_node(EVOLVER, evolver)
    builder.add_edge(START, JUDGE)
    builder.add_conditional_edges(JUDGE, route, [KEEP, EVOLVER])
    builder.add_edge(KEEP, END)
    builder.add_edge(EVOLVER, END)
    return builder.compile(name="metaclaw_learning")


async def learning_graph() -> CompiledStateGraph[Any, Any, Any, Any]:
    """The learning graph of the configured namespace, for LangGraph's own server."""
    from metaclaw_langgraph.runtime import runtime_for

    # To open the stores blocks, and the server calls this in its event loop.
    return await asyncio.to_thread(lambda: runtime_for().learning_graph())
