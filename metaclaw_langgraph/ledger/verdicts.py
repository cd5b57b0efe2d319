"""Verdicts, and the role that the effective one gives its trajectory.

human > verifier > judge > run; of one rank the later wins. A trajectory that was interrupted or
cancelled says nothing about the agent, so only a human's verdict counts there. The move to a role
is in the transaction that stores the verdict. Data that was already consumed by an evolution or
trained on keeps its role: that use cannot be undone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from sqlalchemy import Connection, RowMapping, select

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.schema import trajectories, verdicts
from metaclaw_langgraph.ledger.store import Store, clean, dump, now, require_namespace
from metaclaw_langgraph.types import Role, Verdict, VerdictSource

__all__ = ["VerdictStore"]

_RANK: dict[VerdictSource, int] = {"run": 0, "judge": 1, "verifier": 2, "human": 3}
_FINAL: tuple[Role, ...] = ("consumed", "trained")


class VerdictStore(Store):
    """The part of the ledger that holds verdicts."""

    def add_verdict(self, namespace: str, trajectory_id: str, verdict: Verdict) -> Role:
        """Store a verdict; the role that the trajectory has now."""
        row = self._verdict_row(require_namespace(namespace), trajectory_id, verdict)
        with self._write() as connection:
            current = self._lock(connection, namespace)
            trajectory = _judged(connection, namespace, trajectory_id)
            connection.execute(verdicts.insert(), row)
            effective = _effective(
                trajectory["outcome"], _verdicts(connection, namespace, trajectory_id)
            )
            role = _role(trajectory, effective, current)
            _move(connection, namespace, trajectory_id, role, effective)
        return role

    def verdicts(self, namespace: str, trajectory_id: str) -> list[Verdict]:
        """All verdicts on a trajectory, in the order of their arrival."""
        require_namespace(namespace)
        with self._read() as connection:
            return _verdicts(connection, namespace, trajectory_id)

    def _verdict_row(self, namespace: str, id: str, verdict: Verdict) -> dict[str, object]:
        _check(verdict)
        text = self._redactor.text
        scores = verdict.step_scores
        return {
            "namespace": namespace,
            "trajectory_id": id,
            "reward": float(verdict.reward),
            "source": verdict.source,
            "reason": clean(text(verdict.reason)),
            "author": None if verdict.author is None else clean(text(verdict.author)),
            "step_scores": None if scores is None else dump(scores),
            "at": verdict.at or now(),
        }


def _check(verdict: Verdict) -> None:
    # The comparison also refuses NaN.
    if not -1 <= verdict.reward <= 1:
        raise ValueError(f"a reward is a number from -1 to 1, got {verdict.reward!r}")
    if verdict.source not in _RANK:
        raise ValueError(f"a verdict's source is one of {', '.join(_RANK)}, got {verdict.source!r}")


def _judged(connection: Connection, namespace: str, id: str) -> RowMapping:
    row = trajectories.c
    query = select(row.outcome, row.role, row.generation).where(
        row.namespace == namespace, row.id == id
    )
    found = connection.execute(query).mappings().first()
    if found is None:
        raise NotFoundError(f"no trajectory {id!r} in namespace {namespace!r}")
    return found


def _verdicts(connection: Connection, namespace: str, id: str) -> list[Verdict]:
    row = verdicts.c
    query = (
        select(verdicts)
        .where(row.namespace == namespace, row.trajectory_id == id)
        .order_by(row.seq)
    )
    return [_verdict(found) for found in connection.execute(query).mappings()]


def _verdict(row: RowMapping) -> Verdict:
    scores = row["step_scores"]
    return Verdict(
        reward=row["reward"],
        source=cast(VerdictSource, row["source"]),
        reason=row["reason"],
        author=row["author"],
        step_scores=None if scores is None else tuple(json.loads(scores)),
        at=row["at"],
    )


def _effective(outcome: str, given: Sequence[Verdict]) -> Verdict | None:
    judgeable = outcome in ("ok", "failed")
    counted = [verdict for verdict in given if judgeable or verdict.source == "human"]
    # max() keeps the first of equals, so look from the latest on.
    return max(reversed(counted), key=lambda verdict: _RANK[verdict.source], default=None)


def _role(trajectory: RowMapping, effective: Verdict | None, current: int) -> Role:
    role = cast(Role, trajectory["role"])
    if effective is None or role in _FINAL:
        return role
    if effective.reward <= 0:
        return "support"
    # Query data is of the current generation only; what was sampled earlier is for the record.
    return "query" if trajectory["generation"] == current else "stale"


def _move(
    connection: Connection, namespace: str, id: str, role: Role, effective: Verdict | None
) -> None:
    row = trajectories.c
    reward = None if effective is None else effective.reward
    update = trajectories.update().where(row.namespace == namespace, row.id == id)
    connection.execute(update.values(role=role, reward=reward))
