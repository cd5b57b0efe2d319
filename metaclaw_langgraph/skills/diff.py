"""What changed between two generations, as a unified diff of the SKILL.md texts."""

from __future__ import annotations

from difflib import unified_diff

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.format import SKILL_FILE, render_skill
from metaclaw_langgraph.types import Skill

__all__ = ["diff_generations", "skill_diffs"]


def diff_generations(ledger: Ledger, namespace: str, g1: int, g2: int) -> str:
    """The diff of the members of `g1` and `g2`, skills by name; empty when they are the same.

    NotFoundError when there is no such generation.
    """
    return "".join(skill_diffs(ledger, namespace, g1, g2).values())


def skill_diffs(ledger: Ledger, namespace: str, g1: int, g2: int) -> dict[str, str]:
    """The same, one diff for each skill that changed."""
    before, after = _members(ledger, namespace, g1), _members(ledger, namespace, g2)
    found = ledger.skills(namespace, before ^ after)
    old = {found[id].name: found[id] for id in before - after}
    new = {found[id].name: found[id] for id in after - before}
    return {name: _diff(old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())}


def _members(ledger: Ledger, namespace: str, generation: int) -> set[str]:
    current = ledger.generation(namespace)
    if not 0 <= generation <= current:
        raise NotFoundError(
            f"no generation {generation} in namespace {namespace!r}: it has 0 to {current}"
        )
    return set(ledger.members(namespace, generation))


def _diff(old: Skill | None, new: Skill | None) -> str:
    return "".join(
        unified_diff(
            _lines(old),
            _lines(new),
            f"a/{old.name}/{SKILL_FILE}" if old else "/dev/null",
            f"b/{new.name}/{SKILL_FILE}" if new else "/dev/null",
            old.id if old else "",
            new.id if new else "",
        )
    )


def _lines(skill: Skill | None) -> list[str]:
    # Not `splitlines`, which also breaks at characters that are part of a line here.
    text = render_skill(skill) if skill else ""
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
