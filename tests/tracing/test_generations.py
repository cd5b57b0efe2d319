"""Each generation is an MLflow run that says what changed and why."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Evolution, Ledger
from metaclaw_langgraph.skills.diff import diff_generations
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.tracing import generations, readable
from metaclaw_langgraph.tracing.context import Context, Order
from metaclaw_langgraph.tracing.generations import GenerationRuns
from metaclaw_langgraph.types import Verdict
from tests.tracing.conftest import NAMESPACE, Commit, skill, trajectory
from tests.wrapping.support import run_python

GATE = {
    "greet": {
        "won": True,
        "reason": "more wins than losses",
        "failures": {
            "pairs": 6,
            "wins": 4,
            "losses": 1,
            "pass_rate_with": 5 / 6,
            "pass_rate_without": 2 / 6,
        },
        "successes": {
            "pairs": 0,
            "wins": 0,
            "losses": 0,
            "pass_rate_with": None,
            "pass_rate_without": None,
        },
    },
    "new": {
        "won": True,
        "failures": {
            "pairs": 2,
            "wins": 1,
            "losses": 0,
            "pass_rate_with": 1.0,
            "pass_rate_without": 0.5,
        },
    },
}
WHY = {"greet": "people | said so", "new": "it was missing"}


def runs(context: Context) -> list[Any]:
    """All runs of the experiment, the latest generation first."""
    experiment = context.client.get_experiment_by_name(f"metaclaw/{NAMESPACE}/skills")
    assert experiment is not None
    return list(context.client.search_runs([experiment.experiment_id]))


def artifact(context: Context, run: Any, path: str, to: Path) -> str:
    return Path(context.client.download_artifacts(run.info.run_id, path, str(to))).read_text()


def test_a_run_says_what_changed_and_on_what_evidence(
    context: Context, commit: Commit, tmp_path: Path
) -> None:
    commit(["greet@1", "old@1"])
    failed = [trajectory("t-1", outcome="failed"), trajectory("t-2", outcome="failed")]
    context.ledger.add_trajectories(failed)
    commit(
        ["greet@2", "new@1"],
        ["greet@1", "old@1"],
        reason="two failures",
        details={"source": "evolution", "evolver": "offline", "gate": GATE, "skills": WHY},
        evolution=Evolution("e-1", "offline", {"t-1": "learnt", "t-2": "learnt"}),
    )
    duty = GenerationRuns(context)
    assert duty.pending()
    assert duty.run()
    assert not duty.pending()
    assert not duty.run()

    run, first = runs(context)
    second, one = context.ledger.generations(NAMESPACE)
    assert (second.run_id, one.run_id) == (run.info.run_id, first.info.run_id)
    assert (first.info.run_name, run.info.run_name) == ("generation 1", "generation 2")
    assert run.info.start_time == round(second.at.timestamp() * 1000)
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "reason": "two failures",
        "source": "evolution",
        "evolver": "offline",
    }
    assert run.data.tags["metaclaw.namespace"] == NAMESPACE
    assert run.data.tags["metaclaw.generation"] == "2"
    assert run.data.metrics == {
        "skills": 2,
        "added": 2,
        "removed": 2,
        "consumed failures": 2,
        "gate/pairs": 8,
        "gate/wins": 5,
        "gate/losses": 1,
        "gate/pass_rate_with": 7 / 8,
        "gate/pass_rate_without": 3 / 8,
        "gate/greet/won": 1,
        "gate/greet/failures/pairs": 6,
        "gate/greet/failures/wins": 4,
        "gate/greet/failures/losses": 1,
        "gate/greet/failures/pass_rate_with": 5 / 6,
        "gate/greet/failures/pass_rate_without": 2 / 6,
        "gate/greet/successes/pairs": 0,
        "gate/greet/successes/wins": 0,
        "gate/greet/successes/losses": 0,
        "gate/new/won": 1,
        "gate/new/failures/pairs": 2,
        "gate/new/failures/wins": 1,
        "gate/new/failures/losses": 0,
        "gate/new/failures/pass_rate_with": 1,
        "gate/new/failures/pass_rate_without": 0.5,
    }
    difference = diff_generations(context.ledger, NAMESPACE, 1, 2)
    assert artifact(context, run, "skills.diff", tmp_path) == difference
    assert json.loads(artifact(context, run, "evidence.json", tmp_path)) == second.details
    for id in ("greet@2", "new@1"):
        path = f"skills/{skill(id).name}/SKILL.md"
        assert artifact(context, run, path, tmp_path) == render_skill(skill(id))
    about = run.data.tags["mlflow.note.content"]
    assert about.startswith("> two failures\n")
    assert "| added | `greet@2`, `new@1` |" in about
    assert "| greet | people \\| said so |" in about
    assert "| gate/wins | 5 |" in about
    assert f"```diff\n{difference.rstrip()}\n```" in about
    assert artifact(context, run, "changes.md", tmp_path) == about


def test_probations_are_figures_too(context: Context, commit: Commit) -> None:
    evidence = {"with_passed": 3, "with_failed": 5, "without_passed": 4, "without_failed": 0}
    commit(["greet@1"])
    commit([], ["greet@1"], details={"probation": {"greet@1": {**evidence, "e_hurts": 11.5}}})
    assert GenerationRuns(context).run()
    found = runs(context)[0].data.metrics
    assert {name: value for name, value in found.items() if name.startswith("probation/")} == {
        "probation/runs_with": 8,
        "probation/pass_rate_with": 3 / 8,
        "probation/runs_without": 4,
        "probation/pass_rate_without": 1,
        **{f"probation/greet v1/{key}": value for key, value in evidence.items()},
        "probation/greet v1/e_hurts": 11.5,
    }


@pytest.mark.parametrize("place", ["log_batch", "log_artifacts", "set_generation_run"])
def test_killed_between_the_run_and_the_mark(
    context: Context, commit: Commit, order: Order, place: str, tmp_path: Path
) -> None:
    commit(["greet@1"], details={"gate": GATE})
    code = f"""
