"""What an evolver is: it reads failures and proposes skills. It decides nothing.

Everything that it proposes is a draft: guarded, compared with the library and proven before it
goes live (`evolution.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from metaclaw_langgraph.errors import MetaClawError
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Skill

__all__ = ["Draft", "Evolver", "EvolverError"]


class EvolverError(MetaClawError, RuntimeError):
    """The evolver gave no answer that can be used; the failures wait for the next attempt."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A proposed skill."""

    skill: Skill
    """Its version is 0."""
    replaces: str | None
    """The name of the live skill that it is meant to be a better version of."""
    origin: tuple[str, ...]
    """The trajectories that it was written from."""
    reason: str
    """What the evolver says that it is for."""


@runtime_checkable
class Evolver(Protocol):
    """Writes skills from failures."""

    name: str
    """Who it is, for the record: a model's name, or `offline`."""
    needs_words: bool
    """Whether it learns only from failures that a person or a verifier has put into words."""

    def wants(self, failure: Failure) -> bool:
        """Whether it can learn from this one; others stay in the support set."""

    def draft(self, failures: Sequence[Failure], related: Sequence[Skill]) -> Sequence[Draft]:
        """Skills that would have helped; `related` are live skills on the same matters."""

    def merge(self, old: Skill, new: Skill) -> Skill:
        """One skill that says what both say, under the name of the old one."""
