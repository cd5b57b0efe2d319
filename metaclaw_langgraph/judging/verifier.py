"""`VerifierJudge`: the user's own check of a finished run.

def check(trajectory):
    return "invoice" in str(trajectory.output), "the answer must name the invoice"

agent = with_metaclaw(graph, judge=VerifierJudge(check))
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.judging.base import JudgeError
from metaclaw_langgraph.types import Trajectory, Verdict, VerdictSource

__all__ = ["Check", "CheckResult", "VerifierJudge"]

CheckResult: TypeAlias = bool | float | tuple[bool | float, str] | Verdict | None
"""Passed or not, or a reward from -1 to 1, each alone or with the reason; None: no opinion."""

Check: TypeAlias = Callable[[Trajectory], CheckResult | Awaitable[CheckResult]]

_FORMS = (
    "return True or False, a number from -1 to 1, one of these with a reason as in "
    "(False, 'why'), a Verdict, or None for no opinion"
)


class VerifierJudge:
    """Asks a function of the user, sync or async. What it raises is raised to the caller."""

    source: VerdictSource = "verifier"

    def __init__(self, fn: Check, name: str | None = None) -> None:
        given: object = fn
        if not callable(given):
            raise ConfigError(
                f"VerifierJudge takes a function of a trajectory, not {type(given).__name__}"
            )
        self.name = name or getattr(fn, "__name__", None) or type(fn).__name__
        self._fn = fn

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The function's opinion as a verdict."""
        result: object = self._fn(trajectory)
        if inspect.isawaitable(result):
            result = _awaited(result)
        return None if result is None else self._verdict(result, trajectory)

    def _verdict(self, result: object, trajectory: Trajectory) -> Verdict:
        if isinstance(result, Verdict):
            return self._given(result, trajectory)
        reason: object = ""
        if isinstance(result, tuple):
            if len(result) != 2:
                raise self._wrong(f"a tuple of {len(result)}")
            result, reason = result
        if not isinstance(reason, str):
            raise self._wrong(f"a reason of type {type(reason).__name__}")
        return Verdict(self._reward(result), self.source, reason, author=self.name)

    def _given(self, verdict: Verdict, trajectory: Trajectory) -> Verdict:
        """The user's own Verdict; it stays a verifier's, whatever source was filled in."""
        scores, steps = verdict.step_scores, len(trajectory.calls)
        if scores is not None and len(scores) != steps:
            raise self._wrong(f"{len(scores)} step scores for {steps} model calls")
        return dataclasses.replace(
            verdict,
            reward=self._reward(verdict.reward),
            source=self.source,
            author=verdict.author or self.name,
        )

    def _reward(self, value: object) -> float:
        item = getattr(value, "item", None)
        plain = item() if callable(item) else value  # numpy's bool is no bool
        if isinstance(plain, bool):
            return 1.0 if plain else -1.0
        if not isinstance(plain, int | float):
            raise self._wrong(type(plain).__name__)
        # The comparison also refuses NaN.
        if not -1 <= plain <= 1:
            raise self._wrong(f"the number {plain!r}")
        return float(plain)

    def _wrong(self, what: str) -> JudgeError:
        return JudgeError(f"the check {self.name!r} returned {what}; {_FORMS}")


def _awaited(result: Awaitable[object]) -> object:
    """The result of an async check; judges run where no event loop is, but a person may try one
    in a notebook, which has its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_coroutine(result))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _coroutine(result)).result()


def _coroutine(result: Awaitable[object]) -> Coroutine[Any, Any, object]:
    async def wait() -> object:
        return await result

    return wait()
