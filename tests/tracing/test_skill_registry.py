"""MLflow's skill registry, which the installed MLflow does not have: a stand-in has its calls.

The stand-in has the signatures and the refusals of MLflow 3.18: keyword arguments only, versions
counted by the server, an alias that is not there cannot be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.tracing.registry import Prompts, SkillMirror
from metaclaw_langgraph.tracing.skill_registry import SkillRegistry, organization
from tests.tracing.conftest import NAMESPACE, Commit, skill


class Page(list[Any]):
    token: str | None = None


@dataclass
class Version:
    version: int
    text: str
    tags: dict[str, str] = field(default_factory=dict)


@dataclass
class Entry:
    versions: list[Version] = field(default_factory=list)
    aliases: dict[str, int] = field(default_factory=dict)


class StandIn:
    """The part of MLflow 3.18's client that is used, in front of a client that lacks it."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.entries: dict[str, Entry] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def register_skill(
        self,
        *,
        source: str,
        name: str | None = None,
        organization: str = "",
        status: str = "active",
    ) -> Version:
        assert status == "active"
        entry = self.entries.setdefault(f"@{organization}/{name}", Entry())
        text = Path(source, "SKILL.md").read_text()
        entry.versions.append(Version(len(entry.versions) + 1, text))
        return entry.versions[-1]

    def search_skills(
        self, *, max_results: int = 100, include_skill_identities: list[str] | None = None
    ) -> Page:
        wanted = self.entries if include_skill_identities is None else include_skill_identities
        return Page([self.entries[one] for one in wanted if one in self.entries][:max_results])

    def search_skill_versions(
        self, *, name: str, organization: str = "", page_token: str | None = None
    ) -> Page:
        every = self.entries[f"@{organization}/{name}"].versions
        start = int(page_token or 0)
        page = Page(every[start : start + 1])
        page.token = str(start + 1) if start + 1 < len(every) else None
        return page

    def set_skill_version_tag(
        self, *, name: str, version: int, key: str, value: str, organization: str = ""
    ) -> None:
        self.entries[f"@{organization}/{name}"].versions[version - 1].tags[key] = value

    def set_skill_alias(
        self, *, name: str, alias: str, version: int, organization: str = ""
    ) -> None:
        self.entries[f"@{organization}/{name}"].aliases[alias] = version

    def delete_skill_alias(self, *, name: str, alias: str, organization: str = "") -> None:
        del self.entries[f"@{organization}/{name}"].aliases[alias]


@pytest.fixture
def stand_in(context: Context, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    import mlflow.genai

    made = StandIn(context.client)
    context._client = made  # type: ignore[assignment]
    context.order = replace(context.order, mlflow_uri="http://127.0.0.1:1")
    monkeypatch.setattr(mlflow.genai, "register_skill", made.register_skill, raising=False)
    return made


def mirror(context: Context) -> SkillMirror:
    duty = SkillMirror(context)
    while duty.run():
        pass
    return duty


def test_skills_in_a_stand_in_of_the_skill_registry(
    context: Context, commit: Commit, stand_in: StandIn
) -> None:
    commit(["greet@1", "old@1"], reason="the first")
    commit(["greet@2"], ["greet@1", "old@1"], reason="better")
    duty = mirror(context)
    assert isinstance(duty._registry, SkillRegistry)
    assert set(stand_in.entries) == {"@metaclaw.shop/greet", "@metaclaw.shop/old"}
    greet, old = stand_in.entries["@metaclaw.shop/greet"], stand_in.entries["@metaclaw.shop/old"]
    assert [one.text for one in greet.versions] == [
        render_skill(skill("greet@1")),
        render_skill(skill("greet@2")),
    ]
    assert greet.versions[1].tags == {
        "metaclaw.skill": "greet@2",
        "metaclaw.generation": "2",
        "metaclaw.reason": "better",
    }
    assert (greet.aliases, old.aliases) == ({"live": 2}, {})


def test_a_rollback_in_a_stand_in_of_the_skill_registry(
    context: Context, commit: Commit, stand_in: StandIn
) -> None:
    commit(["greet@1"])
    commit(["greet@2"], ["greet@1"])
    context.ledger.rollback_generation(NAMESPACE, 1, "worse")
    context.ledger.rollback_generation(NAMESPACE, 0, "none")
    context.ledger.rollback_generation(NAMESPACE, 1, "after all")
    mirror(context)
    (greet,) = stand_in.entries.values()
    assert len(greet.versions) == 2
    assert greet.aliases == {"live": 1}


def test_retired_twice_in_a_stand_in_of_the_skill_registry(
    context: Context, commit: Commit, stand_in: StandIn
) -> None:
    commit(["greet@1"])
    mirror(context)
    made = SkillRegistry(context)
    made.retire("greet")
    made.retire("greet")
    made.retire("never-there")
    assert stand_in.entries["@metaclaw.shop/greet"].aliases == {}


def test_a_server_without_it_gets_prompts_stand_in(
    context: Context, commit: Commit, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> Page:
        raise RuntimeError("404")

    monkeypatch.setattr(stand_in, "search_skills", refuse)
    commit(["greet@1"])
    assert isinstance(mirror(context)._registry, Prompts)


def test_a_database_gets_prompts_stand_in(
    context: Context, commit: Commit, stand_in: StandIn
) -> None:
    context.order = replace(context.order, mlflow_uri="sqlite:///x")
    commit(["greet@1"])
    assert isinstance(mirror(context)._registry, Prompts)


def test_organizations() -> None:
    assert organization("shop") == "metaclaw.shop"
    assert organization("a.b-c") == "metaclaw.a.b-c"
    odd = [organization(name) for name in ("a_b", "a__b", "a-", "x" * 63, "a--b", "a.-b")]
    assert len(set(odd)) == len(odd)
    from metaclaw_langgraph.tracing.skill_registry import _ORGANIZATION

    assert all(_ORGANIZATION.fullmatch(name) and len(name) <= 64 for name in odd)
