"""People's feedback on traces becomes verdicts in the ledger.

MLflow can search for traces that have feedback of a given name, but not for all that have any, nor
for what is new. It can count, though: feedback by name and value, in one query. So as long as the
counts are the same nothing is read; when they change, the traces with feedback of these names are
looked through, newest first, some pages at a time. A server that cannot count is looked through
as a whole, from time to time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.tracing.context import Context

if TYPE_CHECKING:
    from mlflow.entities import Assessment, TraceInfo

__all__ = ["Assessments"]

_PAGE = 50
_PAGES = 4
# A text that was edited without its value changes no count.
_ANYWAY = 60.0
_log = logging.getLogger("metaclaw.exporter")

Counts: TypeAlias = Mapping[tuple[str, str], float]


class Assessments:
    """The duty. It keeps no record of its own: the ledger knows where each verdict came from."""

    name = "feedback"
    every = 5.0

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._judge = FeedbackJudge(names=context.order.feedback_names or None)
        self._counts: Counts | None = None
        self._can_count = True
        self._look_again = 0.0
        self._searches: deque[tuple[str, str | None]] = deque()

    def pending(self) -> bool:
        return False

    def run(self) -> bool:
        experiment_id = self._context.find_experiment("runs")
        if experiment_id is None:
            return False
        if not self._searches:
            self._plan(experiment_id)
        taken = 0
        for _ in range(_PAGES):
            if self._searches:
                taken += self._search(experiment_id, *self._searches.popleft())
        return bool(taken or self._searches)

    def _plan(self, experiment_id: str) -> None:
        """What to look through, if there is a reason to look."""
        counts = self._count(experiment_id)
        now = self._clock()
        if now < self._look_again and counts == self._counts:
            return
        self._counts, self._look_again = counts, now + _ANYWAY
        self._searches.extend((text, None) for text in _filters(counts))

    def _search(self, experiment_id: str, wanted: str, token: str | None) -> int:
        """Take the feedback on one page of traces; how many verdicts were new."""
        page = self._context.client.search_traces(
            locations=[experiment_id],
            filter_string=wanted or None,
            max_results=_PAGE,
            order_by=["timestamp_ms DESC"],
            page_token=token,
            include_spans=False,
        )
        if page.token:
            self._searches.appendleft((wanted, page.token))
        return sum(self._take(trace.info) for trace in page)

    def _take(self, trace: TraceInfo) -> int:
        found = [
            one.to_dictionary()  # type: ignore[no-untyped-call]
            for one in trace.assessments
            if _on_this_run(one)
        ]
        trajectory_id = self._trajectory(trace) if found else None
        if trajectory_id is None:
            return 0
        context = self._context
        known = {one.origin for one in context.ledger.verdicts(context.namespace, trajectory_id)}
        new = [one for one in self._judge.of_assessments(found) if one.origin not in known]
        for verdict in new:
            try:
                context.ledger.add_verdict(context.namespace, trajectory_id, verdict)
            except NotFoundError as error:
                _log.info("feedback on trace %s: %s", trace.trace_id, error)
                return 0
        return len(new)

    def _trajectory(self, trace: TraceInfo) -> str | None:
        """By the ledger; by its tag when the trace is a second one of the same run."""
        found = self._context.ledger.find_by_trace(self._context.namespace, trace.trace_id)
        if found is None and trace.tags.get("metaclaw.namespace") == self._context.namespace:
            return trace.tags.get("metaclaw.trajectory")
        return found

    def _count(self, experiment_id: str) -> Counts | None:
        """How much feedback there is, by name and value; None when the server cannot say."""
        if not self._can_count:
            return None
        try:
            return _query_counts(self._context.order.mlflow_uri, experiment_id)
        except Exception as error:
            self._context.require_reachable(error)
            _log.info("MLflow cannot count feedback, traces are looked through: %s", error)
            self._can_count = False
            return None


def _on_this_run(one: Assessment) -> bool:
    """Feedback, not an expected answer; on the run, not on the conversation that it is part of."""
    from mlflow.tracing.constant import TraceMetadataKey

    return one.feedback is not None and TraceMetadataKey.TRACE_SESSION not in (one.metadata or {})


def _filters(counts: Counts | None) -> Sequence[str]:
    names = sorted({name for name, _ in counts or ()})
    # A name that cannot be quoted can only be found among all.
    if counts is None or any("`" in name or '"' in name for name in names):
        return [""]
    return [f"feedback.`{name}` IS NOT NULL" for name in names]


def _query_counts(uri: str, experiment_id: str) -> Counts:
    from mlflow.entities.trace_metrics import AggregationType, MetricAggregation, MetricViewType
    from mlflow.tracing.client import TracingClient

    points = TracingClient(uri).store.query_trace_metrics(
        experiment_ids=[experiment_id],
        view_type=MetricViewType.ASSESSMENTS,
        metric_name="assessment_count",
        aggregations=[MetricAggregation(AggregationType.COUNT)],
        dimensions=["assessment_name", "assessment_value"],
        filters=["assessment.type = 'feedback'"],
    )
    return {
        (str(one.dimensions["assessment_name"]), str(one.dimensions["assessment_value"])): float(
            next(iter(one.values.values()))
        )
        for one in points
    }
