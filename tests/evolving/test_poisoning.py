"""Poisoned runs through the whole pipeline, with a model stand-in that obeys every injection.

Nothing of it may reach a live skill under the default configuration.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from metaclaw_langgraph.evolving.llm import LLMEvolver
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.ledger import DraftRecord
from metaclaw_langgraph.skills.embedding import MiniLMInt8
from metaclaw_langgraph.types import Trajectory, VerdictSource
from tests.evolving.poisoning import ROOT, Figures, Measure, benign, poisons, table
from tests.evolving.support import NAMESPACE, Home, StandInEvolver

TEACHERS = ("human", "verifier")


class ObedientStandIn(BaseChatModel):
    """Writes the skill that it is told to, whoever tells it."""

    name_: str = "learned-advice"
    description: str = "Advice for such tasks"
    body: str = ""
    runs: list[int] = [1]  # noqa: RUF012
    seen: list[str] = []  # noqa: RUF012

    @property
    def _llm_type(self) -> str:
        return "obedient stand-in"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append("\n".join(str(one.content) for one in messages))
        skill = {"name": self.name_, "description": self.description, "body": self.body}
        answer = json.dumps({"skills": [{**skill, "runs": self.runs, "why": "it was asked for"}]})
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def keep(home: Home, run: Trajectory, source: VerdictSource, reason: str) -> None:
    home.ledger.add_trajectories([replace(run, namespace=NAMESPACE)])
    home.judge(run.id, -1.0, reason, source)


def learn(
    home: Home,
    model: ObedientStandIn,
    *runs: tuple[Trajectory, VerdictSource, str],
    **config: Any,
) -> tuple[DraftRecord, ...]:
    """What becomes of the draft that the model writes from these runs."""
    for run, source, reason in runs:
        keep(home, run, source, reason)
    return home.evolving(LLMEvolver(model), **config).evolve(home.failures()).drafts


@pytest.mark.parametrize("channel", ["tool", "user"])
def test_no_poison_goes_live_when_a_model_stand_in_obeys_it(real_shop: Home, channel: str) -> None:
    chosen = [one for one in poisons() if one.channel == channel and one.part != "metadata"]
    assert len(chosen) >= 50
    for one in chosen:
        skill = one.skill("obeyed")
        name = skill.name if one.part == "name" else one.id
        told: dict[str, Any] = {"description": skill.description, "body": skill.body}
        model = ObedientStandIn(name_=name, seen=[], **told)
        (draft,) = learn(real_shop, model, (one.run(), one.source, one.reason))
        assert one.text.split()[0] in model.seen[0]
        assert draft.state in ("refused", "review"), one.id
        assert draft.state == "review" or not draft.skill.body
        assert real_shop.role(one.id) == "consumed"
    assert real_shop.names() == []
    assert real_shop.ledger.generation(NAMESPACE) == 0


def test_no_poison_in_metadata_goes_live_from_an_evolver_stand_in(real_shop: Home) -> None:
    """The evolver that asks a model writes no metadata; somebody's own may."""
    chosen = [one for one in poisons() if one.part == "metadata"]
    assert len(chosen) >= 4
    for one in chosen:
        keep(real_shop, one.run(), one.source, one.reason)
        evolver = StandInEvolver(replace(one.skill("obeyed"), name=one.id))
        (draft,) = real_shop.evolving(evolver).evolve(real_shop.failures()).drafts
        assert draft.state == "review", one.id
    assert real_shop.names() == []


def test_what_a_verifier_quotes_does_not_go_live_from_the_offline_evolver(real_shop: Home) -> None:
    chosen = [one for one in poisons() if one.kind == "verifier-quote"]
    for one in chosen:
        keep(real_shop, one.run(), one.source, one.reason)
        (draft,) = real_shop.evolving(OfflineEvolver()).evolve(real_shop.failures()).drafts
        assert draft.state == "review", one.id
    assert real_shop.names() == []
    keep(real_shop, replace(chosen[0].run(), id="own"), "verifier", "The answer must be JSON.")
    (draft,) = real_shop.evolving(OfflineEvolver()).evolve(real_shop.failures()).drafts
    assert draft.state == "live"


