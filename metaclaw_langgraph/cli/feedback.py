"""`metaclaw feedback`: a person's verdict on a run."""

from __future__ import annotations

import re
from math import nan
from typing import Annotated

import typer

from metaclaw_langgraph.cli._common import (
    JsonOption,
    NamespaceOption,
    load_config,
    new_console,
    one_line,
    opened_ledger,
    os_user,
    print_json,
    visible,
)
from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.learning.feedback import give_feedback

__all__ = ["app"]

app = typer.Typer()

_WORDS = {"good": 1.0, "bad": -1.0}
_OPTION = re.compile(r"--?[A-Za-z][\w-]*")


# Or "-1" would be read as an option.
@app.command(context_settings={"ignore_unknown_options": True})
def feedback(
    mark: Annotated[
        str, typer.Argument(metavar="good|bad|NUMBER", help="A number is from -1 to 1.")
    ],
    reason: Annotated[str, typer.Argument(help="What was wrong or right, in words.")] = "",
    trajectory: Annotated[
        str | None, typer.Option(help="The trajectory's id, or enough of its beginning.")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="The run_id in the run's config.")] = None,
    thread: Annotated[str | None, typer.Option(help="The latest run of this thread.")] = None,
    author: Annotated[str | None, typer.Option(help="Who says so; by default you.")] = None,
    namespace: NamespaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a run: the latest one, unless an option names another."""
    if _OPTION.fullmatch(reason):
        raise ConfigError(f"no such option: {reason}; see `metaclaw feedback --help`")
    reward = _reward(mark)
    config = load_config(namespace)
    with opened_ledger(config) as ledger:
        if trajectory is not None:
            trajectory = ledger.trajectory(config.namespace, trajectory).id
        id, role = give_feedback(
            ledger,
            config.namespace,
            reward,
            reason,
            trajectory_id=trajectory,
            run_id=run_id,
            thread_id=thread,
            author=author or os_user(),
        )
        task = ledger.trajectory(config.namespace, id).task or ""
    if as_json:
        print_json({"trajectory": id, "task": task, "reward": reward, "role": role})
        return
    judged = f"{reward:+.2f} for {id}: {visible(one_line(task)) or '(no task)'}"
    new_console().print(f"{judged}\nits role is {role} now", soft_wrap=True)


def _reward(mark: str) -> float:
    if mark in _WORDS:
        return _WORDS[mark]
    try:
        reward = float(mark)
    except ValueError:
        reward = nan
    if not -1.0 <= reward <= 1.0:
        raise ConfigError(f"a verdict is good, bad or a number from -1 to 1, not {mark!r}")
    return reward
