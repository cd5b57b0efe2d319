"""`metaclaw trajectories`: listing, showing, and asking for what is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from metaclaw_langgraph.cli._common import when
from metaclaw_langgraph.ledger import Evolution, Ledger
from metaclaw_langgraph.types import SkillHit, Verdict
from tests.cli.conftest import START, TASK

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def shop(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_NAMESPACE", "shop")


@pytest.fixture
def ids(ledger: Ledger) -> dict[str, str]:
    """The id of the run that succeeded, and of the later one that failed."""
    return {one.outcome: one.id for one in ledger.trajectories("shop")}


def test_the_newest_comes_first(run: Run, ids: dict[str, str]) -> None:
    found = json.loads(run("trajectories", "list", "--json").stdout)
    assert [one["id"] for one in found] == [ids["failed"], ids["ok"]]
    assert [one["reward"] for one in found] == [-1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        (["--limit", "1"], ["failed"]),
        (["--outcome", "ok"], ["ok"]),
        (["--role", "query"], ["ok"]),
        (["--role", "support"], ["failed"]),
        (["--role", "unjudged"], []),
        (["--namespace", "other"], []),
    ],
)
def test_the_list_can_be_narrowed(run: Run, options: list[str], outcomes: list[str]) -> None:
    found = json.loads(run("trajectories", "list", "--json", *options).stdout)
    assert [one["outcome"] for one in found] == outcomes


def test_the_list_for_people(run: Run) -> None:
    text = run("trajectories", "list").stdout
    assert "query +1.00" in text
    assert "2 model, 1 tool calls" in text
    assert text.count("be-brief@1") == 1
    assert "be-kind@1" not in text
    assert TASK in text


@pytest.mark.parametrize("columns", ["80", "60"])
def test_an_id_of_the_list_can_be_shown(
    run: Run, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = run("trajectories", "list").stdout
    assert max(len(line) for line in text.splitlines()) <= int(columns)
    listed = re.findall(r"[0-9a-f]{8}-[0-9a-f-]*", text)
    assert listed == [ids["failed"], ids["ok"]]
    for id in listed:
        assert run("trajectories", "show", id).exit_code == 0


def test_an_outcome_that_does_not_exist_is_refused(run: Run) -> None:
    result = run("trajectories", "list", "--outcome", "great")
    assert result.exit_code == 2
    assert "interrupted" in result.stderr


def test_one_is_shown_with_all_that_was_said_and_done(run: Run, ids: dict[str, str]) -> None:
    text = run("trajectories", "show", ids["ok"]).stdout
    assert "be-brief@1 (1.00), be-kind@1 (1.00, over budget)" in text
    assert "+1.00 by human ann: just right" in text
    steps = [
        ("system", "<metaclaw_skills"),
        ("human", TASK),
        ("ai", 'Let me look.\ncalls lookup {"order": 7}\n'),
        ("tool lookup", "order 7 is shipped\n"),
        ("ai", "[reasoning] It was shipped.\nOn its way. xxx"),
        ("run of tool lookup", '{"order": 7} -> order 7 is shipped\n'),
    ]
    said = re.split(r"^([a-z ]+) ─+\n", text, flags=re.MULTILINE)[1:]
    assert said[::2] == [role for role, _ in steps]
    for (_, expected), found in zip(steps, said[1::2], strict=True):
        assert found.startswith(expected)
    assert "1040 more characters; --json has them all" in text


def test_a_run_that_called_no_model_is_shown_by_its_input(run: Run, ids: dict[str, str]) -> None:
    text = run("trajectories", "show", ids["failed"]).stdout
    assert "failed: ValueError: no" in text
    assert "be-brief@1 (1.00, not injected), be-kind@1 (1.00, not injected)" in text
    assert "over budget" not in text
    assert re.search(r"^input .*my order", text, re.MULTILINE)
    assert "-1.00 by run: ValueError: no" in text


def test_every_verdict_is_shown_with_who_when_and_why(
    run: Run, ledger: Ledger, ids: dict[str, str]
) -> None:
    judged = Verdict(
        -1.0, "judge", "lost", "m", step_scores=(1.0, None), at=START, origin="mlflow:a1"
    )
    ledger.add_verdict("shop", ids["ok"], judged)
    lines = run("trajectories", "show", ids["ok"]).stdout.splitlines()
    assert [line.split(" by ")[0] for line in lines if line.startswith("verdict ")] == [
        f"verdict    {when(START)} +1.00",
        f"verdict    {when(START)} -1.00",
    ]
    assert lines[-3:] == [
        f"verdict    {when(START)} -1.00 by judge m: lost",
        "           its steps: +1, ?",
        "           read from mlflow:a1",
    ]


def test_what_an_evolution_made_of_it_is_shown(
    run: Run, ledger: Ledger, ids: dict[str, str]
) -> None:
    assert "consumed" not in run("trajectories", "show", ids["failed"]).stdout
    ledger.record_evolution("shop", Evolution("e1", "offline", {ids["failed"]: "rate limit"}))
    text = run("trajectories", "show", ids["failed"]).stdout
    assert "role       consumed\n" in text
    assert text.endswith("consumed   by evolution e1: rate limit\n")
    found = json.loads(run("trajectories", "show", ids["failed"], "--json").stdout)
    assert found["consumed"] == {"evolution": "e1", "reason": "rate limit"}
    found = json.loads(run("trajectories", "show", ids["ok"], "--json").stdout)
    assert found["consumed"] is None


def test_a_skill_that_was_withheld_is_said_to_be(
    run: Run, ledger: Ledger, ids: dict[str, str]
) -> None:
    hit = SkillHit("be-brief@1", 0.5, injected=False, withheld=True)
    drawn = replace(ledger.trajectory("shop", ids["ok"]), id="drawn", skills=(hit,))
    ledger.add_trajectories([drawn])
    text = run("trajectories", "show", "drawn").stdout
    assert "be-brief@1 (0.50, withheld: on probation)" in text


def test_one_is_found_by_the_beginning_of_its_id(run: Run, ids: dict[str, str]) -> None:
    assert run("trajectories", "show", ids["ok"][:-3]).exit_code == 0


def test_json_has_everything(run: Run, ids: dict[str, str]) -> None:
    found = json.loads(run("trajectories", "show", ids["ok"], "--json").stdout)
    assert found["messages"][-1]["data"]["content"][1]["text"].endswith("x" * 3000)
    assert len(found["calls"]) == 2
    assert [one["reward"] for one in found["verdicts"]] == [1.0]


def test_none_or_several_is_one_line_on_stderr(run: Run, ids: dict[str, str]) -> None:
    shared = ids["ok"][:4]
    assert ids["failed"].startswith(shared)
    for id in ("zz", shared):
        result = run("trajectories", "show", id)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert id in result.stderr
