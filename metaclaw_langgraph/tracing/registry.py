"""The skills, mirrored to MLflow: to its skill registry where the server has one, else as prompts.

How far the mirror has come is a tag on the experiment of the generations, so it belongs to the
same store: on a new MLflow everything is mirrored anew. Each change is made so that making it
again changes nothing, and the tag moves on when all changes of a generation are made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from metaclaw_langgraph.ledger import GenerationRecord
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.tracing.skill_registry import SkillRegistry, has_skill_registry
from metaclaw_langgraph.types import Skill

__all__ = ["ALIAS", "Prompts", "Registry", "SkillMirror"]

ALIAS = "live"
_DONE = "metaclaw.mirrored"
_BATCH = 20
_EXPERIMENT = "MLFLOW_EXPERIMENT_ID"
_log = logging.getLogger("metaclaw.exporter")


class Registry(Protocol):
    """Where skills are shown, with their versions."""

    def put(self, skill: Skill, record: GenerationRecord) -> None:
        """See that this version is there and is the one in force."""

    def retire(self, name: str) -> None:
        """No version of this skill is in force any more."""


class SkillMirror:
    """The duty: the changes of one generation after the other, a few skills at a time."""

    name = "skill registry"
    every = 5.0

    def __init__(self, context: Context) -> None:
        self._context = context
        self._registry: Registry | None = None
        self._mirrored: int | None = None
        self._made: set[str] = set()

    def pending(self) -> bool:
        done = self._mirrored
        return done is not None and self._context.ledger.generation(self._context.namespace) > done

    def run(self) -> bool:
        current = self._context.ledger.generation(self._context.namespace)
        if not current or self._so_far() >= current:
            return False
        number = self._so_far() + 1
        record = self._context.ledger.generation_record(self._context.namespace, number)
        registry = self._open()
        if record is None or self._mirror(registry, record):
            self._done(number)
        return True

    def _so_far(self) -> int:
        if self._mirrored is None:
            experiment = self._context.client.get_experiment(self._context.experiment("skills"))
            tag = str(experiment.tags.get(_DONE, ""))
            self._mirrored = int(tag) if tag.isdecimal() else 0
        return self._mirrored

    def _done(self, number: int) -> None:
        experiment_id = self._context.experiment("skills")
        self._context.client.set_experiment_tag(experiment_id, _DONE, str(number))
        self._mirrored = number
        self._made.clear()

    def _mirror(self, registry: Registry, record: GenerationRecord) -> bool:
        """Make some of the changes that are left; whether these were the last."""
        changed = [id for id in (*record.removed, *record.added) if id not in self._made]
        stay = {_name(id) for id in record.added}
        some = changed[:_BATCH]
        skills = self._context.ledger.skills(self._context.namespace, some)
        for id in some:
            if id in record.added and id in skills:
                registry.put(skills[id], record)
            elif _name(id) not in stay:
                registry.retire(_name(id))
            self._made.add(id)
        return len(some) == len(changed)

    def _open(self) -> Registry:
        if self._registry is None:
            found = has_skill_registry(self._context)
            _log.info("skills are mirrored to %s", "the skill registry" if found else "prompts")
            self._registry = SkillRegistry(self._context) if found else Prompts(self._context)
        return self._registry


class Prompts:
    """Skills as prompts, for a server without a skill registry."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client

    def name_of(self, skill: str) -> str:
        # A skill's name has no dot in it, so no two skills of any namespaces share a prompt.
        return f"metaclaw.{self._context.namespace}.{skill}"

    def put(self, skill: Skill, record: GenerationRecord) -> None:
        name = self.name_of(skill.name)
        version = self._version(name, skill.id)
        if version is None:
            experiment_id = self._context.experiment("skills")
            tags = {
                "metaclaw.namespace": self._context.namespace,
                "metaclaw.skill": skill.id,
                "metaclaw.generation": str(record.generation),
                "_mlflow_experiment_ids": f",{experiment_id},",  # on whose page it is listed
            }
            with _active(experiment_id):
                made = self._client.register_prompt(name, render_skill(skill), record.reason, tags)
            version = int(made.version)
        self._client.set_prompt_alias(name, ALIAS, version)

    def retire(self, name: str) -> None:
        prompt = self.name_of(name)
        if self._versions(prompt):
            self._client.delete_prompt_alias(prompt, ALIAS)

    def _version(self, name: str, skill_id: str) -> int | None:
        return self._versions(name).get(skill_id)

    def _versions(self, name: str) -> dict[str, int]:
        """The version of each skill that is there already."""
        if self._client.get_prompt(name) is None:
            return {}
        found: dict[str, int] = {}
        token: str | None = None
        while True:
            page = self._client.search_prompt_versions(name, 100, token)
            found.update((one.tags.get("metaclaw.skill", ""), int(one.version)) for one in page)
            token = page.token
            if not token:
                return found


@contextmanager
def _active(experiment_id: str) -> Iterator[None]:
    """MLflow lists a new prompt also in the experiment that it takes for the active one."""
    before = os.environ.get(_EXPERIMENT)
    os.environ[_EXPERIMENT] = experiment_id
    try:
        yield
    finally:
        os.environ.pop(_EXPERIMENT)
        if before is not None:
            os.environ[_EXPERIMENT] = before


def _name(skill_id: str) -> str:
    return skill_id.rpartition("@")[0]
