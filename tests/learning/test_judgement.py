"""Judging stored runs: who is asked, in which order, what happens when they fail."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.config import JudgingConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.judging.base import Judge
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.judging.llm import LLMJudge
from metaclaw_langgraph.learning.judgement import Judgement
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Verdict
from tests.judging.support import ProseModel, votes
from tests.learning.support import NAMESPACE, START, Clock, Held, SomeJudge, put, says

DAY = timedelta(days=1)


class Bench:
    """A judgement on a real ledger, with a clock that is set by hand."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.clock = Clock()
        self.incidents = Incidents(Redactor())

    def judgement(
        self, *judges: Judge, reader: ProseModel | None = None, **settings: Any
    ) -> Judgement:
        return Judgement(
            self.ledger,
            NAMESPACE,
            judges,
            FeedbackJudge(reader),
            JudgingConfig(**settings),
            self.incidents,
            Timed(),
            self.clock,
        )

    def role(self, id: str) -> str:
        return self.ledger.trajectory(NAMESPACE, id).role

    def given(self, id: str) -> list[tuple[str, float]]:
        return [(one.source, one.reward) for one in self.ledger.verdicts(NAMESPACE, id)]

    def failed(self, kind: str = "failed") -> int:
        found = self.incidents.total()
        return sum(one.count for one in found if (one.part, one.kind) == ("judge", kind))


@pytest.fixture
def bench(ledger: Ledger) -> Bench:
    return Bench(ledger)


def test_good_and_bad(bench: Bench) -> None:
    good, bad, unsure = (put(bench.ledger, id=id) for id in ("good", "bad", "unsure"))
    rewards = {good: 1.0, bad: -1.0, unsure: 0.0}
    judge = SomeJudge(lambda one: Verdict(rewards[one.id], "judge", "so"))
    given = bench.judgement(judge).run()
    assert {id: one.reward for id, one in given.items()} == rewards
    # Sampled in generation 1, and the ledger is at 0: the good one is for the record.
    assert [bench.role(id) for id in rewards] == ["stale", "support", "unjudged"]
    assert all(one.at == START for one in given.values())
    assert bench.judgement(judge).run() == {}
    assert len(judge.shown) == 3


@pytest.mark.parametrize("outcome", ["failed", "interrupted", "cancelled"])
def test_others_than_runs_that_ended_well_are_not_shown(bench: Bench, outcome: Any) -> None:
    put(bench.ledger, outcome=outcome)
    judge = says(1)
    judgement = bench.judgement(judge)
    assert not judgement.waiting()
    assert judgement.run() == {}
    assert judge.shown == []


def raises(_: Any) -> Any:
    raise ConnectionError("the model is away")


