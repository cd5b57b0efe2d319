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
from metaclaw_langgraph.learning.gathering import Gathered, Gathering
from metaclaw_langgraph.learning.graph import LearningState
from metaclaw_langgraph.learning.judgement import Judgement
from metaclaw_langgraph.learning.parts import Parts
from metaclaw_langgraph.ledger import Failure, Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
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
        self._aside: set[str] = set()
        self._consolidated = ledger.generation(config.namespace)

    def unjudged(self) -> bool:
        """Whether there is a run that a judge could be asked about now."""
        return self._judgement.waiting()

    def judge(self) -> LearningState:
        """Judge what is unjudged, a batch at a time."""
        given = self._judgement.run()
        passed = [id for id, verdict in given.items() if verdict.reward > 0]
        failed = [id for id, verdict in given.items() if verdict.reward <= 0]
        more = 0.0 if self._judgement.handled else None
        resting = self._judgement.resting()
        return {
            "passed": passed,
            "failed": failed,
            "judge_rests": resting,
            "look_again_in": more,
        }

    def failures_wait(self) -> bool:
        """Whether there is a failure that an evolution could be made from."""
        return self._gathering.any_wait()

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
        gathered = self._gather(at_once)
        if not gathered.failures:
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
        self._consolidate(report.generation)
        return {**_told(report), "look_again_in": 0.0}

    def _gather(self, at_once: bool) -> Gathered:
        """The next failures; those that the evolver did not take come last, each by itself."""
        most = 1 if self._one_by_one else None
        gathered = self._gathering.gather(at_once=at_once, most=most, aside=self._aside)
        if not gathered.failures and gathered.look_again_in is None and self._aside:
            self._aside.clear()
            gathered = self._gathering.gather(at_once=at_once, most=1)
        return gathered

    def _failed(self, failures: Sequence[Failure], error: Exception) -> float:
        """Count it and wait longer. A failure that the evolver cannot take (a provider's filter)
        is set aside: it must not keep the others waiting."""
        self._incidents.add("evolver", "failed", error)
        self._refused += not transient(error_text(error)) and not isinstance(error, ConflictError)
        if self._refused >= _REFUSALS:
            self._refused = 0
            if len(failures) == 1:
                self._aside.add(failures[0].trajectory.id)
            self._one_by_one = len(failures) > 1 or self._one_by_one
        self._back_off = min(max(_BACK_OFF_FIRST, 2 * self._back_off), _BACK_OFF_MOST)
        self._retry_at = time.monotonic() + self._back_off
        return self._back_off

    def _consolidate(self, generation: int | None) -> None:
        """Now and then merge near-duplicates; a person who reviews everything does it by hand."""
        if generation is None or self._config.evolving.review == "always":
            return
        if generation // _CONSOLIDATE_EVERY == self._consolidated // _CONSOLIDATE_EVERY:
            return
        try:
            self._evolver().consolidate()
        except ConflictError:
            return  # somebody else changed the library; tried after the next evolution
        self._consolidated = generation

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
                judged=self._judgement.can_judge,
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
