"""A home whose library holds a skill."""

from __future__ import annotations

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.types import Skill

SKILL_TEXT = "Check the answer twice before you give it."


def add_skill(
    config: MetaClawConfig, name: str = "check-twice", body: str = SKILL_TEXT, description: str = ""
) -> str:
    """Put one skill live, as the next generation; its id."""
    ledger = Ledger.open(config.resolved_ledger_url)
    try:
        version = ledger.latest_version(config.namespace, name) + 1
        skill = Skill(name, description or f"When to {name}", body, version)
        ledger.stage_skills(config.namespace, [NewSkill(skill)])
        now = ledger.generation(config.namespace)
        ledger.commit_generation(
            config.namespace, expected=now, add=[skill.id], remove=[], reason="test"
        )
        return skill.id
    finally:
        ledger.close()
