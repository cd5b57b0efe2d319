"""Pending trajectories become MLflow traces."""

from __future__ import annotations

from metaclaw_langgraph.errors import error_text
from metaclaw_langgraph.tracing.context import Context

__all__ = ["Traces"]

_BATCH = 20


class Traces:
    """The duty; MLflow is asked for each trace, for it only logs when an export failed."""

    name = "traces"
    every = 0.0

    def __init__(self, context: Context) -> None:
        self._context = context

    def pending(self) -> bool:
        return bool(self._context.ledger.untraced(self._context.namespace, limit=1))

    def run(self) -> bool:
        context = self._context
        batch = context.ledger.untraced(context.namespace, limit=_BATCH)
        if not batch:
            return False
        experiment_id = context.experiment("runs")
        for trajectory in batch:
            from metaclaw_langgraph.tracing.replay import replay

            try:
                trace_id = replay(trajectory, experiment_id)
                self._check(trace_id)
            except Exception as error:
                context.require_reachable(error)
                context.count("failed", error_text(error))
                context.ledger.set_trace(context.namespace, trajectory.id, None, state="failed")
            else:
                context.ledger.set_trace(context.namespace, trajectory.id, trace_id)
        return True

    def _check(self, trace_id: str) -> None:
        from mlflow.tracing.client import TracingClient

        TracingClient(self._context.order.mlflow_uri).get_trace_info(trace_id)