import os, signal, sys
from mlflow import MlflowClient
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.tracing.context import Context, Order
from metaclaw_langgraph.tracing.generations import GenerationRuns
def die(*args, **others):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(Ledger if {place!r} == "set_generation_run" else MlflowClient, {place!r}, die)
order = Order({NAMESPACE!r}, *sys.argv[1:], {{}}, 1)
with Ledger.open(order.ledger_url) as ledger:
    GenerationRuns(Context(order, ledger)).run()
"""
    done = run_python(code, order.home, order.ledger_url, order.mlflow_uri)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (begun,) = runs(context)
    assert context.ledger.generations(NAMESPACE)[0].run_id is None

    assert GenerationRuns(context).run()
    (run,) = runs(context)
    assert run.info.run_id == begun.info.run_id
    assert context.ledger.generations(NAMESPACE)[0].run_id == run.info.run_id
    assert run.info.status == "FINISHED"
    assert len(context.client.get_metric_history(run.info.run_id, "gate/wins")) == 1
    assert "+Do greet." in artifact(context, run, "skills.diff", tmp_path)


def test_one_that_mlflow_refuses_does_not_keep_the_others_back(
    context: Context, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 3):
        commit([f"skill-{number}@1"])
    right = readable.note

    def note(record: Any, *others: Any, **options: Any) -> str:
        if record.generation == 2:
            raise ValueError("not this one")
        return right(record, *others, **options)

    monkeypatch.setattr(generations, "note", note)
    duty = GenerationRuns(context)
    for _ in range(generations._TRIES):
        assert duty.pending()
        with pytest.raises(ValueError, match="not this one"):
            duty.run()
    assert not duty.pending()
    found = {
        one.generation: one.run_id is not None for one in context.ledger.generations(NAMESPACE)
    }
    assert found == {1: True, 2: False, 3: True}


def test_what_it_consumed_is_told_however_much_came_after(context: Context, commit: Commit) -> None:
    context.ledger.add_trajectories([trajectory("t-1", outcome="failed")])
    commit(["greet@1"], evolution=Evolution("e-1", "offline", {"t-1": "learnt"}))
    for number in range(250):
        context.ledger.record_evolution(NAMESPACE, Evolution(f"later-{number}", "offline", {}))
    assert GenerationRuns(context).run()
    (run,) = runs(context)
    assert run.data.metrics["consumed failures"] == 1


def test_a_large_change_is_shown_in_part(
    context: Context, commit: Commit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generations, "_LONGEST_DIFF", 500)
    monkeypatch.setattr(generations, "_MOST_FILES", 3)
    commit([f"skill-{number:02}@1" for number in range(40)])
    assert GenerationRuns(context).run()
    (run,) = runs(context)
    shown = artifact(context, run, "skills.diff", tmp_path)
    assert len(shown) < 600
    assert shown.endswith(f"# {40 - shown.count('+++')} more skills changed\n")
    files = context.client.list_artifacts(run.info.run_id, "skills")
    assert [file.path for file in files] == [f"skills/skill-{number:02}" for number in range(3)]
    assert len(run.data.tags["mlflow.note.content"]) < 5000


def test_a_verdict_does_not_matter_here(context: Context, ledger: Ledger) -> None:
    """No generation, no experiment: nothing is made for nothing."""
    ledger.add_trajectories([trajectory("t-1")])
    ledger.add_verdict(NAMESPACE, "t-1", Verdict(1, "human"))
    assert not GenerationRuns(context).run()
    assert context.find_experiment("skills") is None
