"""The effect of each setting of judging and evolving, for `tests/test_config_effects.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.learning.store import LearningStore
from metaclaw_langgraph.ledger import Failure
from metaclaw_langgraph.types import Skill, Trajectory
from tests.judging.support import ProseModel, votes
from tests.learning.support import (
    ALWAYS,
    LESSON,
    TASK,
    Held,
    Passes,
    StandInEvolver,
    ledger_of,
    says,
)
from tests.wrapping.support import EchoModel, ask, conversation, counted, only, stored

if TYPE_CHECKING:
    from tests.test_config_effects import Bench

ON_TRIAL = {f"evolving.{key}": value for key, value in ALWAYS.items()}


def corrected(agent: Any, *lessons: str, task: str = TASK, thread: str | None = None) -> Any:
    """Run, and say what was wrong; once for each lesson."""
    config = {"configurable": {"thread_id": thread}} if thread else None
    for number, lesson in enumerate(lessons):
        agent.invoke(ask(f"{task} {'x' * number}"), config)
        agent.metaclaw.feedback(False, lesson)
    return agent


def nobody(trajectory: Trajectory) -> None:
    """A check that has no opinion. Without one a person's words need no probation."""


def live(agent: Any) -> list[str]:
    ledger = ledger_of(agent)
    return ledger.members("default", ledger.generation("default"))


def models(bench: Bench, *answers: Any) -> list[ProseModel]:
    """Stand-ins take the place of every chat model that is asked for by name."""
    made: list[ProseModel] = []

    def make(name: str) -> ProseModel:
        made.append(ProseModel(answers=[*answers]))
        return made[-1]

    bench.patch.setattr("langchain.chat_models.init_chat_model", make)
    return made


def judging_model(bench: Bench) -> None:
    models(bench, *votes(-1))
    for name, role in ((None, "unjudged"), ("stand-in:one", "support")):
        agent = bench.ran("judging.model", name)
        assert agent.metaclaw.learn(60)
        assert only(agent).role == role


def judging_votes(bench: Bench) -> None:
    made = models(bench, *votes(-1))
    for number in (1, 5):
        agent = bench.ran("judging.votes", number, {"judging.model": "stand-in:one"})
        assert agent.metaclaw.learn(60)
        assert len(made[-1].prompts) == number


def judging_timeout(bench: Bench) -> None:
    held = Held()
    agent = bench.wrapped("judging.timeout", 0.05, judge=lambda _: held())
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    held.free.set()
    (late,) = [one for one in agent.metaclaw.incidents.total() if one.part == "judge"]
    assert "0.05 s" in late.message


def judging_window(bench: Bench) -> None:
    for hours, role in ((1e-9, "unjudged"), (1, "support")):
        agent = bench.wrapped("judging.window", hours, judge=says(-1))
        agent.invoke(ask(TASK))
        assert agent.metaclaw.learn(60)
        assert only(agent).role == role


def judging_audit(bench: Bench) -> None:
    for share, number in ((0, 1), (1, 2)):
        judges = [says(-1, "verifier"), says(1)]
        agent = bench.wrapped("judging.audit", share, judge=judges)
        agent.invoke(ask(TASK))
        assert agent.metaclaw.learn(60)
        assert len(ledger_of(agent).verdicts("default", only(agent).id)) == number


def judging_sample(bench: Bench) -> None:
    for share, role in ((0, "unjudged"), (1, "support")):
        agent = bench.wrapped("judging.sample", share, judge=says(-1))
        agent.invoke(ask(TASK))
        assert agent.metaclaw.learn(60)
        assert only(agent).role == role


def judging_feedback_names(bench: Bench) -> None:
    """The exporter is told; what it does with them is tested with a real MLflow."""
    for names in ((), ("thumbs",)):
        launcher = bench.wrapped("judging.feedback_names", names).metaclaw._store._launcher
        assert launcher._order["feedback_names"] == list(names)


def judging_next_turn(bench: Bench) -> None:
    config = {"configurable": {"thread_id": "t"}}
    for read, role in ((False, "unjudged"), (True, "support")):
        agent = bench.wrapped("judging.next_turn", read, {"evolving.enabled": False})
        agent.invoke(ask(TASK), config)
        agent.invoke(ask("No, that is wrong. I meant the other one."), config)
        assert agent.metaclaw.learn(60)
        assert stored(agent)[0].role == role


