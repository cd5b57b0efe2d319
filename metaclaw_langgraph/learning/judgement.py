"""Judging what is stored: each unjudged run is shown to the judges, in the order of their rank.

A judge that fails leaves the run unjudged: it is tried again, later and later, and counted. It is
never a reward of 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from metaclaw_langgraph._timed import StoppedError, Timed, in_parallel
from metaclaw_langgraph.config import JudgingConfig
from metaclaw_langgraph.errors import StoreError, error_text
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.judging.base import Judge
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.learning.turns import NextTurns
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Trajectory, Verdict

__all__ = ["Judgement"]

_BATCH = 8
_AT_ONCE = 4
_FIRST_RETRY = timedelta(seconds=15)
_TRIES = 8
_LONGEST_REST = timedelta(minutes=30)
_NO_OPINION = "no judge has an opinion"


class _Rest(NamedTuple):
    """How often in a row a judge took too long, and until when it is left alone."""

    times: int
    until: datetime


class Judgement:
    """Judges the runs of one namespace."""

    def __init__(
        self,
        ledger: Ledger,
        namespace: str,
        judges: Sequence[Judge],
        feedback: FeedbackJudge,
        config: JudgingConfig,
        incidents: Incidents,
        timed: Timed,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._judges = judges
        self._feedback = feedback
        self._config = config
        self._incidents = incidents
        self._timed = timed
        self._clock = clock
        self._turns: NextTurns | None = None
        if config.next_turn:
            self._turns = NextTurns(ledger, namespace, feedback, config, incidents, timed, clock)
        self._rests: dict[str, _Rest] = {}
        self.handled = 0
        """How many runs the last batch came to an end with: a verdict, or none for now."""

    def run(self) -> dict[str, Verdict]:
        """Judge one batch; the verdicts that were given, by trajectory."""
        given = self._turns.run() if self._turns else {}
        self.handled = len(given)
        waiting = self._waiting(_BATCH)
        for start in range(0, len(waiting), _AT_ONCE):
            given.update(self._judge(waiting[start : start + _AT_ONCE]))
        return given

    def resting(self) -> bool:
        """Whether runs wait for a judge that is left alone for a while."""
        return any(self._rests_now(judge) for judge in self._judges) and bool(self._waiting(1))

    def waiting(self) -> bool:
        """Whether there is somebody to judge, or to read."""
        if self._turns is not None and self._turns.waiting():
            return True
        return not all(map(self._rests_now, self._judges)) and bool(self._waiting(1))

    def opinion(self, trajectory: Trajectory) -> Verdict | None:
        """What the judges say about a run that is not stored; None when they say nothing."""
        for judge in self._judges:
            try:
                verdict = self._ask(judge, trajectory)
            except StoppedError:
                raise
            except Exception as error:
                self._incidents.add("judge", "failed", error)
                return None
            if verdict is not None:
                return verdict
        return None

    @property
    def can_judge(self) -> bool:
        """Whether anybody but people can be asked."""
        return bool(self._judges)

    def _judge(self, some: Sequence[Trajectory]) -> dict[str, Verdict]:
        """Ask in order until one has an opinion, and store it.

        Models are asked about several runs at once, verifiers about one after the other: they are
        the user's code.
        """
        found: dict[str, Verdict] = {}
        failed: set[str] = set()
        for judge in self._judges:
            for together in [some] if judge.source == "judge" else [[one] for one in some]:
                asked = [one for one in together if self._is_asked(judge, one, found, failed)]
                calls = [partial(self._ask, judge, one) for one in asked]
                results = in_parallel(calls, judge.name)
                for one, result in zip(asked, results, strict=True):
                    self._take(judge, one, result, found, failed)
        for one in some:
            if one.id not in found and one.id not in failed:
                self._ledger.judge_failed(self._namespace, one.id, _NO_OPINION, lambda tries: None)
                self.handled += 1
        return found

    def _is_asked(
        self, judge: Judge, one: Trajectory, found: Mapping[str, Verdict], failed: set[str]
    ) -> bool:
        if one.id in found or one.id in failed:
            return one.id in found and not self._rests_now(judge) and self._audited(judge, one)
        if self._rests_now(judge):
            failed.add(one.id)  # for now
            return False
        return judge.source != "judge" or _drawn(one, "sample") < self._config.sample

    def _take(
        self,
        judge: Judge,
        one: Trajectory,
        result: Verdict | Exception | None,
        found: dict[str, Verdict],
        failed: set[str],
    ) -> None:
        """Store what a judge gave, or count that it gave nothing."""
        try:
            if isinstance(result, Exception):
                raise result
            if result is not None:
                self._ledger.add_verdict(self._namespace, one.id, result)
                found.setdefault(one.id, result)
                self.handled += 1
            self._rests.pop(judge.name, None)
        except (StoppedError, StoreError):
            raise
        except Exception as error:  # its own, or what it gave is no verdict
            self._incidents.add("judge", "failed", error)
            if isinstance(error, TimeoutError):
                self._leave_alone(judge)
            if one.id not in found:
                failed.add(one.id)
                self._try_later(one, error_text(error))
                self.handled += 1

    def _leave_alone(self, judge: Judge) -> None:
        """A judge that hangs gets a rest: each call of it keeps a thread."""
        if self._rests_now(judge):
            return  # those that were asked at the same time count once
        times = self._rests[judge.name].times + 1 if judge.name in self._rests else 1
        rest = min(_FIRST_RETRY * 2**times, _LONGEST_REST)
        self._rests[judge.name] = _Rest(times, self._clock() + rest)

    def _rests_now(self, judge: Judge) -> bool:
        return judge.name in self._rests and self._clock() < self._rests[judge.name].until

    def _ask(self, judge: Judge, trajectory: Trajectory) -> Verdict | None:
        name = f"the judge {judge.name}"
        verdict = self._timed.call(self._config.timeout, lambda: judge.judge(trajectory), name)
        if verdict is None or verdict.at is not None:
            return verdict
        return replace(verdict, at=self._clock())

    def _audited(self, judge: Judge, trajectory: Trajectory) -> bool:
        """Whether the model judges this one too, though a verifier has: to compare them."""
        return judge.source == "judge" and _drawn(trajectory, "audit") < self._config.audit

    def _try_later(self, trajectory: Trajectory, problem: str) -> None:
        tries = self._ledger.judge_failed(self._namespace, trajectory.id, problem, self._again)
        if tries >= _TRIES:
            self._incidents.add("judge", "given up", problem)

    def _again(self, tries: int) -> datetime | None:
        """When to ask again after so many tries; None for never."""
        return None if tries >= _TRIES else self._clock() + _FIRST_RETRY * 2 ** (tries - 1)

    def _waiting(self, limit: int) -> list[Trajectory]:
        if not self._judges:
            return []
        return self._ledger.unjudged(
            self._namespace, since=self._oldest(), now=self._clock(), limit=limit
        )

    def _oldest(self) -> datetime:
        return self._clock() - timedelta(hours=self._config.window)


def _drawn(trajectory: Trajectory, lot: str) -> float:
    """A number from 0 to 1 that is always the same for this run and this lot."""
    digest = hashlib.sha256(f"{lot}:{trajectory.id}".encode()).hexdigest()
    return int(digest[:8], 16) / 0xFFFFFFFF
