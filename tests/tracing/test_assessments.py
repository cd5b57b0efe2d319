"""Feedback that people give on a trace in MLflow becomes their verdict on the run, once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.tracing import assessments
from metaclaw_langgraph.tracing.assessments import Assessments
from metaclaw_langgraph.tracing.context import Context, Order
from metaclaw_langgraph.tracing.launcher import ExporterLauncher
from metaclaw_langgraph.types import Verdict
from tests.tracing.conftest import NAMESPACE, Traced, trajectory

Asked = list[dict[str, Any]]


def give(trace_id: str, value: Any, who: str = "ann", kind: str = "HUMAN", **others: Any) -> str:
    """What a thumb in MLflow's UI writes; its id."""
    import mlflow
    from mlflow.entities import AssessmentSource

    source = AssessmentSource(source_type=kind, source_id=who)
    name = others.pop("name", "User feedback")
    made = mlflow.log_feedback(trace_id=trace_id, name=name, value=value, source=source, **others)
    assert made.assessment_id is not None
    return made.assessment_id


def verdicts(context: Context, id: str) -> list[tuple[float, str, str, str | None]]:
    found = context.ledger.verdicts(NAMESPACE, id)
    return [(one.reward, one.source, one.reason, one.author) for one in found]


@pytest.fixture
def asked(context: Context, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The searches for traces that were made."""
    made: Asked = []
    right = context.client.search_traces

    def search(**asked: Any) -> Any:
        made.append(asked)
        return right(**asked)

    monkeypatch.setattr(context.client, "search_traces", search)
    return made


def test_a_thumb_becomes_a_human_verdict_and_is_taken_once(
    context: Context, traced: Traced
) -> None:
    give(traced("t-1"), False, rationale="that is not the price")
    traced("t-2")
    duty = Assessments(context)
    assert duty.run()
    expected = [(-1.0, "human", "that is not the price", "ann")]
    assert verdicts(context, "t-1") == expected
    assert context.ledger.trajectory(NAMESPACE, "t-1").role == "support"
    assert verdicts(context, "t-2") == []
    assert not duty.run()
    assert not Assessments(context).run()
    assert verdicts(context, "t-1") == expected


def test_an_override_corrects(context: Context, traced: Traced) -> None:
    import mlflow
    from mlflow.entities import AssessmentSource

    trace_id = traced("t-1")
    first = give(trace_id, True)
    duty = Assessments(context)
    assert duty.run()
    assert context.ledger.trajectory(NAMESPACE, "t-1").role == "query"
    mlflow.override_feedback(
        trace_id=trace_id,
        assessment_id=first,
        value=False,
        rationale="on second thoughts",
        source=AssessmentSource(source_type="HUMAN", source_id="bob"),
    )
    assert duty.run()
    assert verdicts(context, "t-1") == [
        (1.0, "human", "", "ann"),
        (-1.0, "human", "on second thoughts", "bob"),
    ]
    assert context.ledger.trajectory(NAMESPACE, "t-1").role == "support"


def test_an_override_that_is_found_with_what_it_overrides(context: Context, traced: Traced) -> None:
    import mlflow

    trace_id = traced("t-1")
    mlflow.override_feedback(
        trace_id=trace_id,
        assessment_id=give(trace_id, True),
        value=False,
        source=mlflow.entities.AssessmentSource(source_type="HUMAN", source_id="bob"),
    )
    assert Assessments(context).run()
    assert verdicts(context, "t-1") == [(-1.0, "human", "", "bob")]


def test_an_edit_corrects(context: Context, traced: Traced) -> None:
    import mlflow
    from mlflow.entities import Feedback

    trace_id = traced("t-1")
    first = give(trace_id, True)
    duty = Assessments(context)
    assert duty.run()
    mlflow.update_assessment(trace_id, first, Feedback(name="User feedback", value=False))
    assert duty.run()
    assert [one[0] for one in verdicts(context, "t-1")] == [1.0, -1.0]


def test_what_is_no_persons_feedback_on_the_run_is_left_alone(
    context: Context, traced: Traced
) -> None:
    import mlflow

    trace_id = traced("t-1")
    give(trace_id, False, "gpt", "LLM_JUDGE")
    give(trace_id, False, "scorer", "CODE")
    give(trace_id, False, metadata={"mlflow.trace.session": "thread-t-1"})
    mlflow.log_expectation(trace_id=trace_id, name="answer", value="7")
    assert not Assessments(context).run()
    assert verdicts(context, "t-1") == []


def test_nothing_is_read_while_nothing_changes(
    context: Context, traced: Traced, asked: Asked
) -> None:
    now = 0.0
    trace_id = traced("t-1")
    duty = Assessments(context, clock=lambda: now)
    assert not duty.run()
    assert asked == []
    give(trace_id, True)
    assert duty.run()
    assert [one["filter_string"] for one in asked] == ["feedback.`User feedback` IS NOT NULL"]
    assert not duty.run()
    assert len(asked) == 1
    now = assessments._ANYWAY
    assert not duty.run()
    assert len(asked) == 2


def test_some_pages_at_a_time_and_all_in_the_end(
    context: Context, traced: Traced, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assessments, "_PAGE", 2)
    monkeypatch.setattr(assessments, "_PAGES", 2)
    ids = [f"t-{number}" for number in range(7)]
    for id in ids:
        give(traced(id), False, name="of `odd` name")
    duty = Assessments(context)
    assert duty.run()
    assert [bool(verdicts(context, id)) for id in ids] == [False] * 3 + [True] * 4
    assert duty.run()
    assert not duty.run()
    assert all(len(verdicts(context, id)) == 1 for id in ids)
    assert len(asked) == 4


def test_a_server_that_cannot_count(
    context: Context, traced: Traced, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise NotImplementedError("no such endpoint")

    monkeypatch.setattr(assessments, "_query_counts", refuse)
    give(traced("t-1"), False)
    assert Assessments(context).run()
    assert len(verdicts(context, "t-1")) == 1
    assert [one["filter_string"] for one in asked] == [None]


def test_a_second_trace_of_the_same_run_counts_too(context: Context, traced: Traced) -> None:
    """The exporter was killed before the ledger knew of the first one."""
    first = traced("t-1")
    context.ledger.set_trace(NAMESPACE, "t-1", "tr-another")
    give(first, False)
    assert Assessments(context).run()
    assert len(verdicts(context, "t-1")) == 1


def test_a_trace_of_nobodys_run(context: Context, traced: Traced) -> None:
    from metaclaw_langgraph.tracing.replay import replay

    traced("t-1")
    give(replay(trajectory("gone-9"), context.experiment("runs")), False)
    foreign = replay(trajectory("t-1", namespace="other"), context.experiment("runs"))
    give(foreign, False)
    assert not Assessments(context).run()
    assert verdicts(context, "t-1") == []


def test_without_traces_there_is_nothing_to_ask(context: Context) -> None:
    assert not Assessments(context).run()
    assert context.find_experiment("runs") is None


def test_a_persons_verdict_outranks_the_judges(context: Context, traced: Traced) -> None:
    trace_id = traced("t-1")
    context.ledger.add_verdict(NAMESPACE, "t-1", Verdict(1, "judge"))
    give(trace_id, False)
    assert Assessments(context).run()
    (pair,) = context.ledger.agreements(NAMESPACE)
    assert (pair.judge, pair.reference, pair.source) == (1, -1, "human")


def test_feedback_that_is_fetched_late_does_not_override_what_was_said_since(
    context: Context, traced: Traced
) -> None:
    give(traced("t-1"), False)
    context.ledger.add_verdict(NAMESPACE, "t-1", Verdict(1, "human"))
    assert Assessments(context).run()
    assert [one[0] for one in verdicts(context, "t-1")] == [1.0, -1.0]
    assert context.ledger.trajectory(NAMESPACE, "t-1").role == "query"


def test_only_the_names_that_were_ordered_count(
    context: Context, traced: Traced, ledger: Ledger
) -> None:
    give(traced("t-1"), 1, name="rating")
    give(traced("t-2"), True)
    ordered = replace(context.order, feedback_names=["rating"])
    assert Assessments(Context(ordered, ledger)).run()
    assert [one[0] for one in verdicts(context, "t-1")] == [1.0]
    assert verdicts(context, "t-2") == []
    # Without an order all count, but scales.
    assert Assessments(context).run()
    assert len(verdicts(context, "t-1")) == len(verdicts(context, "t-2")) == 1


def test_the_names_of_the_settings_are_ordered(home: Path) -> None:
    def ordered(**settings: Any) -> list[str]:
        config = MetaClawConfig.model_validate({"home": home, **settings})
        return Order(**json.loads(json.dumps(ExporterLauncher.of(config)._order))).feedback_names

    assert ordered() == []
    names = ["rating", "User feedback"]
    assert ordered(judging={"feedback_names": names}) == names