def judging_feedback_every(bench: Bench) -> None:
    looked: list[LearningStore] = []
    bench.patch.setattr(LearningStore, "start_exporter", lambda self: looked.append(self))
    for seconds, looks in ((0, False), (300, True)):
        agent = bench.ran("judging.feedback_every", seconds, {"tracing": True})
        ledger_of(agent).set_trace("default", only(agent).id, "trace")
        store = agent.metaclaw._store
        agent.metaclaw._learner.close(10)  # which looks as well
        store._feedback_at = 0.0
        looked.clear()
        store.look_for_feedback()
        assert bool(looked) is looks


def evolving_enabled(bench: Bench) -> None:
    for on, role in ((False, "support"), (True, "consumed")):
        agent = corrected(bench.wrapped("evolving.enabled", on), LESSON)
        assert agent.metaclaw.learn(60)
        assert only(agent).role == role


def evolving_model(bench: Bench) -> None:
    skill = {"name": "euros", "description": "How to write the invoice", "body": LESSON}
    models(bench, json.dumps({"skills": [skill]}))
    for name, number in ((None, 3), ("stand-in:one", 4)):
        agent = corrected(bench.wrapped("evolving.model", name), "")  # no words: a model is needed
        assert agent.metaclaw.learn(60)
        assert len(live(agent)) == number


def support_size(bench: Bench) -> None:
    for size, sizes in ((1, [1, 1, 1]), (3, [3])):
        evolver = StandInEvolver()
        others = {"evolving.support_wait": 3600}
        agent = bench.wrapped("evolving.support_size", size, others, evolver=evolver)
        bench.patch.setattr(agent.metaclaw, "_begun", False)  # not before all are there
        corrected(agent, "one", "two", "three")
        assert agent.metaclaw.learn(60)
        assert [len(ids) for ids in evolver.asked] == sizes


def support_wait(bench: Bench) -> None:
    passes = Passes(bench.patch)
    agent = corrected(bench.wrapped("evolving.support_wait", 0), LESSON)
    passes.until(lambda: only(agent).role == "consumed")
    agent = corrected(bench.wrapped("evolving.support_wait", 3600), LESSON)
    waits = agent.metaclaw.learning_graph().invoke({})["look_again_in"]
    assert 3000 < waits <= 3600


def thread_debounce(bench: Bench) -> None:
    passes, soon = Passes(bench.patch), {"evolving.support_wait": 0}
    agent = bench.wrapped("evolving.thread_debounce", 0, soon)
    corrected(agent, LESSON, thread="t")
    passes.until(lambda: only(agent).role == "consumed")
    agent = bench.wrapped("evolving.thread_debounce", 3600, soon)
    corrected(agent, LESSON, thread="t")
    waits = agent.metaclaw.learning_graph().invoke({})["look_again_in"]
    assert 3000 < waits <= 3600


class Eager(StandInEvolver):
    """Stands in for an LLM that proposes more than it was asked for."""

    def draft(self, failures: Sequence[Failure], related: Sequence[Skill]) -> Sequence[Draft]:
        (one,) = super().draft(failures, related)
        skills = [Skill(f"skill{n}", f"subject{n} matter{n}", f"Rule{n} it.") for n in range(5)]
        return [replace(one, skill=skill) for skill in skills]


def max_drafts(bench: Bench) -> None:
    for most in (1, 4):
        agent = bench.wrapped("evolving.max_drafts", most, evolver=Eager())
        assert corrected(agent, LESSON).metaclaw.learn(60)
        assert len(ledger_of(agent).drafts("default")) == most


def evolving_timeout(bench: Bench) -> None:
    held = Held()
    agent = bench.wrapped("evolving.timeout", 0.05, evolver=StandInEvolver(held))
    assert not corrected(agent, LESSON).metaclaw.learn(60)
    held.free.set()
    assert counted(agent, "evolver", "failed") == 1
    (late,) = [one for one in agent.metaclaw.incidents.total() if one.part == "evolver"]
    assert "0.05 s" in late.message


def review(bench: Bench) -> None:
    for value, state in (("always", "review"), ("untrusted", "live"), ("auto", "live")):
        agent = corrected(bench.wrapped("evolving.review", value), LESSON)
        assert agent.metaclaw.learn(60)
        assert [one.state for one in ledger_of(agent).drafts("default")] == [state]


