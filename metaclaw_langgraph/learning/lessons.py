"""What the nodes of the learning graph do, on one namespace's stores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.errors import ConflictError, StoreError, error_text
from metaclaw_langgraph.evolving.evolution import EvolutionReport, Evolving
from metaclaw_langgraph.evolving.guard import Guard
from metaclaw_langgraph.evolving.replay import Replayer
from metaclaw_langgraph.evolving.rules import transient
from metaclaw_langgraph.evolving.trials import decide_probations
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning.gathering import Gathering
from metaclaw_langgraph.learning.graph import LearningState
from metaclaw_langgraph.learning.judgement import Judgement
from metaclaw_langgraph.learning.parts import Parts
from metaclaw_langgraph.ledger import Evolution, Failure, Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from metaclaw_langgraph.wrapping.run import new_id
from metaclaw_langgraph.wrapping.task import task_of_input

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig

__all__ = ["NamespaceLessons"]

_CONSOLIDATE_EVERY = 50
"""Generations. It compares all skills with each other, which takes seconds when there are many."""
_REFUSALS = 3
_BACK_OFF_FIRST = 15.0
_BACK_OFF_MOST = 1800.0


class NamespaceLessons:
    """Judges, keeps and evolves in one namespace."""

    def __init__(
        self,
        config: MetaClawConfig,
        ledger: Ledger,
        retriever: SkillRetriever,
        parts: Parts,
        incidents: Incidents,
        timed: Timed,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._retriever = retriever
        self._parts = parts
        self._incidents = incidents
        self._timed = timed
        self._redactor = Redactor(config.redact)
        self._judgement = Judgement(
            ledger,
            config.namespace,
            parts.judges,
            parts.feedback,
            config.judging,
            incidents,
            timed,
        )
        self._gathering = Gathering(ledger, config.namespace, parts.evolver, config.evolving)
        self._evolving: Evolving | None = None
        self._weighed = -1
        self._back_off = 0.0
        self._retry_at = 0.0
        self._refused = 0
        self._one_by_one = False

    def unjudged(self) -> bool:
        """Whether there is a run that a judge could be asked about now."""
        return self._judgement.waiting()

    def judge(self) -> LearningState:
        """Judge what is unjudged, a batch at a time."""
        given = self._judgement.run()
        passed = [id for id, verdict in given.items() if verdict.reward > 0]
        failed = [id for id, verdict in given.items() if verdict.reward <= 0]
        more = 0.0 if given else None
        return {"passed": passed, "failed": failed, "look_again_in": more}

    def keep(self) -> LearningState:
        """Decide on skills on probation, if there is a new verdict."""
        latest = self._ledger.last_verdict(self._config.namespace)
        if latest == self._weighed:
            return {}
        limit = self._config.evolving.probation_runs
        decided = decide_probations(self._ledger, self._library(), limit)
        self._weighed = latest
        return {
            "kept": [one.skill_id for one in decided if one.state == "kept"],
            "retired": [one.skill_id for one in decided if one.state == "retired"],
        }

    def evolve(self, at_once: bool) -> LearningState:
        """Make skills of the failures, if it is time; the evolver's failure is counted."""
        evolved = self._evolve(at_once) if self._config.evolving.enabled else LearningState()
        return {**evolved, **self.keep()}

    def _evolve(self, at_once: bool) -> LearningState:
        wait = self._retry_at - time.monotonic()
        if wait > 0 and not at_once:
            return {"look_again_in": wait}
        gathered = self._gathering.gather(at_once=at_once, most=1 if self._one_by_one else None)
        if not gathered.failures:
            self._one_by_one = False
            return {"look_again_in": gathered.look_again_in}
        try:
            report = self._evolver().evolve(gathered.failures)
        except (StoppedError, StoreError):
            raise
        except Exception as error:
            again = self._failed(gathered.failures, error)
            return {"evolver_failed": True, "look_again_in": again}
        self._back_off = self._retry_at = 0.0
        self._refused = 0
        if report.generation and report.generation % _CONSOLIDATE_EVERY == 0:
            self._evolver().consolidate()
        return {**_told(report), "look_again_in": 0.0}

    def _failed(self, failures: Sequence[Failure], error: Exception) -> float:
        """Count it and wait longer; a failure that the evolver cannot take (a provider's filter)
        must not keep the others waiting for ever."""
        self._incidents.add("evolver", "failed", error)
        told = error_text(error)
        self._refused += not transient(told) and not isinstance(error, ConflictError)
        if self._refused >= _REFUSALS:
            self._refused = 0
            if len(failures) == 1:
                reason = f"the evolver failed on it {_REFUSALS} times: {told}"
                useless = {failures[0].trajectory.id: reason}
                evolution = Evolution(new_id(), self._parts.evolver.name, useless)
                self._ledger.record_evolution(self._config.namespace, evolution)
            self._one_by_one = True
        self._back_off = min(max(_BACK_OFF_FIRST, 2 * self._back_off), _BACK_OFF_MOST)
        self._retry_at = time.monotonic() + self._back_off
        return self._back_off

    def _evolver(self) -> Evolving:
        if self._evolving is None:
            config = self._config
            self._evolving = Evolving(
                self._ledger,
                self._library(),
                self._retriever.search(),
                self._parts.evolver,
                config.evolving,
                guard=Guard(self._redactor, config.retrieval.token_budget),
                timed=self._timed,
                replayer=self._replayer(),
            )
        return self._evolving

    def _library(self) -> SkillLibrary:
        search = self._retriever.search()
        return SkillLibrary(
            self._ledger,
            lambda: search.embedder,
            self._config.namespace,
            redactor=self._redactor,
            index=search.index,
        )

    def _replayer(self) -> Replayer | None:
        parts = self._parts
        if parts.replay is None or not self._judgement.can_judge:
            return None
        return Replayer(
            parts.replay,
            self._judgement.opinion,
            self._config.namespace,
            timed=self._timed,
            timeout=self._config.evolving.timeout,
            redact=self._redactor.text,
            find_task=parts.find_task or task_of_input,
        )


def _told(report: EvolutionReport) -> LearningState:
    drafts = [
        {"skill": one.skill.name, "state": one.state, "reason": one.reason} for one in report.drafts
    ]
    return {"generation": report.generation, "drafts": drafts}
