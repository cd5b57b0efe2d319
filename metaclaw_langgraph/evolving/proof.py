"""Proof: which runs can be replayed, and what the gate says of a draft on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.gate import Gate, GateReport
from metaclaw_langgraph.evolving.replay import Replayer
from metaclaw_langgraph.ledger import Failure, Ledger
from metaclaw_langgraph.skills.search import SkillSearch
from metaclaw_langgraph.types import Trajectory

__all__ = ["Proof"]

_SUCCESSES = 50
# What the record leaves out of a long or secret input; see `learning/plain.py` and `redaction.py`.
_LEFT_OUT = ("[redacted:", " more characters]", " more items]")


class Proof:
    """Proves the drafts of one evolution."""

    def __init__(
        self,
        ledger: Ledger,
        namespace: str,
        search: SkillSearch,
        replayer: Replayer,
        config: EvolvingConfig,
    ) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._gate = Gate(
            search,
            replayer.passed,
            repeats=config.gate_repeats,
            successes=config.gate_successes,
        )

    def of(self, draft: Draft, failures: Sequence[Failure]) -> GateReport | None:
        """What the gate says; None when none of its failures can be replayed."""
        tasks = [one.trajectory for one in failures if one.trajectory.id in draft.origin]
        own = [trajectory for trajectory in tasks if self._replayable(trajectory)]
        if not own:
            return None
        return self._gate.try_draft(draft.skill, draft.replaces, own, self._successes())

    def _successes(self) -> Iterator[Trajectory]:
        for success in self._ledger.successes(self._namespace, limit=_SUCCESSES):
            if self._replayable(success.trajectory):
                yield success.trajectory

    def _replayable(self, trajectory: Trajectory) -> bool:
        """Whether the recorded input is all that the run knew: nothing was left out of it, and it
        is no later turn of a thread, which may have had a memory."""
        if not trajectory.task or trajectory.outcome not in ("ok", "failed"):
            return False
        given = json.dumps(trajectory.input)
        if any(mark in given for mark in _LEFT_OUT):
            return False
        return self._ledger.previous_in_thread(self._namespace, trajectory.id) is None
