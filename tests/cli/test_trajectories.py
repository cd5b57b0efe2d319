"""`metaclaw trajectories`: listing, showing, and asking for what is not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def shop(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_NAMESPACE", "shop")


def test_the_newest_comes_first(run: Run) -> None:
    found = json.loads(run("trajectories", "list", "--json").stdout)
    assert [one["id"] for one in found] == ["aa02", "aa01"]
    assert [one["reward"] for one in found] == [None, 1.0]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--limit", "1"], ["aa02"]),
        (["--outcome", "ok"], ["aa01"]),
        (["--role", "unjudged"], ["aa02"]),
        (["--role", "support"], []),
        (["--namespace", "other"], []),
    ],
)
def test_the_list_can_be_narrowed(run: Run, options: list[str], ids: list[str]) -> None:
    found = json.loads(run("trajectories", "list", "--json", *options).stdout)
    assert [one["id"] for one in found] == ids


def test_the_list_for_people(run: Run) -> None:
    text = run("trajectories", "list").stdout
    assert "+1.00" in text
    assert "be-brief@1" in text
    assert "be-kind@2" not in text
    assert "where is [bold]my order[/bold]?" in text


def test_an_outcome_that_does_not_exist_is_refused(run: Run) -> None:
    result = run("trajectories", "list", "--outcome", "great")
    assert result.exit_code == 2
    assert "interrupted" in result.stderr


def test_one_is_shown_by_the_beginning_of_its_id(run: Run) -> None:
    text = run("trajectories", "show", "aa01").stdout
    assert "be-brief@1 (0.81), be-kind@2 (0.40, over budget)" in text
    assert "where is [bold]my order[/bold]?" in text
    assert "{'order': 7} -> shipped" in text
    assert "+1.00 by human ann: just right" in text
    assert "1012 more characters; --json has them all" in text


def test_json_has_everything(run: Run) -> None:
    found = json.loads(run("trajectories", "show", "aa02", "--json").stdout)
    assert found["error"] == "ValueError: no"
    assert found["messages"][1]["content"].endswith("x" * 3000)
    assert found["calls"][0]["model"] == "model-x"
    assert found["verdicts"] == []


@pytest.mark.parametrize("id", ["zz", "aa0"])
def test_none_or_several_is_one_line_on_stderr(run: Run, id: str) -> None:
    result = run("trajectories", "show", id)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert id in result.stderr