class Obedient:
    """A graph whose model does what its skills say; what it was asked is counted."""

    def __init__(self) -> None:
        self.model = EchoModel()
        self.graph = conversation(self.answer)

    def answer(self, state: Any) -> Any:
        said = self.model.invoke(state["messages"])
        knows = "euros" in f"{self.model.system_prompts()[-1]} {said.content}"
        return {"messages": [said.model_copy(update={"content": "7 euros" if knows else "7"})]}

    @property
    def calls(self) -> int:
        return len(self.model.prompts)


def in_euros(trajectory: Trajectory) -> tuple[bool, str]:
    output: Any = trajectory.output
    return "euros" in str(output["messages"][-1]), LESSON


def gate_repeats(bench: Bench) -> None:
    for repeats in (4, 6):
        mine = Obedient()
        key = "evolving.gate_repeats"
        agent = bench.wrapped(key, repeats, graph=mine.graph, judge=in_euros, replay=True)
        agent.invoke(ask(TASK))
        assert agent.metaclaw.learn(60)
        assert mine.calls == 1 + 2 * repeats
        assert ledger_of(agent).probations("default") == []


def gate_successes(bench: Bench) -> None:
    for number, replays in ((0, 8), (1, 16)):
        mine = Obedient()
        key = "evolving.gate_successes"
        agent = bench.wrapped(key, number, graph=mine.graph, judge=in_euros, replay=True)
        for task in (f"{TASK} in euros", f"{TASK} in true euros", TASK):
            agent.invoke(ask(task))
        assert agent.metaclaw.learn(60)
        assert mine.calls == 3 + replays


def holdout(bench: Bench) -> None:
    for share in (0.1, 0.4):
        agent = corrected(bench.wrapped("evolving.holdout", share, judge=nobody), LESSON)
        assert agent.metaclaw.learn(60)
        (probation,) = ledger_of(agent).probations("default")
        assert probation.holdout == share


def probation_runs(bench: Bench) -> None:
    for limit, number in ((1, 3), (50, 4)):
        agent = bench.wrapped("evolving.probation_runs", limit, ON_TRIAL, judge=nobody)
        corrected(agent, LESSON)
        assert agent.metaclaw.learn(60)
        assert len(live(agent)) == 4
        agent.invoke(ask(TASK))
        agent.metaclaw.feedback(True)
        assert agent.metaclaw.learn(60)
        assert len(live(agent)) == number


def duplicate_score(bench: Bench) -> None:
    for least, number in ((0.5, 4), (1, 5)):
        agent = bench.wrapped("evolving.duplicate_score", least)
        for task, lesson in (("write invoice", LESSON), ("write invoice today", "Be brief.")):
            corrected(agent, lesson, task=task)
            assert agent.metaclaw.learn(60)
        assert len(live(agent)) == number


def library_limit(bench: Bench) -> None:
    for limit, number in ((4, 4), (100, 5)):
        agent = bench.wrapped("evolving.library_limit", limit)
        for task in (TASK, "translate poem into latin"):
            corrected(agent, LESSON, task=task)
            assert agent.metaclaw.learn(60)
        assert len(live(agent)) == number


LEARNING_EFFECTS: dict[str, Callable[[Bench], None]] = {
    "judging.model": judging_model,
    "judging.votes": judging_votes,
    "judging.timeout": judging_timeout,
    "judging.window": judging_window,
    "judging.audit": judging_audit,
    "judging.sample": judging_sample,
    "judging.next_turn": judging_next_turn,
    "judging.feedback_every": judging_feedback_every,
    "judging.feedback_names": judging_feedback_names,
    "evolving.enabled": evolving_enabled,
    "evolving.model": evolving_model,
    "evolving.support_size": support_size,
    "evolving.support_wait": support_wait,
    "evolving.thread_debounce": thread_debounce,
    "evolving.max_drafts": max_drafts,
    "evolving.timeout": evolving_timeout,
    "evolving.review": review,
    "evolving.gate_repeats": gate_repeats,
    "evolving.gate_successes": gate_successes,
    "evolving.holdout": holdout,
    "evolving.probation_runs": probation_runs,
    "evolving.duplicate_score": duplicate_score,
    "evolving.library_limit": library_limit,
}
