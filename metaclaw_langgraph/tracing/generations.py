"""Each generation becomes an MLflow run: what changed, on what evidence, as people can read it.

The run is found again by its tags. So an exporter that was killed before the ledger knew of the
run does not leave a second one: the next exporter finishes the first.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from metaclaw_langgraph.ledger import GenerationRecord
from metaclaw_langgraph.skills.diff import skill_diffs
from metaclaw_langgraph.skills.format import SKILL_FILE, render_skill
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.tracing.figures import figures, name_of
from metaclaw_langgraph.tracing.readable import fitting, note
from metaclaw_langgraph.types import Json

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param

__all__ = ["GenerationRuns"]

_BATCH = 10
_TRIES = 3
_MOST_FILES = 100
_MOST_METRICS = 500
_MOST_PARAMS = 50
_LONGEST_PARAM = 500
_LONGEST_DIFF = 1_000_000


class GenerationRuns:
    """The duty. One generation that MLflow refuses does not keep the others back."""

    name = "generations"
    every = 5.0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tries: Counter[int] = Counter()

    def pending(self) -> bool:
        return bool(self._context.ledger.unexported_generations(self._context.namespace, 1))

    def run(self) -> bool:
        context = self._context
        records = context.ledger.unexported_generations(context.namespace, _BATCH)
        problem: Exception | None = None
        for record in records:
            try:
                run_id = self._export(record)
            except Exception as error:
                context.require_reachable(error)
                problem = error
                self._failed(record.generation)
            else:
                context.ledger.set_generation_run(context.namespace, record.generation, run_id)
        if problem is not None:
            raise problem
        return bool(records)

    def _failed(self, generation: int) -> None:
        self._tries[generation] += 1
        if self._tries[generation] >= _TRIES:
            ledger, namespace = self._context.ledger, self._context.namespace
            ledger.set_generation_run(namespace, generation, None, state="failed")

    def _export(self, record: GenerationRecord) -> str:
        """Make the run, or finish the one that is there; its id."""
        client = self._context.client
        diffs = skill_diffs(
            self._context.ledger,
            self._context.namespace,
            record.generation - 1,
            record.generation,
        )
        at = round(record.at.timestamp() * 1000)
        found = self._figures(record)
        run_id = self._run(record.generation, at)
        client.log_batch(run_id, _metrics(found, record.generation, at), _params(record))
        diff = fitting(diffs, _LONGEST_DIFF)
        client.set_tag(run_id, "mlflow.note.content", note(record, found, diff))
        page = note(record, found, diff, most=2 * _LONGEST_DIFF)
        with tempfile.TemporaryDirectory(prefix="metaclaw-generation-") as folder:
            # MLflow's UI shows the page, but not a file whose name ends in .diff.
            self._write(record, Path(folder), {"skills.diff": diff, "changes.md": page})
            client.log_artifacts(run_id, folder)
        client.set_terminated(run_id, "FINISHED", at)
        return run_id

    def _run(self, generation: int, at: int) -> str:
        tags = {
            "metaclaw.namespace": self._context.namespace,
            "metaclaw.generation": str(generation),
        }
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        experiment_id = self._context.experiment("skills")
        found = self._context.client.search_runs([experiment_id], wanted, max_results=1)
        if found:
            return str(found[0].info.run_id)
        name = f"generation {generation}"
        made = self._context.client.create_run(experiment_id, at, tags, name)
        return str(made.info.run_id)

    def _figures(self, record: GenerationRecord) -> dict[str, float]:
        ledger, namespace = self._context.ledger, self._context.namespace
        evolutions = ledger.evolutions(namespace, generation=record.generation)
        return {
            "skills": len(ledger.members(namespace, record.generation)),
            "added": len(record.added),
            "removed": len(record.removed),
            "consumed failures": sum(len(one.consumed) for one in evolutions),
            **figures(record.details),
        }

    def _write(self, record: GenerationRecord, folder: Path, texts: Mapping[str, str]) -> None:
        evidence = json.dumps(record.details, indent=2, ensure_ascii=False, default=dict)
        skills = self._context.ledger.skills(self._context.namespace, record.added[:_MOST_FILES])
        files = {f"skills/{one.name}/{SKILL_FILE}": render_skill(one) for one in skills.values()}
        for name, text in {**texts, "evidence.json": evidence, **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _metrics(found: Mapping[str, float], step: int, at: int) -> list[Metric]:
    from mlflow.entities import Metric

    # Always the same time: written twice, it is the same metric.
    return [Metric(name, value, at, step) for name, value in [*found.items()][:_MOST_METRICS]]


def _params(record: GenerationRecord) -> list[Param]:
    from mlflow.entities import Param

    scalars: dict[str, Json] = {"reason": record.reason}
    for key, value in record.details.items():
        if isinstance(value, str | bool | int | float):
            scalars.setdefault(name_of(key), value)
    return [Param(key, str(v)[:_LONGEST_PARAM]) for key, v in [*scalars.items()][:_MOST_PARAMS]]
