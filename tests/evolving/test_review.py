"""A person's decision on a draft."""

from __future__ import annotations

from typing import Any

import pytest

from metaclaw_langgraph.errors import ConflictError, NotFoundError
from metaclaw_langgraph.evolving.review import approve, reject
from metaclaw_langgraph.ledger import DraftRecord, Evolution
from metaclaw_langgraph.types import Skill
from tests.evolving.support import NAMESPACE, Home, StandInEvolver

ADVICE = Skill("bake-bread", "bake a loaf of bread", "Weigh the flour.")
GUESS = Skill("bake-bread", "bake a loaf of bread", "Guess the flour.")
TASK = "bake a loaf of bread"


def waiting(shop: Home) -> str:
    """A draft of a new skill in review; its id."""
    shop.fail(TASK, "bad", "judge")
    report = shop.evolving(StandInEvolver(ADVICE), review="always").evolve(shop.failures())
    assert report.drafts[0].state == "review"
    return report.drafts[0].id


def written(shop: Home, base: str) -> str:
    """A draft in review that was written to replace a live version; its id."""
    draft = DraftRecord("d-1", ADVICE, "review", "bake-bread", (), True, "a tool's", base=base)
    shop.ledger.record_evolution(NAMESPACE, Evolution("e-1", "stand-in", {}, (draft,)))
    return draft.id


def test_an_approved_draft_is_live_without_probation(shop: Home) -> None:
    id = waiting(shop)
    assert approve(shop.ledger, shop.library, id, "kim", "I tried it") == 1
    draft = shop.ledger.draft(NAMESPACE, id)
    assert (draft.state, draft.decided_by, draft.skill_id) == ("live", "kim", "bake-bread@1")
    assert draft.reason == "I tried it"
    assert "Weigh the flour." in shop.retriever.retrieve(TASK).block
    assert shop.ledger.probations(NAMESPACE) == []
    record = shop.library.history()[0]
    assert record.reason == "bake-bread approved by kim"
    assert record.details["by"] == "kim"
    stored = shop.library.show("bake-bread")
    assert stored.source == "evolver"
    assert stored.provenance == {"draft": id, "trajectories": list(draft.origin)}


def test_a_rejected_draft_stays_on_record(shop: Home) -> None:
    id = waiting(shop)
    reject(shop.ledger, NAMESPACE, id, "kim")
    draft = shop.ledger.draft(NAMESPACE, id)
    assert (draft.state, draft.decided_by, draft.reason) == ("rejected", "kim", "rejected")
    assert draft.skill.body == "Weigh the flour."
    assert shop.names() == []
    assert shop.ledger.generation(NAMESPACE) == 0


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_a_draft_is_decided_once(shop: Home, first: str, second: str) -> None:
    id = waiting(shop)

    def decide(how: str) -> None:
        if how == "approve":
            approve(shop.ledger, shop.library, id, "kim")
        else:
            reject(shop.ledger, NAMESPACE, id, "kim")

    decide(first)
    before = shop.names(), shop.ledger.draft(NAMESPACE, id)
    with pytest.raises(ConflictError, match="does not wait for review any more"):
        decide(second)
    assert (shop.names(), shop.ledger.draft(NAMESPACE, id)) == before


def test_a_draft_is_named_by_the_beginning_of_its_id(shop: Home) -> None:
    id = waiting(shop)
    assert approve(shop.ledger, shop.library, id[:30], "kim") == 1
    with pytest.raises(NotFoundError):
        approve(shop.ledger, shop.library, "no-such-draft", "kim")


def test_a_new_skill_does_not_replace_one_that_is_live_meanwhile(shop: Home) -> None:
    id = waiting(shop)
    shop.put(Skill("bake-bread", "sweep floors", "Theirs."))
    with pytest.raises(ConflictError, match="a skill 'bake-bread' is live meanwhile"):
        approve(shop.ledger, shop.library, id, "kim")
    assert shop.library.active()[0].body == "Theirs."
    shop.library.retire(["bake-bread"])
    approve(shop.ledger, shop.library, id, "kim")
    assert shop.names() == ["bake-bread@2"]


def test_a_better_version_replaces_the_live_one(shop: Home) -> None:
    shop.put(GUESS)
    id = written(shop, base="bake-bread@1")
    approve(shop.ledger, shop.library, id, "kim")
    assert [one.body for one in shop.library.active()] == ["Weigh the flour."]
    assert shop.names() == ["bake-bread@2"]


def test_a_better_version_does_not_replace_a_newer_one(shop: Home) -> None:
    shop.put(GUESS)
    id = written(shop, base="bake-bread@1")
    shop.put(Skill("bake-bread", "bake a loaf of bread", "Theirs."))
    with pytest.raises(
        ConflictError, match="replace bake-bread@1, which is replaced by bake-bread@2 meanwhile"
    ):
        approve(shop.ledger, shop.library, id, "kim")
    assert shop.library.active()[0].body == "Theirs."
    assert shop.ledger.draft(NAMESPACE, id).state == "review"
    shop.library.rollback(1)
    approve(shop.ledger, shop.library, id, "kim")
    assert shop.names() == ["bake-bread@3"]


def test_a_better_version_of_what_is_gone_meanwhile_is_refused(shop: Home) -> None:
    shop.put(GUESS)
    id = written(shop, base="bake-bread@1")
    shop.library.retire(["bake-bread"])
    with pytest.raises(ConflictError, match="replace bake-bread@1, which is no longer live"):
        approve(shop.ledger, shop.library, id, "kim")
    assert shop.names() == []
    reject(shop.ledger, NAMESPACE, id, "kim")


def test_a_version_that_comes_at_the_last_moment_is_not_replaced(
    shop: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.put(GUESS)
    id = written(shop, base="bake-bread@1")
    right = shop.library.put

    def put(*given: Any, **others: Any) -> Any:
        monkeypatch.undo()
        shop.put(Skill("bake-bread", "bake a loaf of bread", "Theirs."))
        return right(*given, **others)

    monkeypatch.setattr(shop.library, "put", put)
    with pytest.raises(ConflictError, match="replaced by bake-bread@2 meanwhile"):
        approve(shop.ledger, shop.library, id, "kim")
    assert shop.library.active()[0].body == "Theirs."
    assert shop.ledger.draft(NAMESPACE, id).state == "review"


def test_a_draft_whose_text_is_live_already_is_to_be_rejected(shop: Home) -> None:
    shop.put(ADVICE)
    id = written(shop, base="bake-bread@1")
    with pytest.raises(
        ConflictError, match="bake-bread@1 is live and says exactly this: reject the draft"
    ):
        approve(shop.ledger, shop.library, id, "kim")
    assert shop.ledger.generation(NAMESPACE) == 1
    reject(shop.ledger, NAMESPACE, id, "kim")
