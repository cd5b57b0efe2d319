"""What became of a draft, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.gate import GateReport
from metaclaw_langgraph.evolving.guard import Finding
from metaclaw_langgraph.ledger import DraftRecord, DraftState, Failure
from metaclaw_langgraph.types import Json, Skill
from metaclaw_langgraph.wrapping.run import new_id

__all__ = ["Outcome", "fate", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A draft and what the pipeline made of it."""

    draft: Draft
    state: DraftState
    reason: str
    untrusted: bool = False
    findings: tuple[Finding, ...] = ()
    gate: GateReport | None = None
    probation: bool = False
    old: str | None = None
    """The live version that it was written to replace."""

    def record(self, ids: Mapping[str, str]) -> DraftRecord:
        """For the ledger; `ids` are the ids of the live skills by name."""
        skill = self.draft.skill
        live = self.state == "live"
        return DraftRecord(
            id=new_id(),
            # What the guard refuses is not kept: the text may be the harm.
            skill=Skill(skill.name, "", "") if self.state == "refused" else skill,
            state=self.state,
            replaces=self.draft.replaces,
            origin=self.draft.origin,
            untrusted=self.untrusted,
            reason=self.reason,
            evidence=self._evidence(),
            skill_id=ids.get(skill.name) if live else None,
            base=self.old,
        )

    def _evidence(self) -> dict[str, Json]:
        found: dict[str, Json] = {} if self.state == "refused" else {"why": self.draft.reason}
        if self.findings:
            found["guard"] = [self._told(one) for one in self.findings]
        if self.gate is not None:
            found["gate"] = self.gate.to_json()
        if self.state == "live":
            found["probation"] = self.probation
        return found

    def _told(self, finding: Finding) -> Json:
        return {
            "kind": finding.kind,
            "severity": finding.severity,
            "line": finding.line,
            # What the guard refuses is not kept, nor is what it quotes of it.
            "detail": "" if self.state == "refused" else finding.detail,
        }


def refused(draft: Draft, findings: tuple[Finding, ...]) -> Outcome | None:
    """The guard's refusal, if it refuses."""
    kinds = sorted({one.kind for one in findings if one.severity == "refuse"})
    if not kinds:
        return None
    reason = f"refused by the guard: {', '.join(kinds)}"
    return Outcome(draft, "refused", reason, findings=findings)


def fate(failure: Failure, outcomes: Sequence[Outcome]) -> str:
    """Why a failure counts as consumed."""
    mine = [one for one in outcomes if failure.trajectory.id in one.draft.origin]
    return ", ".join(f"{one.draft.skill.name}: {one.state}" for one in mine) or "nothing to learn"
