"""Judging what is stored: each unjudged run is shown to the judges, in the order of their rank.

A judge that fails leaves the run unjudged: it is tried again, later and later, and counted. It is
never a reward of 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from metaclaw_langgraph.config import JudgingConfig
from metaclaw_langgraph.errors import StoreError, error_text
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.judging.base import Judge
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.learning.timed import StoppedError, Timed
from metaclaw_langgraph.ledger import Ledger, TrajectorySummary
from metaclaw_langgraph.ledger.verdicts import JUDGEABLE
from metaclaw_langgraph.types import Trajectory, Verdict

__all__ = ["Judgement"]

_BATCH = 16
_FIRST_RETRY = timedelta(seconds=15)
_TRIES = 8
_NO_OPINION = "no judge has an opinion"
_TURNS = 200


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
        self._turns: dict[str, tuple[int, datetime]] = {}
        """The latest turns: how often each was tried to be read, and when it may be again."""

    def run(self) -> dict[str, Verdict]:
        """Judge one batch; the verdicts that were given, by trajectory."""
        given = self._next_turns() if self._config.next_turn else {}
        if not self._judges:
            return given
        for trajectory in self._waiting(_BATCH):
            verdict = self._judge(trajectory)
            if verdict is not None:
                given[trajectory.id] = verdict
        return given

    def waiting(self) -> bool:
        """Whether there is somebody to judge, or to read."""
        return (bool(self._judges) and bool(self._waiting(1))) or self._config.next_turn

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

    def _judge(self, trajectory: Trajectory) -> Verdict | None:
        """Ask in order until one has an opinion, and store it."""
        found: Verdict | None = None
        for judge in self._judges:
            if found is not None and not self._audited(judge, trajectory):
                continue
            try:
                verdict = self._ask(judge, trajectory)
                if verdict is not None:
                    self._ledger.add_verdict(self._namespace, trajectory.id, verdict)
                    found = found or verdict
            except (StoppedError, StoreError):
                raise
            except Exception as error:  # its own, or what it gave is no verdict
                self._incidents.add("judge", "failed", error)
                if found is None:
                    self._try_later(trajectory, error_text(error))
                    return None
        if found is None:
            self._ledger.judge_failed(
                self._namespace, trajectory.id, _NO_OPINION, lambda tries: None
            )
        return found

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

    def _next_turns(self) -> dict[str, Verdict]:
        """What users said next in their threads, read as verdicts on the run before."""
        given: dict[str, Verdict] = {}
        now, oldest = self._clock(), self._oldest()
        latest = self._ledger.trajectories(self._namespace, limit=_TURNS)
        tries = {turn.id: self._turns.get(turn.id, (0, now)) for turn in latest}
        for turn in latest:
            tried, due = tries[turn.id]
            if turn.started_at < oldest or tried >= _TRIES or due > now:
                continue
            try:
                given.update(self._read_turn(turn))
                tries[turn.id] = (_TRIES, now)
            except (StoppedError, StoreError):
                raise
            except Exception as error:
                self._incidents.add("judge", "failed", error)
                tries[turn.id] = (tried + 1, self._again(tried + 1) or now)
        self._turns = tries
        return given

    def _read_turn(self, turn: TrajectorySummary) -> dict[str, Verdict]:
        said = turn.task
        before = self._ledger.previous_in_thread(self._namespace, turn.id)
        if not said or before is None or before.outcome not in JUDGEABLE:
            return {}
        if self._has_spoken(before):
            return {}
        read = self._feedback.of_next_turn
        verdict = self._timed.call(
            self._config.timeout, lambda: read(before, said), "reading feedback"
        )
        if verdict is None:
            return {}
        verdict = replace(verdict, origin=f"turn:{turn.id}", at=self._clock())
        self._ledger.add_verdict(self._namespace, before.id, verdict)
        return {before.id: verdict}

    def _has_spoken(self, trajectory: Trajectory) -> bool:
        """What somebody said on purpose counts more than what their next message implies."""
        given = self._ledger.verdicts(self._namespace, trajectory.id)
        return any(verdict.source == "human" for verdict in given)

    def _waiting(self, limit: int) -> list[Trajectory]:
        return self._ledger.unjudged(
            self._namespace, since=self._oldest(), now=self._clock(), limit=limit
        )

    def _oldest(self) -> datetime:
        return self._clock() - timedelta(hours=self._config.window)
