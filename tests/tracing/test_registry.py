"""The skills as prompts of MLflow: versions, and an alias for the one in force."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from metaclaw_langgraph.ledger import history
from metaclaw_langgraph.skills.format import render_skill
from metaclaw_langgraph.tracing import registry
from metaclaw_langgraph.tracing.context import Context
from metaclaw_langgraph.tracing.registry import Prompts, SkillMirror
from tests.tracing.conftest import NAMESPACE, Commit, skill


def mirror(context: Context) -> int:
    """Mirror until there is nothing to do, as a new exporter would; how many steps it took."""
    duty, steps = SkillMirror(context), 0
    while duty.run():
        steps += 1
    assert not duty.pending()
    return steps


def live(context: Context) -> dict[str, str]:
    """The skill id that is in force, by prompt."""
    found = {}
    for prompt in context.client.search_prompts(max_results=100):
        uri = f"prompts:/{prompt.name}@{registry.ALIAS}"
        version = context.client.load_prompt(uri, allow_missing=True, cache_ttl_seconds=0)
        if version is not None:
            found[prompt.name] = version.tags["metaclaw.skill"]
    return found


def versions(context: Context, name: str) -> list[Any]:
    found = context.client.search_prompt_versions(f"metaclaw.{NAMESPACE}.{name}")
    return sorted(found, key=lambda one: int(one.version))


def test_versions_and_the_alias(context: Context, commit: Commit) -> None:
    commit(["greet@1", "old@1"], reason="the first")
    assert mirror(context) == 1
    assert live(context) == {
        "metaclaw.shop.greet": "greet@1",
        "metaclaw.shop.old": "old@1",
    }
    commit(["greet@2"], ["greet@1", "old@1"], reason="better")
    assert mirror(context) == 1
    assert live(context) == {"metaclaw.shop.greet": "greet@2"}
    first, second = versions(context, "greet")
    assert first.template == render_skill(skill("greet@1"))
    assert second.template == render_skill(skill("greet@2"))
    assert (first.commit_message, second.commit_message) == ("the first", "better")
    assert second.tags["metaclaw.skill"] == "greet@2"
    assert second.tags["metaclaw.generation"] == "2"
    assert mirror(context) == 0


def test_prompts_are_listed_with_the_generations_only(
    context: Context, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have chosen one; the exporter's own process never does.
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    commit(["greet@1"])
    mirror(context)
    for thread in threading.enumerate():
        if thread.name.startswith("link_prompt_to_experiment"):
            thread.join(20)
    prompt = context.client.get_prompt("metaclaw.shop.greet")
    assert prompt is not None
    assert prompt.tags["_mlflow_experiment_ids"] == f",{context.experiment('skills')},"


def test_a_rollback_moves_the_alias_back(context: Context, commit: Commit) -> None:
    commit(["greet@1"])
    commit(["greet@2"], ["greet@1"])
    context.ledger.rollback_generation(NAMESPACE, 1, "worse")
    assert mirror(context) == 3
    assert live(context) == {"metaclaw.shop.greet": "greet@1"}
    assert len(versions(context, "greet")) == 2
    context.ledger.rollback_generation(NAMESPACE, 0, "none of it")
    assert mirror(context) == 1
    assert live(context) == {}


def test_many_skills_take_turns(context: Context, commit: Commit) -> None:
    commit([f"skill-{number}@1" for number in range(registry._BATCH + 5)])
    assert mirror(context) == 2
    assert len(live(context)) == registry._BATCH + 5


def test_what_was_done_before_it_failed_is_not_done_again(
    context: Context, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(["a@1", "b@1", "c@1"])
    right = Prompts.put

    def put(self: Prompts, one: Any, record: Any) -> None:
        right(self, one, record)
        if one.name == "b":
            raise RuntimeError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Prompts, "put", put)
        with pytest.raises(RuntimeError, match="gone"):
            SkillMirror(context).run()
    assert mirror(context) == 1
    assert [len(versions(context, name)) for name in "abc"] == [1, 1, 1]
    assert set(live(context).values()) == {"a@1", "b@1", "c@1"}


def test_a_prompt_that_somebody_deleted_is_not_missed(context: Context, commit: Commit) -> None:
    commit(["greet@1"])
    mirror(context)
    context.client.delete_prompt("metaclaw.shop.greet")
    commit([], ["greet@1"])
    assert mirror(context) == 1


def test_no_two_skills_share_a_prompt(context: Context) -> None:
    from mlflow.prompt.registry_utils import validate_prompt_name

    names = set()
    for namespace in ("a", "a-b", "a.b", "a_b"):
        context.namespace = namespace
        names |= {Prompts(context).name_of(name) for name in ("b", "b-c", "c")}
    assert len(names) == 12
    for name in names:
        validate_prompt_name(name)


def test_no_generation_no_prompt(context: Context) -> None:
    assert mirror(context) == 0
    assert context.find_experiment("skills") is None


def test_each_generation_is_read_once_however_many_there_are(
    context: Context, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new MLflow is given all of them, one after the other."""
    for number in range(1, 13):
        commit([f"greet@{number}"], [f"greet@{number - 1}"] if number > 1 else [])
    read: list[int] = []
    right = history._records

    def records(connection: Any, namespace: str, rows: Any) -> Any:
        read.extend(row["generation"] for row in rows)
        return right(connection, namespace, rows)

    monkeypatch.setattr(history, "_records", records)
    assert mirror(context) == 12
    assert read == list(range(1, 13))
    assert live(context) == {"metaclaw.shop.greet": "greet@12"}
