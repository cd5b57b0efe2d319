"""How far the judge agrees with people and verifiers: one MLflow run that grows with the pairs.

The run says in a tag which figures it shows; it is written to only when they are others. They are
computed only when there is a new verdict.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclaw_langgraph.judging.agreement import SIGNS, AgreementReport, agreement
from metaclaw_langgraph.ledger import Agreement
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.tracing.readable import table

if TYPE_CHECKING:
    from mlflow.entities import Metric

__all__ = ["AgreementRun"]

_NAME = "judge agreement"
_SHOWN = "metaclaw.agreement"
_CONFUSION = "confusion.json"
_WORDS = {-1: "bad", 0: "neither", 1: "good"}


class AgreementRun:
    """The duty."""

    name = "agreement"
    every = 5.0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pairs: Sequence[Agreement] = []
        self._seen = 0

    def pending(self) -> bool:
        return False

    def run(self) -> bool:
        context = self._context
        latest = context.ledger.last_verdict(context.namespace)
        if latest == self._seen:
            return False
        pairs = context.ledger.agreements(context.namespace)
        changed = pairs != self._pairs and self._show(agreement(pairs))
        # Only now: what could not be shown is tried again.
        self._pairs, self._seen = pairs, latest
        return changed

    def _show(self, report: AgreementReport) -> bool:
        client = self._context.client
        run_id, shown = self._run()
        figures = json.dumps(report.to_json(), sort_keys=True)
        mark = hashlib.sha256(figures.encode()).hexdigest()[:16]
        if shown == mark:
            return False
        now = round(time.time() * 1000)
        client.log_batch(run_id, _metrics(report, now))
        client.log_dict(run_id, {"columns": _head(), "data": _rows(report)}, _CONFUSION)
        client.log_dict(run_id, report.to_json(), "agreement.json")
        # So that the UI shows the one as a table.
        tables = json.dumps([{"path": _CONFUSION, "type": "table"}])
        client.set_tag(run_id, "mlflow.loggedArtifacts", tables)
        client.set_tag(run_id, "mlflow.note.content", _note(report))
        client.set_terminated(run_id, "FINISHED", now)
        client.set_tag(run_id, _SHOWN, mark)
        return True

    def _run(self) -> tuple[str, str | None]:
        """The run, and the figures that it shows."""
        tags = {"metaclaw.namespace": self._context.namespace, "metaclaw.run": _NAME}
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        experiment_id = self._context.experiment("judge")
        client = self._context.client
        for run in client.search_runs([experiment_id], wanted, max_results=1):
            return str(run.info.run_id), run.data.tags.get(_SHOWN)
        made = client.create_run(experiment_id, tags=tags, run_name=_NAME)
        return str(made.info.run_id), None


def _metrics(report: AgreementReport, now: int) -> list[Metric]:
    from mlflow.entities import Metric

    figures = {
        "judge/kappa": report.kappa,
        "judge/agreement": report.observed,
        "judge/pairs": report.n,
    }
    return [
        Metric(name, float(value), now, report.n)
        for name, value in figures.items()
        if value is not None
    ]


def _head() -> list[str]:
    return ["the judge said", *(f"it was {_WORDS[sign]}" for sign in SIGNS)]


def _rows(report: AgreementReport) -> list[list[str | int]]:
    return [[_WORDS[j], *(report.confusion[j, r] for r in SIGNS)] for j in SIGNS]


def _note(report: AgreementReport) -> str:
    """What MLflow shows at the top of the run."""
    kappa = "not defined" if report.kappa is None else f"{report.kappa:.3f}"
    same = "nothing" if report.observed is None else f"{report.observed:.1%}"
    rows = [[str(cell) for cell in row] for row in _rows(report)]
    return (
        f"Of {report.n} runs that the judge and also a person or a verifier have judged, they"
        f" agree on {same}. Cohen's kappa, which is 0 for agreement by chance: {kappa}.\n\n"
        f"{table(_head(), rows)}\n"
    )