GARBAGE = {
    "raises": raises,
    "exits": lambda _: exit(1),
    "a word": lambda _: "good",
    "a mapping": lambda _: {"reward": 1},
    "too much": lambda _: Verdict(7.0, "judge"),
    "not a number": lambda _: Verdict(float("nan"), "judge"),
    "a reward in words": lambda _: Verdict("good", "judge"),  # type: ignore[arg-type]
    "nobody's": lambda _: Verdict(1.0, "oracle"),  # type: ignore[arg-type]
    "scores of no kind": lambda _: Verdict(1.0, "judge", step_scores=(object(),)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("answer", GARBAGE.values(), ids=list(GARBAGE))
def test_a_judge_that_fails_leaves_the_run_unjudged_and_the_others_judged(
    bench: Bench, answer: Any
) -> None:
    bad, good = put(bench.ledger, ended=START - DAY / 2), put(bench.ledger)
    judge = SomeJudge(lambda one: answer(one) if one.id == bad else Verdict(1.0, "judge"))
    judgement = bench.judgement(judge)
    assert [*judgement.run()] == [good]
    assert (bench.role(bad), bench.given(bad)) == ("unjudged", [])
    assert bench.failed() == 1
    assert not judgement.waiting()  # it waits for its time
    counts = bench.ledger.judging_counts(NAMESPACE, since=START - DAY)
    assert (counts.waiting, counts.retrying) == (0, 1)


def test_it_is_asked_again_later_and_later_and_then_no_more(bench: Bench) -> None:
    id = put(bench.ledger)
    judge = SomeJudge(raises)
    judgement = bench.judgement(judge)
    pauses = [15.0 * 2**n for n in range(7)]
    for tries, pause in enumerate(pauses, 1):
        assert judgement.run() == {}
        assert len(judge.shown) == tries
        bench.clock.forward(pause - 1)
        assert not judgement.waiting()
        judgement.run()
        assert len(judge.shown) == tries
        bench.clock.forward(1)
        assert judgement.waiting()
    judgement.run()
    assert len(judge.shown) == 8
    bench.clock.forward(10_000)
    assert not judgement.waiting()
    assert (bench.role(id), bench.failed(), bench.failed("given up")) == ("unjudged", 8, 1)


def test_a_judge_that_is_back_judges(bench: Bench) -> None:
    id = put(bench.ledger)
    bench.judgement(SomeJudge(raises)).run()
    bench.clock.forward(15)
    assert [*bench.judgement(says(1)).run()] == [id]


def test_a_judge_that_hangs_is_given_up_in_time(bench: Bench, held: Held) -> None:
    id = put(bench.ledger)
    assert bench.judgement(SomeJudge(held), timeout=0.05).run() == {}
    (incident,) = bench.incidents.total()
    assert "the judge some judge took longer than 0.05 s" in incident.message
    assert bench.role(id) == "unjudged"


def test_an_llm_stand_in_that_answers_garbage_is_no_reward(bench: Bench) -> None:
    id = put(bench.ledger)
    assert bench.judgement(LLMJudge(ProseModel(answers=["I like trains."]))).run() == {}
    assert (bench.role(id), bench.failed()) == ("unjudged", 1)


def test_no_opinion_is_not_asked_again(bench: Bench) -> None:
    id = put(bench.ledger)
    judge = SomeJudge(lambda _: None)
    for _ in range(2):
        assert bench.judgement(judge).run() == {}
        bench.clock.forward(3600)
    assert judge.shown == [id]
    assert bench.failed() == 0
    assert bench.ledger.add_verdict(NAMESPACE, id, Verdict(-1.0, "human")) == "support"


def test_the_first_judge_with_an_opinion_counts(bench: Bench) -> None:
    id = put(bench.ledger)
    shy, verifier, model = SomeJudge(lambda _: None, "verifier"), says(-1, "verifier"), says(1)
    bench.judgement(shy, verifier, model, audit=0).run()
    assert bench.given(id) == [("verifier", -1)]
    assert (shy.shown, verifier.shown, model.shown) == ([id], [id], [])


def test_the_audit_s_share_of_the_runs_is_judged_twice(bench: Bench) -> None:
    for number in range(60):
        put(bench.ledger, id=f"run-{number}")
    verifier, model = says(-1, "verifier"), says(1)
    judgement = bench.judgement(verifier, model, audit=0.5)
    while judgement.waiting():
        judgement.run()
    assert len(verifier.shown) == 60
    assert 15 <= len(model.shown) <= 45  # by their ids, so the same ones every time
    assert bench.given(model.shown[0]) == [("verifier", -1), ("judge", 1)]
    assert bench.role(model.shown[0]) == "support"
    assert len(bench.ledger.agreements(NAMESPACE)) == len(model.shown)


def test_an_audit_that_fails_takes_nothing_back(bench: Bench) -> None:
    id = put(bench.ledger)
    given = bench.judgement(says(-1, "verifier"), SomeJudge(raises), audit=1).run()
    assert [*given] == [id]
    assert (bench.given(id), bench.failed()) == ([("verifier", -1)], 1)


def test_runs_that_ended_long_ago_are_not_judged(bench: Bench) -> None:
    old, new = put(bench.ledger, ended=START - DAY), put(bench.ledger, ended=START - DAY / 2)
    assert [*bench.judgement(says(1), window=13).run()] == [new]
    assert [*bench.judgement(says(1), window=25).run()] == [old]


def test_without_judges_nobody_waits(bench: Bench) -> None:
    put(bench.ledger)
    judgement = bench.judgement()
    assert not judgement.can_judge
    assert not judgement.waiting()
    assert judgement.run() == {}


def test_a_ledger_that_fails_is_not_the_judge_s_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bench.ledger)
    judgement = bench.judgement(says(1))

    def broken(*_: Any) -> Any:
        raise StoreError("disk full")

    with monkeypatch.context() as full:
        full.setattr(Ledger, "add_verdict", broken)
        with pytest.raises(StoreError, match="disk full"):
            judgement.run()
    assert bench.failed() == 0
    assert len(judgement.run()) == 1


def test_an_opinion_on_a_replay_is_stored_nowhere(bench: Bench) -> None:
    id = put(bench.ledger)
    run = bench.ledger.trajectory(NAMESPACE, id)
    shy = SomeJudge(lambda _: None)
    opinion = bench.judgement(shy, says(-1)).opinion(run)
    assert opinion is not None
    assert opinion.reward == -1
    assert bench.judgement(shy).opinion(run) is None
    assert bench.judgement(SomeJudge(raises), says(1)).opinion(run) is None
    assert bench.given(id) == []


# ---------------------------------------------------------------- the user's next message

CORRECTION = "No, that is wrong. I meant the other order."


def talk(bench: Bench, turns: Sequence[str], thread: str | None = "t") -> list[str]:
    """A thread of runs, a minute apart."""
    found = []
    for turn in turns:
        bench.clock.forward(60)
        found.append(put(bench.ledger, task=turn, ended=bench.clock.time, thread=thread))
    return found


def test_a_correction_in_the_next_turn_is_a_human_verdict_once(bench: Bench) -> None:
    first, second = talk(bench, ["write it", CORRECTION])
    judgement = bench.judgement(next_turn=True)
    assert [*judgement.run()] == [first]
    assert judgement.run() == {}
    assert bench.judgement(next_turn=True).run() == {}  # another process
    (verdict,) = bench.ledger.verdicts(NAMESPACE, first)
    assert (verdict.source, verdict.reward, verdict.reason) == ("human", -1, CORRECTION)
    assert (bench.role(first), bench.given(second)) == ("support", [])


def test_next_turns_are_not_read_unless_asked_for(bench: Bench) -> None:
    first, _ = talk(bench, ["write it", CORRECTION])
    assert bench.judgement().run() == {}
    assert bench.given(first) == []


def test_a_new_request_says_nothing(bench: Bench) -> None:
    first, _ = talk(bench, ["write it", "Now write the other one."])
    assert bench.judgement(next_turn=True).run() == {}
    assert bench.given(first) == []


def test_another_thread_says_nothing(bench: Bench) -> None:
    talk(bench, ["write it"], "one")
    talk(bench, [CORRECTION], "two")
    talk(bench, ["write it", CORRECTION], None)
    assert bench.judgement(next_turn=True).run() == {}


def test_what_was_said_on_purpose_is_not_overruled_by_the_next_turn(bench: Bench) -> None:
    first, _ = talk(bench, ["write it", CORRECTION])
    bench.ledger.add_verdict(NAMESPACE, first, Verdict(1.0, "human", "just right"))
    assert bench.judgement(next_turn=True).run() == {}
    assert bench.given(first) == [("human", 1)]


def test_a_next_turn_overrules_the_judge(bench: Bench) -> None:
    first, _ = talk(bench, ["write it", CORRECTION])
    bench.ledger.add_verdict(NAMESPACE, first, Verdict(1.0, "judge"))
    bench.judgement(next_turn=True).run()
    assert bench.given(first) == [("judge", 1), ("human", -1)]
    assert bench.role(first) == "support"


@pytest.mark.parametrize("outcome", ["interrupted", "cancelled"])
def test_an_answer_to_a_run_that_did_not_end_is_no_verdict_on_it(
    bench: Bench, outcome: Any
) -> None:
    put(bench.ledger, ended=START - DAY / 4, thread="t", outcome=outcome)
    put(bench.ledger, thread="t", task=CORRECTION)
    assert bench.judgement(next_turn=True).run() == {}


def test_a_turn_that_took_long_is_read_when_it_is_stored(bench: Bench) -> None:
    """Runs are stored when they end, so one may come after others that began later."""
    (first,) = talk(bench, ["write it"])
    judgement = bench.judgement(next_turn=True)
    bench.clock.forward(600)
    put(bench.ledger, task="quick", ended=bench.clock.time, thread="other")
    judgement.run()
    bench.clock.forward(60)
    end = bench.clock.time
    put(bench.ledger, task=CORRECTION, ended=end, seconds=300, thread="t")
    assert [*judgement.run()] == [first]


def test_a_reader_stand_in_that_is_away_is_asked_again(bench: Bench) -> None:
    first, _ = talk(bench, ["write it", CORRECTION])
    reader = ProseModel(answers=[ConnectionError("away"), *votes(-1)])
    judgement = bench.judgement(next_turn=True, reader=reader)
    assert judgement.run() == {}
    assert judgement.run() == {}
    assert (len(reader.prompts), bench.failed()) == (1, 1)
    bench.clock.forward(15)
    assert [*judgement.run()] == [first]
    bench.clock.forward(3600)
    judgement.run()
    assert len(reader.prompts) == 2


def test_a_stop_ends_a_batch(bench: Bench, held: Held) -> None:
    put(bench.ledger)
    judgement = bench.judgement(SomeJudge(held))

    def stop() -> None:
        held.reached.wait(10)
        judgement._timed.stop()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(StoppedError):
        judgement.run()
    assert bench.failed() == 0
