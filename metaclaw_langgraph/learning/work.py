"""One piece of the learner's work: a pass of the learning graph, when there is a reason for one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from langgraph.graph.state import CompiledStateGraph
from langsmith import tracing_context

from metaclaw_langgraph.learning.graph import LearningState, build_learning_graph
from metaclaw_langgraph.learning.learner import Pass
from metaclaw_langgraph.learning.lease import leased
from metaclaw_langgraph.learning.lessons import NamespaceLessons
from metaclaw_langgraph.ledger import Ledger

__all__ = ["LearningWork"]

_HELD_ELSEWHERE = 1.0


class LearningWork:
    """Passes over one namespace; `Learner` calls it."""

    def __init__(
        self, ledger: Ledger, namespace: str, lessons: NamespaceLessons, told: Callable[[], None]
    ) -> None:
        """`told` is called when there is something new to show in MLflow."""
        self.graph: CompiledStateGraph[Any, Any, Any, Any] = build_learning_graph(lessons)
        self._ledger = ledger
        self._namespace = namespace
        self._lessons = lessons
        self._told = told
        self._seen = -1
        self._due = 0.0

    def __call__(self, at_once: bool) -> Pass:
        """One pass, if there may be something to do."""
        latest = self._ledger.last_verdict(self._namespace)
        wait = self._due - time.monotonic()
        new = latest != self._seen or self._lessons.unjudged()
        if not (at_once or new or wait <= 0):
            return Pass(None if self._due == float("inf") else wait)
        with leased(self._ledger, self._namespace, "learning") as mine:
            if not mine:
                return Pass(_HELD_ELSEWHERE, mine=False)
            # What learning does is not the user's to see in their own traces.
            with tracing_context(enabled=False):
                state = cast(LearningState, self.graph.invoke({"at_once": at_once}))
        again = state.get("look_again_in")
        if latest != self._seen or state.get("generation") or state.get("retired"):
            self._told()
        self._seen = latest
        self._due = float("inf") if again is None else time.monotonic() + again
        failed = state.get("evolver_failed", False) or state.get("judge_rests", False)
        return Pass(again, failed=failed)
