"""The end of a probation: on a real ledger and library, by the verdicts on runs."""

from __future__ import annotations

import random

from metaclaw_langgraph.evolving.probation import weigh
from metaclaw_langgraph.evolving.trials import decide_probations, probation_evidence
from metaclaw_langgraph.ledger import Probation
from metaclaw_langgraph.skills.library import Record
from metaclaw_langgraph.types import Skill, SkillHit
from tests.evolving.support import NAMESPACE, Home

TASK = "bake a loaf of bread"
OLD = Skill("bake-bread", "bake a loaf of bread", "Salt it.")
NEW = Skill("bake-bread", "bake a loaf of bread", "Do not salt it.")
LIMIT = 200


def on_probation(shop: Home, skill: Skill, fallback: str | None, holdout: float = 0.5) -> None:
    shop.library.put(
        [skill],
        reason="test",
        source="evolver",
        record=lambda ids: Record(probation=[Probation(ids[skill.name], holdout, fallback)]),
    )


def serve(shop: Home, number: int, good_with: float, good_without: float) -> None:
    """Runs of the task, each given what retrieval draws, and judged by whether it had the skill."""
    dice = random.Random(5)
    shop.retriever._random = dice.random
    for _ in range(number):
        found = shop.retriever.retrieve(TASK)
        rate = good_without if any(hit.withheld for hit in found.hits) else good_with
        id = shop.run(TASK, *found.hits, generation=found.generation)
        shop.judge(id, 1.0 if dice.random() < rate else -1.0)


def test_a_skill_that_hurts_makes_room_for_the_version_that_it_replaced(shop: Home) -> None:
    shop.put(OLD)
    on_probation(shop, NEW, "bake-bread@1")
    serve(shop, 60, 0.05, 0.95)
    (closed,) = decide_probations(shop.ledger, shop.library, LIMIT)
    assert (closed.skill_id, closed.state) == ("bake-bread@2", "retired")
    assert shop.names() == ["bake-bread@1"]
    assert shop.ledger.probations(NAMESPACE) == []
    record = shop.library.history()[0]
    assert (record.added, record.removed) == (("bake-bread@1",), ("bake-bread@2",))
    assert record.reason == "bake-bread@2 did not prove itself: runs pass less often with it"
    evidence = record.details["probation"]["bake-bread"]  # type: ignore[index, call-overload]
    assert evidence == closed.evidence
    assert evidence["decision"] == "hurts"
    assert float(evidence["e_hurts"]) >= 10  # type: ignore[arg-type]
    assert record.details["source"] == "probation"
    (stored,) = shop.ledger.probations(NAMESPACE, state="retired")
    assert stored.evidence == closed.evidence
    found = shop.retriever.retrieve(TASK)
    assert "Salt it." in found.block
    assert [(hit.id, hit.withheld) for hit in found.hits] == [("bake-bread@1", False)]


def test_a_version_that_was_replaced_on_probation_comes_back_on_probation(shop: Home) -> None:
    shop.put(OLD)
    on_probation(shop, NEW, "bake-bread@1")
    newer = Skill("bake-bread", "bake a loaf of bread", "Bake it twice.")
    on_probation(shop, newer, "bake-bread@2")
    serve(shop, 60, 0.05, 0.95)
    decide_probations(shop.ledger, shop.library, LIMIT)
    assert shop.names() == ["bake-bread@2"]
    (again,) = shop.ledger.probations(NAMESPACE)
    assert (again.skill_id, again.fallback) == ("bake-bread@2", "bake-bread@1")


def test_a_skill_that_helps_is_kept_and_no_longer_withheld(shop: Home) -> None:
    on_probation(shop, NEW, None)
    serve(shop, 60, 0.95, 0.05)
    (closed,) = decide_probations(shop.ledger, shop.library, LIMIT)
    assert (closed.state, closed.evidence["decision"]) == ("kept", "helps")
    assert shop.names() == ["bake-bread@1"]
    assert shop.ledger.generation(NAMESPACE) == 1
    assert decide_probations(shop.ledger, shop.library, LIMIT) == []
    shop.retriever._holdouts._known = (0, 0.0, {})  # as after a minute
    shop.retriever._random = lambda: 0.0
    assert [hit.injected for hit in shop.retriever.retrieve(TASK).hits] == [True]


def test_a_skill_without_proof_goes_at_the_limit(shop: Home) -> None:
    on_probation(shop, NEW, None)
    serve(shop, 19, 1.0, 1.0)
    assert decide_probations(shop.ledger, shop.library, 20) == []
    serve(shop, 1, 1.0, 1.0)
    (closed,) = decide_probations(shop.ledger, shop.library, 20)
    assert closed.evidence["decision"] == "no difference"
    assert shop.names() == []
    assert shop.library.history()[0].reason.endswith("no proof that it helps")


def test_the_evidence_is_what_the_ledger_says(shop: Home) -> None:
    on_probation(shop, NEW, None)
    serve(shop, 12, 0.8, 0.2)
    (probation,) = shop.ledger.probations(NAMESPACE)
    evidence = probation_evidence(shop.ledger, NAMESPACE, probation, LIMIT)
    assert evidence == weigh(shop.ledger.trials(NAMESPACE, "bake-bread@1"), 0.5, LIMIT)
    counts = shop.ledger.skill_counts(NAMESPACE)["bake-bread@1"]
    assert counts.injected == evidence.with_passed + evidence.with_failed
    assert counts.withheld == evidence.without_passed + evidence.without_failed
    assert counts.withheld > 0


def test_unjudged_runs_and_runs_without_room_do_not_count(shop: Home) -> None:
    on_probation(shop, NEW, None)
    shop.run(TASK, SkillHit("bake-bread@1", 0.9, True))
    id = shop.run(TASK, SkillHit("bake-bread@1", 0.9, False))
    shop.judge(id, -1.0)
    (probation,) = shop.ledger.probations(NAMESPACE)
    evidence = probation_evidence(shop.ledger, NAMESPACE, probation, 1)
    assert evidence.decision == "undecided"


def test_a_verdict_that_a_person_corrects_changes_the_evidence(shop: Home) -> None:
    on_probation(shop, NEW, None)
    id = shop.run(TASK, SkillHit("bake-bread@1", 0.9, True))
    shop.judge(id, 1.0, source="judge")
    (probation,) = shop.ledger.probations(NAMESPACE)
    assert probation_evidence(shop.ledger, NAMESPACE, probation, 9).with_passed == 1
    shop.judge(id, -1.0, "It was wrong.")
    evidence = probation_evidence(shop.ledger, NAMESPACE, probation, 9)
    assert (evidence.with_passed, evidence.with_failed) == (0, 1)


def test_two_probations_end_at_once(shop: Home) -> None:
    on_probation(shop, NEW, None)
    on_probation(shop, Skill("undo-commit", "undo the last git commit", "Use reset."), None)
    for skill in ("bake-bread@1", "undo-commit@1"):
        for _ in range(5):
            shop.judge(shop.run("x", SkillHit(skill, 0.9, True)), 1.0)
    closed = decide_probations(shop.ledger, shop.library, 5)
    assert sorted(one.skill_id for one in closed) == ["bake-bread@1", "undo-commit@1"]
    assert shop.names() == []
    assert shop.ledger.generation(NAMESPACE) == 4
