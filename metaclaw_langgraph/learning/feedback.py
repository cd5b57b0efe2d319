"""A person's verdict on a run: the same from an app and from the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from numbers import Real

from metaclaw_langgraph.errors import ConfigError, NotFoundError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Role, Verdict

__all__ = ["give_feedback"]


def give_feedback(
    ledger: Ledger,
    namespace: str,
    reward: float | bool,
    reason: str = "",
    *,
    trajectory_id: str | None = None,
    run_id: str | None = None,
    thread_id: str | None = None,
    author: str | None = None,
) -> tuple[str, Role]:
    """Store the verdict; the trajectory that it is on, and the role that it has now.

    True and False stand for 1 and -1. Without a mark, it is on the latest run.
    """
    value = _value(reward)
    found = ledger.find_trajectory(namespace, id=trajectory_id, run_id=run_id, thread_id=thread_id)
    if found is None:
        wanted = trajectory_id or run_id or thread_id
        raise NotFoundError(
            f"no trajectory in namespace {namespace!r}"
            + (f" for {wanted!r}" if wanted else " yet")
            + "; `metaclaw trajectories list` shows them"
        )
    verdict = Verdict(value, "human", reason, author, at=datetime.now(UTC))
    return found, ledger.add_verdict(namespace, found, verdict)


def _value(reward: object) -> float:
    if isinstance(reward, bool):
        return 1.0 if reward else -1.0
    # The comparison also refuses NaN.
    if not isinstance(reward, Real) or not -1.0 <= float(reward) <= 1.0:
        raise ConfigError(f"reward must be between -1 and 1, or a bool, not {reward!r}")
    return float(reward)
