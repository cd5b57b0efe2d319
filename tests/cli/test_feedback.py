"""`metaclaw feedback`: whose run is judged, what it says then, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def shop(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_NAMESPACE", "shop")
    monkeypatch.setenv("LOGNAME", "bea")


@pytest.fixture
def ids(ledger: Ledger) -> dict[str, str]:
    """The id of the run that succeeded, of the later one that failed, and of a marked one."""
    found: dict[str, str] = {one.outcome: one.id for one in ledger.trajectories("shop")}
    ok = ledger.trajectory("shop", found["ok"])
    earlier = ok.started_at - timedelta(hours=1)
    marked = replace(ok, id="marked-1", run_id="r1", thread_id="t1", started_at=earlier, task=None)
    ledger.add_trajectories([replace(marked, role="unjudged")])
    return {**found, "marked": marked.id}


def test_the_latest_run_is_judged_and_named(run: Run, ledger: Ledger, ids: dict[str, str]) -> None:
    done = run("feedback", "good", "it had to fail")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first == f"+1.00 for {ids['failed']}: topic 1: where is [bold]my order[/bold]?"
    assert second == "its role is query now"
    given = ledger.verdicts("shop", ids["failed"])[-1]
    assert (given.reward, given.source, given.reason) == (1.0, "human", "it had to fail")
    assert given.author == "bea"


@pytest.mark.parametrize("option", [("--run-id", "r1"), ("--thread", "t1"), ("--trajectory", "ma")])
def test_another_run_is_found_by_its_marks(
    run: Run, ledger: Ledger, ids: dict[str, str], option: tuple[str, str]
) -> None:
    done = json.loads(run("feedback", "-0.5", "too long", *option, "--json").stdout)
    expected = {"trajectory": "marked-1", "task": "", "reward": -0.5, "role": "support"}
    assert done == expected
    (given,) = ledger.verdicts("shop", "marked-1")
    assert (given.reward, given.reason) == (-0.5, "too long")


def test_the_author_can_be_another(run: Run, ledger: Ledger, ids: dict[str, str]) -> None:
    run("feedback", "bad", "--author", "cy")
    assert ledger.verdicts("shop", ids["failed"])[-1].author == "cy"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["great"], "a verdict is good, bad or a number from -1 to 1, not 'great'"),
        (["2"], "a verdict is good, bad or a number from -1 to 1, not '2'"),
        (["nan"], "a verdict is good, bad or a number from -1 to 1, not 'nan'"),
        (["bad", "--autor"], "no such option: --autor"),
        (["bad", "--trajectory", "zz"], "no trajectory 'zz'"),
        (["bad", "--thread", "zz"], "no trajectory in namespace 'shop' for 'zz'"),
        (["bad", "--namespace", "other"], "no trajectory in namespace 'other' yet"),
    ],
)
def test_mistakes_are_one_line_and_store_nothing(
    run: Run, ledger: Ledger, arguments: list[str], problem: str
) -> None:
    before = ledger.last_verdict("shop")
    done = run("feedback", *arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"metaclaw: {problem}")
    assert done.stderr.count("\n") == 1
    assert ledger.last_verdict("shop") == before
