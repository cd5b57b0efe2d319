"""Ends probations: what the counts prove stays, everything else makes room."""

from __future__ import annotations

from dataclasses import replace

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.evolving.probation import Evidence, weigh
from metaclaw_langgraph.ledger import Ledger, Probation, ProbationState
from metaclaw_langgraph.skills.library import Record, SkillLibrary

__all__ = ["decide_probations", "probation_evidence"]

_WHY = {
    "hurts": "runs pass less often with it",
    "no difference": "no proof that it helps",
}


def decide_probations(ledger: Ledger, library: SkillLibrary, limit: int) -> list[Probation]:
    """Weigh every open probation; those that were decided now."""
    decided = []
    trials = ledger.open_trials(library.namespace)
    for probation in ledger.probations(library.namespace) if trials else []:
        evidence = weigh(trials.get(probation.skill_id, ()), probation.holdout, limit)
        if evidence.decision == "undecided":
            continue
        state: ProbationState = "kept" if evidence.decision == "helps" else "retired"
        closed = replace(probation, state=state, evidence=evidence.to_json())
        try:
            _close(ledger, library, closed, evidence)
        except (ConflictError, NotFoundError):
            continue  # somebody else changed the library; looked at again soon
        decided.append(closed)
    return decided


def probation_evidence(
    ledger: Ledger, namespace: str, probation: Probation, limit: int
) -> Evidence:
    """What the runs so far say about a skill on probation."""
    trials = ledger.trials(namespace, probation.skill_id)
    return weigh(trials, probation.holdout, limit)


def _close(ledger: Ledger, library: SkillLibrary, closed: Probation, evidence: Evidence) -> None:
    if closed.state == "kept":
        ledger.close_probation(library.namespace, closed)
        return
    name = closed.skill_id.rpartition("@")[0]
    record = Record(
        details={"source": "probation", "probation": {name: evidence.to_json()}},
        closed=[closed],
        probation=_unproven(ledger, library, closed),
    )
    reason = f"{closed.skill_id} did not prove itself: {_WHY[evidence.decision]}"
    library.withdraw(closed.skill_id, reason, record)


def _unproven(ledger: Ledger, library: SkillLibrary, closed: Probation) -> list[Probation]:
    """The version that comes back goes on probation again, if it was replaced while on one."""
    before = library.replaced_by(closed.skill_id)
    past = [
        one for one in ledger.probations(library.namespace, state=None) if one.skill_id == before
    ]
    if before is None or not past or any(one.state == "kept" for one in past):
        return []
    return [Probation(before, closed.holdout, past[-1].fallback)]
