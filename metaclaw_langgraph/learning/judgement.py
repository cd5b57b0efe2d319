"""Judging what is stored: each unjudged run is shown to the judges, in the order of their rank.

A judge that fails leaves the run unjudged: it is tried again, later and later, and counted. It is
never a reward of 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

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

_BATCH = 16
_AT_ONCE = 4
_FIRST_RETRY = timedelta(seconds=15)
_TRIES = 8
_LONGEST_REST = timedelta(minutes=30)
_NO_OPINION = "no judge has an opinion"


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
        self._timed_out = 0
        self._rest_until = clock()

    def run(self) -> dict[str, Verdict]:
        """Judge one batch; the verdicts that were given, by trajectory."""
        given = self._turns.run() if self._turns else {}
        waiting = self._waiting(_BATCH)
        for start in range(0, len(waiting), _AT_ONCE):
            if self._clock() < self._rest_until:
                break
            given.update(self._judge(waiting[start : start + _AT_ONCE]))
        return given

    def waiting(self) -> bool:
        """Whether there is somebody to judge, or to read."""
        return bool(self._waiting(1)) or (self._turns is not None and self._turns.waiting())

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
                    self._take(one, result, found, failed)
        for one in some:
            if one.id not in found and one.id not in failed:
                self._ledger.judge_failed(self._namespace, one.id, _NO_OPINION, lambda tries: None)
        return found

    def _is_asked(
        self, judge: Judge, one: Trajectory, found: Mapping[str, Verdict], failed: Set[str]
    ) -> bool:
        if one.id in found:
            return self._audited(judge, one)
        return one.id not in failed

    def _take(
        self,
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
            self._timed_out = 0
        except (StoppedError, StoreError):
            raise
        except Exception as error:  # its own, or what it gave is no verdict
            self._incidents.add("judge", "failed", error)
            if isinstance(error, TimeoutError):
                self._rest()
            if one.id not in found:
                failed.add(one.id)
                self._try_later(one, error_text(error))

    def _rest(self) -> None:
        """A judge that hangs is left alone for a while: each call of it keeps a thread."""
        self._timed_out += 1
        longest = min(_FIRST_RETRY * 2**self._timed_out, _LONGEST_REST)
        self._rest_until = self._clock() + longest

    def _ask(self, judge: Judge, trajectory: Trajectory) -> Verdict | None:
        name = f"the judge {judge.name}"
        verdict = self._timed.call(self._config.timeout, lambda: judge.judge(trajectory), name)
        if verdict is None or verdict.at is not None:
            return verdict
        return replace(verdict, at=self._clock())

    def _audited(self, judge: Judge, trajectory: Trajectory) -> bool:
        """Whether the model judges this one too, though a verifier has: to compare them."""
        drawn = int(hashlib.sha256(trajectory.id.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        return judge.source == "judge" and drawn < self._config.audit

    def _try_later(self, trajectory: Trajectory, problem: str) -> None:
        tries = self._ledger.judge_failed(self._namespace, trajectory.id, problem, self._again)
        if tries >= _TRIES:
            self._incidents.add("judge", "given up", problem)

    def _again(self, tries: int) -> datetime | None:
        """When to ask again after so many tries; None for never."""
        return None if tries >= _TRIES else self._clock() + _FIRST_RETRY * 2 ** (tries - 1)

    def _waiting(self, limit: int) -> list[Trajectory]:
        if not self._judges or self._clock() < self._rest_until:
            return []
        return self._ledger.unjudged(
            self._namespace, since=self._oldest(), now=self._clock(), limit=limit
        )

    def _oldest(self) -> datetime:
        return self._clock() - timedelta(hours=self._config.window)
