"""An evolution: from gathered failures to a new generation, in one transaction at the end.

    failures ─► do-not-learn ─► drafts ─► guard ─► place in the library ─► review?
             ─► gate (or probation) ─► generation g+1: the skills, the failures consumed

Killed anywhere before the end, nothing has happened: the failures still wait. What became of each
draft, and why, is stored with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.evolving.base import Draft, Evolver
from metaclaw_langgraph.evolving.consolidation import Consolidation, consolidate
from metaclaw_langgraph.evolving.duplicates import (
    EVOLVED,
    Duplicate,
    Shelf,
    apart,
    least_useful,
    names_for,
    our_records,
    placed,
    same_text,
)
from metaclaw_langgraph.evolving.grounding import Grounding, holds_tool_results, is_trusted
from metaclaw_langgraph.evolving.guard import Finding, Guard
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.evolving.outcome import Outcome, fate, refused
from metaclaw_langgraph.evolving.proof import Proof
from metaclaw_langgraph.evolving.replay import Replayer
from metaclaw_langgraph.ledger import (
    DraftRecord,
    DraftState,
    Evolution,
    Failure,
    Ledger,
    Probation,
)
from metaclaw_langgraph.skills.library import Change, Record, SkillLibrary
from metaclaw_langgraph.skills.search import SkillSearch
from metaclaw_langgraph.types import Json, Skill
from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["EvolutionReport", "Evolving"]

T = TypeVar("T")

_RELATED = 5
_REMEMBERED = 200


@dataclass(frozen=True, slots=True)
class EvolutionReport:
    """What one evolution did."""

    id: str
    consumed: int
    drafts: tuple[DraftRecord, ...]
    generation: int | None
    """The new generation, if one was made."""


class Evolving:
    """Evolves the skills of one namespace."""

    def __init__(
        self,
        ledger: Ledger,
        library: SkillLibrary,
        search: SkillSearch,
        evolver: Evolver,
        config: EvolvingConfig,
        *,
        guard: Guard,
        timed: Timed,
        replayer: Replayer | None = None,
        judged: bool = True,
    ) -> None:
        """`judged`: whether anybody but people says how runs went."""
        self._ledger = ledger
        self._library = library
        self._search = search
        self._evolver = evolver
        self._config = config
        self._guard = guard
        self._timed = timed
        self._replayer = replayer
        self._judged = judged
        self._grounding = Grounding(search.embedder)
        self._namespace = library.namespace

    def evolve(self, failures: Sequence[Failure]) -> EvolutionReport:
        """Learn from these failures. Raises when the evolver fails; the failures then wait."""
        outcomes: list[Outcome] = []
        winners: dict[str, Outcome] = {}
        left: set[str] = set()
        for some in _by_trust(failures):
            most = self._config.max_drafts - len(outcomes)
            if most <= 0:
                left |= {one.trajectory.id for one in some}  # for the next evolution
                continue
            proof, drafts = self._proof(), self._drafts(some)
            for draft in drafts[:most]:
                outcome = self._try(draft, some, proof, winners)
                outcomes.append(outcome)
                if outcome.state == "live":
                    winners[outcome.draft.skill.name] = outcome
            left |= _origins(drafts[most:]) - _origins(drafts[:most])
        taken = [one for one in failures if one.trajectory.id not in left]
        return self._commit(taken, outcomes, winners)

    def consolidate(self) -> Consolidation:
        """Merge near-duplicates among the skills that were written here."""
        return consolidate(
            self._ledger,
            self._library,
            self._search,
            self._merge,
            self._guard,
            least=self._config.duplicate_score,
            holdout=self._config.holdout,
        )

    def _drafts(self, failures: Sequence[Failure]) -> Sequence[Draft]:
        related: dict[str, Skill] = {}
        for failure in failures if not self._evolver.needs_words else ():
            for skill in self._search.for_task(failure.trajectory.task or "", _RELATED):
                related.setdefault(skill.name, skill)
        return self._ask(lambda: self._evolver.draft(failures, list(related.values())))

    def _try(
        self,
        draft: Draft,
        failures: Sequence[Failure],
        proof: Proof | None,
        winners: Mapping[str, Outcome],
    ) -> Outcome:
        findings = self._guard.check(draft.skill)
        if told := refused(draft, findings):
            return told
        shelf = Shelf(self._search, [one.draft.skill for one in winners.values()])
        taken = self._taken(draft, winners)
        old = {name: skill.id for name, skill in taken.items()}

        def merge(one: Skill, other: Skill) -> Skill:
            old[one.name] = one.id
            return self._merge(one, other)

        put = placed(draft, shelf, merge, self._config.duplicate_score, taken)
        if isinstance(put, Duplicate):
            reason = f"{put.of} says the same (similarity {put.score:.2f})"
            return Outcome(draft, "duplicate", reason, findings=findings)
        if put.skill.body != draft.skill.body:
            merged = self._guard.check(put.skill)  # a merged text is a new text
            if refused(put, merged):
                put = apart(draft, taken)  # too much for one skill
            else:
                findings = merged
        spoken = self._is_peoples_own(draft, failures)
        untrusted = None if spoken else self._untrusted(draft, put, failures)
        if waits := self._waits(put, findings, untrusted, spoken):
            outcome = Outcome(put, "review", waits, untrusted is not None, findings)
        else:
            outcome = self._prove(put, failures, proof, untrusted is not None, findings)
        if outcome.probation and outcome.gate is None and spoken and not self._judged:
            # Nobody but people judges: a probation would never end.
            outcome = replace(outcome, reason="on a person's word", probation=False)
        before = winners.get(put.skill.name)
        return replace(outcome, old=before.old if before else old.get(put.skill.name))

    def _prove(
        self,
        draft: Draft,
        failures: Sequence[Failure],
        proof: Proof | None,
        untrusted: bool,
        findings: tuple[Finding, ...],
    ) -> Outcome:
        report = proof.of(draft, failures) if proof else None
        if report is None or report.won is None:
            reason = report.reason if report else "its tasks cannot be replayed"
            on_trial = f"on probation: {reason}"
            return Outcome(draft, "live", on_trial, untrusted, findings, report, probation=True)
        state: DraftState = "live" if report.won else "lost"
        return Outcome(draft, state, report.reason, untrusted, findings, report)

    def _proof(self) -> Proof | None:
        if self._replayer is None:
            return None
        return Proof(self._ledger, self._namespace, self._search, self._replayer, self._config)

    def _is_peoples_own(self, draft: Draft, failures: Sequence[Failure]) -> bool:
        """Whether it is what people have just said, word by word, and nothing else."""
        mine = [one.verdict for one in failures if one.trajectory.id in draft.origin]
        offline = isinstance(self._evolver, OfflineEvolver)
        return offline and all(one.source == "human" and is_trusted(one) for one in mine)

    def _untrusted(self, draft: Draft, put: Draft, failures: Sequence[Failure]) -> str | None:
        """Why it may say what untrusted text told it to, as it was drafted or as it was merged."""
        trusted = [*self._replaced(put), *self._given(failures)]
        found = self._grounding.untrusted(draft, failures, trusted)
        if found is None and put.skill != draft.skill:
            found = self._grounding.untrusted(put, failures, trusted)
        return found

    def _waits(
        self, draft: Draft, findings: Sequence[Finding], untrusted: str | None, spoken: bool
    ) -> str | None:
        """Why a person has to look at it first; None when nobody has to."""
        if not spoken and self._was_taken_out(draft):
            return "a person rejected this text, or it was taken out of the library"
        if findings:
            return f"the guard asks: {', '.join(sorted({one.kind for one in findings}))}"
        if self._config.review == "always":
            return "every draft is reviewed"
        return untrusted if self._config.review == "untrusted" else None

    def _merge(self, old: Skill, new: Skill) -> Skill:
        """By the evolver; when it cannot, the texts are put together line by line."""
        try:
            return self._ask(lambda: self._evolver.merge(old, new))
        except StoppedError:
            raise
        except Exception:
            return OfflineEvolver().merge(old, new)

    def _ask(self, call: Callable[[], T]) -> T:
        return self._timed.call(self._config.timeout, call, f"the evolver {self._evolver.name}")

    def _taken(self, draft: Draft, winners: Mapping[str, Outcome]) -> dict[str, Skill]:
        """The skills that have the names that the draft may be given, up to one that is free."""
        taken = {name: one.draft.skill for name, one in winners.items()}
        number, free = 10, False
        while not free:
            names = list(islice(names_for(draft.skill.name), number))
            live = self._ledger.live_versions(
                self._namespace, [*names, draft.replaces or draft.skill.name]
            )
            taken = {**live, **taken}
            free = not taken.keys() >= set(names)
            number *= 10
        return taken

    def _given(self, failures: Sequence[Failure]) -> list[Skill]:
        """The skills that the runs were given and that are live: their prompts repeat them."""
        hits = {hit.id for one in failures for hit in one.trajectory.skills if hit.injected}
        live = hits & self._search.index.snapshot.members
        return list(self._ledger.skills(self._namespace, live).values()) if live else []

    def _was_taken_out(self, draft: Draft) -> bool:
        """Whether somebody, or the verdicts, decided against exactly this text before."""
        rejected = self._ledger.drafts(self._namespace, state="rejected", limit=_REMEMBERED)
        if any(same_text(draft.skill, one.skill) for one in rejected):
            return True
        if not self._ledger.latest_version(self._namespace, draft.skill.name):
            return False
        history = self._ledger.skill_history(self._namespace, draft.skill.name)
        return any(
            same_text(draft.skill, one.skill) and one.intervals and one.intervals[-1].until
            for one in history
        )

    def _replaced(self, draft: Draft) -> list[Skill]:
        if draft.replaces is None:
            return []
        return list(self._ledger.live_versions(self._namespace, [draft.replaces]).values())

    def _commit(
        self,
        failures: Sequence[Failure],
        outcomes: Sequence[Outcome],
        winners: Mapping[str, Outcome],
    ) -> EvolutionReport:
        id = new_id()
        consumed = {one.trajectory.id: fate(one, outcomes) for one in failures}
        drafts: tuple[DraftRecord, ...] = ()

        def record(ids: Mapping[str, str]) -> Record:
            nonlocal drafts
            drafts = tuple(outcome.record(ids) for outcome in outcomes)
            return Record(
                details=self._details(id, consumed, winners),
                evolution=Evolution(id, self._evolver.name, consumed, drafts),
                probation=[
                    Probation(ids[name], self._config.holdout, one.old)
                    for name, one in winners.items()
                    if one.probation
                ],
            )

        change: Change | None = None
        if winners:
            change = self._library.put(
                [one.draft.skill for one in winners.values()],
                reason=f"learned {', '.join(winners)} from {len(consumed)} failures",
                source=EVOLVED,
                provenance={"evolution": id, "trajectories": sorted(consumed)},
                retire=self._surplus(winners),
                # Nothing that was not known when the drafts were placed is replaced.
                expected={name: one.old for name, one in winners.items()},
                record=record,
            )
        if change is not None and (change.added or change.updated):
            return EvolutionReport(id, len(consumed), drafts, change.generation)
        live = change.unchanged if change else ()  # somebody else has just put the same text
        drafts = tuple(one.record({i.rpartition("@")[0]: i for i in live}) for one in outcomes)
        evolution = Evolution(id, self._evolver.name, consumed, drafts)
        self._ledger.record_evolution(self._namespace, evolution)
        return EvolutionReport(id, len(consumed), drafts, None)

    def _details(
        self, id: str, consumed: Mapping[str, str], winners: Mapping[str, Outcome]
    ) -> dict[str, Json]:
        return {
            "source": EVOLVED,
            "evolver": self._evolver.name,
            "evolution": id,
            "consumed": len(consumed),
            "skills": {name: one.reason for name, one in winners.items()},
            "gate": {name: one.gate.to_json() for name, one in winners.items() if one.gate},
        }

    def _surplus(self, winners: Mapping[str, Outcome]) -> list[str]:
        """Whom to retire so that the library stays within its limit."""
        new = [name for name, one in winners.items() if one.old is None]
        size = len(self._search.index.snapshot.members)
        over = size + len(new) - self._config.library_limit
        if over <= 0:
            return []
        records = [
            record
            for record in our_records(self._ledger, self._namespace)
            if record.skill.name not in winners
        ]
        return least_useful(records, self._ledger.skill_counts(self._namespace), over)


def _origins(drafts: Sequence[Draft]) -> set[str]:
    return {id for draft in drafts for id in draft.origin}


def _by_trust(failures: Sequence[Failure]) -> list[list[Failure]]:
    """Runs with tool results apart: one of them must not make the others' lessons wait."""
    parts: tuple[list[Failure], list[Failure]] = ([], [])
    for failure in failures:
        parts[holds_tool_results(failure.trajectory)].append(failure)
    return [part for part in parts if part]
