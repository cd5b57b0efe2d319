"""MLflow's skill registry: servers from 3.18 on have it, and a client of that version knows it."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path
from typing import Any

from metaclaw_langgraph.ledger import GenerationRecord
from metaclaw_langgraph.skills.format import SKILL_FILE, render_skill
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.types import Skill

__all__ = ["SkillRegistry", "has_skill_registry", "organization"]

_ALIAS = "live"
_ORGANIZATION = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")
_LONGEST = 64


def has_skill_registry(context: Context) -> bool:
    """Whether the client knows of it, and a server answers for it.

    Content is uploaded through a server; a database alone cannot take it.
    """
    import mlflow.genai

    if not hasattr(mlflow.genai, "register_skill"):
        return False
    if not context.order.mlflow_uri.startswith(("http://", "https://")):
        return False
    client: Any = context.client
    try:
        client.search_skills(max_results=1)
    except Exception as error:
        context.require_reachable(error)
        return False
    return True


def organization(namespace: str) -> str:
    """The namespace as the name of an organization, which may hold less than a namespace may."""
    name = f"metaclaw.{namespace}"
    if _ORGANIZATION.fullmatch(name) and len(name) <= _LONGEST:
        return name
    short = re.sub(r"[^a-z0-9]+", "-", namespace).strip("-")[:40].strip("-")
    return f"metaclaw.{short}.{hashlib.sha256(namespace.encode()).hexdigest()[:8]}"


class SkillRegistry:
    """Skills as skills: one organization for the namespace, one version for each of ours."""

    def __init__(self, context: Context) -> None:
        self._client: Any = context.client
        self._organization = organization(context.namespace)

    def put(self, skill: Skill, record: GenerationRecord) -> None:
        which = {"name": skill.name, "organization": self._organization}
        version = self._versions(skill.name).get(skill.id)
        if version is None:
            version = self._register(skill)
            tags = {"metaclaw.generation": str(record.generation), "metaclaw.reason": record.reason}
            # The one that it is found by comes last: then all of them are there.
            for key, value in {**tags, "metaclaw.skill": skill.id}.items():
                self._client.set_skill_version_tag(
                    **which, version=version, key=key, value=value[:1000]
                )
        self._client.set_skill_alias(**which, alias=_ALIAS, version=version)

    def retire(self, name: str) -> None:
        found = self._find(name)
        if found is not None and _ALIAS in found.aliases:  # it refuses to delete what is not there
            self._client.delete_skill_alias(
                name=name, alias=_ALIAS, organization=self._organization
            )

    def _register(self, skill: Skill) -> int:
        import mlflow.genai

        register: Any = mlflow.genai.register_skill  # type: ignore[attr-defined]
        with tempfile.TemporaryDirectory(prefix="metaclaw-skill-") as folder:
            place = Path(folder, skill.name)
            place.mkdir()
            (place / SKILL_FILE).write_text(render_skill(skill), encoding="utf-8")
            made = register(source=str(place), name=skill.name, organization=self._organization)
        return int(made.version)

    def _find(self, name: str) -> Any:
        identity = f"@{self._organization}/{name}"
        return next(iter(self._client.search_skills(include_skill_identities=[identity])), None)

    def _versions(self, name: str) -> dict[str, int]:
        """The version of each of our skills that is there already."""
        if self._find(name) is None:
            return {}
        found: dict[str, int] = {}
        token: str | None = None
        while True:
            page = self._client.search_skill_versions(
                name=name, organization=self._organization, page_token=token
            )
            found.update((one.tags.get("metaclaw.skill", ""), int(one.version)) for one in page)
            token = page.token
            if not token:
                return found