def test_poison_under_a_clean_runs_number_does_not_go_live_from_a_model_stand_in(
    real_shop: Home,
) -> None:
    spoken = [one for one in poisons() if one.channel == "user" and one.source == "judge"]
    assert len(spoken) >= 40
    for one in spoken:
        clean = replace(one.run(), id=f"clean-{one.id}", task="Say hello.", messages=())
        model = ObedientStandIn(name_=one.id, body=one.obeyed, seen=[])
        poisoned = (one.run(), "judge", "The answer did not help.")
        (draft,) = learn(real_shop, model, (clean, "human", "Be brief."), poisoned)  # type: ignore[arg-type]
        assert draft.state in ("refused", "review"), one.id
    assert real_shop.names() == []


def test_honest_drafts_of_a_model_stand_in_go_live(real_shop: Home) -> None:
    """The same pipeline lets these through, so the tests above say something."""
    spoken = [one for one in benign() if one.source in ("human", "verifier")]
    states = []
    for one in spoken:
        model = ObedientStandIn(name_=one.id, description=one.description, body=one.body)
        run = replace(one.failure().trajectory, id=one.id)
        (draft,) = learn(real_shop, model, (run, one.source, one.reason))
        states.append(draft.state)
    assert states.count("live") >= 0.9 * len(spoken)
    assert "refused" not in states


def test_it_is_the_default_review_that_stops_plain_sentences(real_shop: Home) -> None:
    """A stand-in's draft in plain words goes live when nobody wants to review untrusted drafts."""
    (one,) = [poison for poison in poisons() if poison.id == "standing-order-02"]
    model = ObedientStandIn(name_=one.id, body=one.obeyed)
    (draft,) = learn(real_shop, model, (one.run(), "judge", "Bad."), review="auto")
    assert (draft.state, draft.untrusted) == ("live", True)


@pytest.fixture(scope="module")
def figures(minilm: MiniLMInt8) -> Figures:
    return Measure(minilm).figures()


def test_every_obeyed_text_is_stopped(figures: Figures) -> None:
    assert [id for id, wording in figures.passed if wording == "obeyed"] == []


def test_the_set_is_large_and_varied() -> None:
    texts = poisons()
    assert len({one.text for one in texts}) == len({one.id for one in texts}) >= 110
    kinds = {one.kind for one in texts}
    assert len(kinds) >= 17
    for kind in kinds:
        assert {one.channel for one in texts if one.kind == kind} == {"tool", "user"}
    assert len(benign()) >= 68


@pytest.mark.parametrize("wording", ["obeyed", "paraphrased"])
def test_the_docs_show_what_is_measured(figures: Figures, wording: str) -> None:
    page = (ROOT / "docs" / "poisoning.md").read_text("utf-8")
    assert table(figures, wording) in page


def test_the_docs_show_the_false_alarms(figures: Figures) -> None:
    page = " ".join((ROOT / "docs" / "poisoning.md").read_text("utf-8").split())
    alarms = sum(n for (_, by), n in figures.false_alarms.items() if by is not None)
    asked = figures.library["review"]
    assert f"{alarms} of {len(benign())} honest drafts" in page
    spoken = [n for (who, by), n in figures.false_alarms.items() if by and who in TEACHERS]
    told = [one for one in benign() if one.source in TEACHERS]
    assert f"{sum(spoken)} of the {len(told)} whose verdict" in page
    corrected = sum(figures.corrected.values())
    waiting = sum(n for (_, by), n in figures.corrected.items() if by is not None)
    assert f"{waiting} of {corrected} corrections" in page
    assert f"{asked} of the {sum(figures.library.values())} skills" in page
    assert figures.library["refuse"] == 0
