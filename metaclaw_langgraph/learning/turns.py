"""What users say next in their threads, read as verdicts on the run before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.config import JudgingConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.ledger import Ledger, TrajectorySummary
from metaclaw_langgraph.ledger.verdicts import JUDGEABLE
from metaclaw_langgraph.types import Trajectory, Verdict

__all__ = ["NextTurns"]

_TURNS = 200
_TRIES = 8
_FIRST_RETRY = timedelta(seconds=15)
# What an earlier process left; older turns it has read, and to read them again may cost money.
_LEFT_OVER = timedelta(minutes=10)


class NextTurns:
    """Reads the latest turns of one namespace, each once."""

    def __init__(
        self,
        ledger: Ledger,
        namespace: str,
        feedback: FeedbackJudge,
        config: JudgingConfig,
        incidents: Incidents,
        timed: Timed,
        clock: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._feedback = feedback
        self._config = config
        self._incidents = incidents
        self._timed = timed
        self._clock = clock
        self._since = clock() - _LEFT_OVER
        self._turns: dict[str, tuple[int, datetime]] = {}
        """The latest turns: how often each was tried to be read, and when it may be again."""

    def waiting(self) -> bool:
        """Whether there is a turn to read now."""
        now = self._clock()
        return any(self._due(turn, now) for turn in self._latest())

    def run(self) -> dict[str, Verdict]:
        """Read what is due; the verdicts that were given, by trajectory."""
        given: dict[str, Verdict] = {}
        now, latest = self._clock(), self._latest()
        tries = {turn.id: self._turns.get(turn.id, (0, now)) for turn in latest}
        for turn in latest:
            if not self._due(turn, now):
                continue
            tried, _ = tries[turn.id]
            try:
                given.update(self._read(turn))
                tries[turn.id] = (_TRIES, now)
            except (StoppedError, StoreError):
                raise
            except Exception as error:
                self._incidents.add("judge", "failed", error)
                tries[turn.id] = (tried + 1, now + _FIRST_RETRY * 2**tried)
        self._turns = tries
        return given

    def _latest(self) -> list[TrajectorySummary]:
        return self._ledger.trajectories(self._namespace, limit=_TURNS)

    def _due(self, turn: TrajectorySummary, now: datetime) -> bool:
        tried, due = self._turns.get(turn.id, (0, now))
        return turn.ended_at >= self._since and tried < _TRIES and due <= now

    def _read(self, turn: TrajectorySummary) -> dict[str, Verdict]:
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
        verdict = replace(verdict, origin=f"turn:{turn.id}", at=turn.started_at)
        self._ledger.add_verdict(self._namespace, before.id, verdict)
        return {before.id: verdict}

    def _has_spoken(self, trajectory: Trajectory) -> bool:
        """What somebody said on purpose counts more than what their next message implies."""
        given = self._ledger.verdicts(self._namespace, trajectory.id)
        return any(verdict.source == "human" for verdict in given)
