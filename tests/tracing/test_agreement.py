"""The judge's agreement with people and verifiers: one run, written to when the figures change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.tracing.agreement import AgreementRun
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.types import Verdict
from tests.tracing.conftest import NAMESPACE, trajectory


def judged(context: Context, id: str, judge: float, person: float) -> None:
    context.ledger.add_trajectories([trajectory(id)])
    context.ledger.add_verdict(NAMESPACE, id, Verdict(judge, "judge"))
    context.ledger.add_verdict(NAMESPACE, id, Verdict(person, "human"))


def runs(context: Context) -> list[Any]:
    return list(context.client.search_runs([context.experiment("judge")]))


def history(context: Context, run: Any, name: str) -> list[tuple[int, float]]:
    found = context.client.get_metric_history(run.info.run_id, name)
    return [(one.step, one.value) for one in found]


def test_one_run_that_grows(context: Context, tmp_path: Path) -> None:
    duty = AgreementRun(context)
    for number, (judge, person) in enumerate([(1, 1), (1, -1), (-1, -1)]):
        judged(context, f"t-{number}", judge, person)
    assert duty.run()
    assert not duty.run()
    judged(context, "t-3", -1, -0.5)
    assert duty.run()
    (run,) = runs(context)
    assert run.info.run_name == "judge agreement"
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {
        "judge/pairs": 4,
        "judge/agreement": 0.75,
        "judge/kappa": pytest.approx(0.5),
    }
    assert history(context, run, "judge/pairs") == [(3, 3), (4, 4)]
    assert history(context, run, "judge/agreement") == [(3, pytest.approx(2 / 3)), (4, 0.75)]

    path = context.client.download_artifacts(run.info.run_id, "confusion.json", str(tmp_path))
    assert json.loads(Path(path).read_text()) == {
        "columns": ["the judge said", "it was bad", "it was neither", "it was good"],
        "data": [["bad", 2, 0, 0], ["neither", 0, 0, 0], ["good", 1, 0, 1]],
    }
    shown = json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert shown == [{"path": "confusion.json", "type": "table"}]
    about = run.data.tags["mlflow.note.content"]
    assert "Of 4 runs" in about
    assert "75.0%" in about
    assert "| good | 1 | 0 | 1 |" in about


def test_the_same_figures_are_not_written_again(context: Context) -> None:
    judged(context, "t-1", 1, 1)
    judged(context, "t-2", -1, -1)
    assert AgreementRun(context).run()
    assert not AgreementRun(context).run()
    (run,) = runs(context)
    assert history(context, run, "judge/kappa") == [(2, 1.0)]


def test_a_corrected_verdict_changes_them(context: Context) -> None:
    judged(context, "t-1", 1, 1)
    duty = AgreementRun(context)
    assert duty.run()
    context.ledger.add_verdict(NAMESPACE, "t-1", Verdict(-1, "human"))
    assert duty.run()
    (run,) = runs(context)
    assert history(context, run, "judge/agreement") == [(1, 1.0), (1, 0.0)]


def test_where_chance_agrees_always_there_is_no_kappa(context: Context) -> None:
    judged(context, "t-1", 1, 1)
    assert AgreementRun(context).run()
    (run,) = runs(context)
    assert "judge/kappa" not in run.data.metrics
    assert "not defined" in run.data.tags["mlflow.note.content"]


def test_without_pairs_nothing_is_made(context: Context) -> None:
    context.ledger.add_trajectories([trajectory("t-1")])
    context.ledger.add_verdict(NAMESPACE, "t-1", Verdict(1, "judge"))
    assert not AgreementRun(context).run()
    assert context.find_experiment("judge") is None


def test_a_run_that_was_begun_is_finished(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(context, "t-1", 1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(context.client, "log_dict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            AgreementRun(context).run()
    assert AgreementRun(context).run()
    (run,) = runs(context)
    assert run.info.status == "FINISHED"


def test_they_are_computed_only_when_there_is_a_new_verdict(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(context, "t-1", 1, 1)
    asked: list[str] = []
    right = context.ledger.agreements

    def agreements(namespace: str) -> Any:
        asked.append(namespace)
        return right(namespace)

    monkeypatch.setattr(context.ledger, "agreements", agreements)
    duty = AgreementRun(context)
    with monkeypatch.context() as patch:
        patch.setattr(context.client, "log_dict", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            duty.run()
    assert duty.run()
    assert len(asked) == 2
    assert not duty.run()
    assert len(asked) == 2
    context.ledger.add_trajectories([trajectory("t-2")])
    context.ledger.add_verdict(NAMESPACE, "t-2", Verdict(1, "judge"))
    assert not duty.run()
    assert not duty.run()
    assert len(asked) == 3
