"""The loop as a user sees it: a run fails, somebody says why, the next run knows better."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from metaclaw_langgraph import ConfigError
from metaclaw_langgraph.types import Trajectory, Verdict
from tests.judging.support import ProseModel, votes
from tests.learning.conftest import Learn
from tests.learning.support import (
    LESSON,
    TASK,
    Held,
    Passes,
    StandInEvolver,
    ledger_of,
    says,
)
from tests.wrapping.support import (
    EchoModel,
    ask,
    conversation,
    counted,
    eventually,
    only,
    stored,
    talk,
    texts,
)

SOON = {"support_wait": 0, "thread_debounce": 0}


def needs_euros(trajectory: Trajectory) -> tuple[bool, str]:
    return "euros" in str(trajectory.output), LESSON


def test_a_verifier_s_words_are_in_the_prompt_of_the_next_run(learning: Learn) -> None:
    model = EchoModel()
    agent = learning(talk(model), judge=needs_euros)
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    agent.invoke(ask("write the invoice for order eight"))
    assert [LESSON in prompt for prompt in model.system_prompts()] == [False, True]
    first, second = stored(agent)
    assert (first.role, first.generation, second.generation) == ("consumed", 0, 1)
    (hit,) = second.skills
    assert hit.injected
    reason = ledger_of(agent).consumption("default", first.id)
    assert reason is not None
    assert reason[1].endswith(": live")


def test_a_person_s_words_are_in_the_prompt_of_the_next_run(learning: Learn) -> None:
    model = EchoModel()
    agent = learning(talk(model))
    agent.invoke(ask(TASK))
    assert agent.metaclaw.feedback(False, LESSON) == "support"
    assert agent.metaclaw.learn(60)
    agent.invoke(ask(TASK))
    assert [LESSON in prompt for prompt in model.system_prompts()] == [False, True]


def test_it_happens_by_itself(learning: Learn, passes: Passes) -> None:
    model = EchoModel()
    agent = learning(talk(model), judge=needs_euros, evolving=SOON)
    agent.invoke(ask(TASK))
    passes.until(lambda: ledger_of(agent).generation("default") == 1)
    agent.invoke(ask(TASK))
    assert LESSON in model.system_prompts()[-1]


def test_a_second_lesson_on_the_same_matter_is_a_new_version(learning: Learn) -> None:
    model = EchoModel()
    agent = learning(talk(model))
    for lesson in (LESSON, "Name the customer on top."):
        agent.invoke(ask(TASK))
        agent.metaclaw.feedback(False, lesson)
        assert agent.metaclaw.learn(60)
    agent.invoke(ask(TASK))
    assert "Name the customer on top." in model.system_prompts()[-1]
    assert LESSON in model.system_prompts()[-1]
    (member,) = ledger_of(agent).members("default", ledger_of(agent).generation("default"))
    assert member.endswith("@2")


def test_an_llm_stand_in_judges_and_writes(learning: Learn) -> None:
    said = {"name": "invoices", "description": "How to write the invoice", "body": LESSON}
    judge = ProseModel(answers=votes(-1))
    writer = ProseModel(answers=[json.dumps({"skills": [said]})])
    model = EchoModel()
    agent = learning(talk(model), judge=judge, evolver=writer, judging={"votes": 3})
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    assert (len(judge.prompts), len(writer.prompts)) == (3, 1)
    agent.invoke(ask(TASK))
    assert LESSON in model.system_prompts()[-1]


def test_a_run_that_raised_is_support_without_a_judge(learning: Learn) -> None:
    def broken(state: Any) -> Any:
        raise ValueError("the amount has no currency")

    judge = says(1)
    agent = learning(conversation(broken), judge=judge)
    with pytest.raises(ValueError, match="no currency"):
        agent.invoke(ask(TASK))
    one = only(agent)
    (verdict,) = ledger_of(agent).verdicts("default", one.id)
    assert (one.role, verdict.source, verdict.reward) == ("support", "run", -1)
    assert "no currency" in verdict.reason
    assert agent.metaclaw.learn(60)
    assert judge.shown == []


def test_an_interrupted_run_is_not_judged_and_its_end_is(learning: Learn) -> None:
    judge = says(1)
    config = {"configurable": {"thread_id": "t"}}
    agent = learning(
        conversation(lambda state: interrupt("sure?") and {}, InMemorySaver()), judge=judge
    )
    agent.invoke(ask(TASK), config)
    assert agent.metaclaw.learn(60)
    assert judge.shown == []
    agent.invoke(Command(resume="yes"), config)
    assert agent.metaclaw.learn(60)
    first, second = stored(agent)
    assert (first.outcome, first.role) == ("interrupted", "unjudged")
    assert judge.shown == [second.id]


async def test_a_cancelled_run_is_not_judged(learning: Learn) -> None:
    reached = asyncio.Event()

    async def slow(state: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    judge = says(-1)
    agent = learning(conversation(slow), judge=judge)
    run = asyncio.create_task(agent.ainvoke(ask(TASK)))
    await reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(agent.metaclaw.learn, 60)
    assert only(agent).outcome == "cancelled"
    assert judge.shown == []


def test_a_later_human_verdict_corrects_an_earlier_one(learning: Learn) -> None:
    agent = learning(talk(), judge=says(-1, "verifier"), evolving={"enabled": False})
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    assert only(agent).role == "support"
    assert agent.metaclaw.feedback(True, "it is right") == "query"
    assert agent.metaclaw.feedback(-0.5, "I was wrong", author="ann") == "support"
    given = ledger_of(agent).verdicts("default", only(agent).id)
    assert [(one.source, one.reward) for one in given] == [
        ("verifier", -1),
        ("human", 1),
        ("human", -0.5),
    ]


@pytest.mark.parametrize("reward", [2, float("nan"), "good", None, "1"])
def test_feedback_that_is_no_reward_is_refused_in_one_line(learning: Learn, reward: Any) -> None:
    agent = learning(talk())
    agent.invoke(ask(TASK))
    with pytest.raises(ConfigError, match="reward must be") as refused:
        agent.metaclaw.feedback(reward)
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- the user's run comes first


def test_a_judge_that_hangs_delays_nobody(learning: Learn, held: Held) -> None:
    def hang(trajectory: Trajectory) -> bool:
        held()
        return True

    agent = learning(talk(), judge=hang)
    agent.invoke(ask(TASK))
    assert held.reached.wait(30)
    answered = threading.Thread(target=lambda: agent.invoke(ask("hello")), daemon=True)
    answered.start()
    answered.join(10)
    assert not answered.is_alive()
    assert agent.metaclaw.flush(10)
    closing = threading.Thread(target=agent.metaclaw.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    assert texts(agent.invoke(ask("hello"))) == ["hello", "echo hello"]


def test_an_evolver_stand_in_that_hangs_delays_nobody(learning: Learn, held: Held) -> None:
    agent = learning(talk(), evolver=StandInEvolver(held), evolving=SOON)
    agent.invoke(ask(TASK))
    agent.metaclaw.feedback(False, LESSON)
    assert held.reached.wait(30)
    assert texts(agent.invoke(ask("hello"))) == ["hello", "echo hello"]
    assert agent.metaclaw.flush(10)
    closing = threading.Thread(target=agent.metaclaw.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_learning_never_raises_into_a_run(learning: Learn) -> None:
    def broken(trajectory: Trajectory) -> bool:
        raise RuntimeError("the check is broken")

    agent = learning(talk(), judge=broken)
    for _ in range(2):
        assert texts(agent.invoke(ask("hello"))) == ["hello", "echo hello"]
        assert agent.metaclaw.learn(60)
    assert counted(agent, "judge", "failed") == 2
    assert [one.role for one in stored(agent)] == ["unjudged", "unjudged"]


def test_an_evolver_stand_in_that_is_down_costs_no_answer_and_no_failure(learning: Learn) -> None:
    down = [True]

    def act() -> None:
        if down:
            raise ConnectionError("no route to the model")

    evolver = StandInEvolver(act)
    model = EchoModel()
    agent = learning(talk(model), evolver=evolver)
    agent.invoke(ask(TASK))
    agent.metaclaw.feedback(False, LESSON)
    assert not agent.metaclaw.learn(60)
    assert texts(agent.invoke(ask("hello"))) == ["hello", "echo hello"]
    assert counted(agent, "evolver", "failed") == 1
    assert stored(agent)[0].role == "support"
    down.clear()
    assert agent.metaclaw.learn(60)
    agent.invoke(ask(TASK))
    assert LESSON in model.system_prompts()[-1]
    assert stored(agent)[0].role == "consumed"


def test_a_failure_that_an_evolver_stand_in_never_takes_does_not_hold_up_the_others(
    learning: Learn,
) -> None:
    """As a provider's filter does: one text in the batch is enough to have it refused."""
    refused: list[str] = []

    def act() -> None:
        if refused[0] in evolver.asked[-1]:
            raise ValueError("the content was filtered")

    evolver = StandInEvolver(act)
    agent = learning(talk(), evolver=evolver)
    for task in (TASK, "write another invoice"):
        agent.invoke(ask(task))
        agent.metaclaw.flush()
        agent.metaclaw.feedback(False, LESSON)
    first, second = stored(agent)
    refused.append(first.id)
    for _ in range(6):  # three times together, three times alone
        assert not agent.metaclaw.learn(60)
    assert not agent.metaclaw.learn(60)  # the other one is learned from, then this one tried again
    assert [one.role for one in stored(agent)] == ["support", "consumed"]
    assert ledger_of(agent).generation("default") == 1
    assert evolver.asked[-2:] == [[second.id], [first.id]]
    refused[0] = ""
    assert agent.metaclaw.learn(60)
    assert [one.role for one in stored(agent)] == ["consumed", "consumed"]


def test_an_evolver_stand_in_that_never_works_destroys_nothing(learning: Learn) -> None:
    def act() -> None:
        raise ValueError("Error code: 404 - the model does not exist")

    agent = learning(talk(), evolver=StandInEvolver(act))
    for number in range(3):
        agent.invoke(ask(f"{TASK} {number}"))
        agent.metaclaw.flush()
        agent.metaclaw.feedback(False, LESSON)
    for _ in range(15):
        assert not agent.metaclaw.learn(60)
    assert {one.role for one in stored(agent)} == {"support"}


def test_good_runs_without_end_do_not_keep_a_correction_waiting(learning: Learn) -> None:
    def check(trajectory: Trajectory) -> bool:
        time.sleep(0.02)
        return True

    agent = learning(talk(), judge=check, evolver=StandInEvolver())
    stop = threading.Event()

    def serve() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            agent.invoke(ask(f"hello {number}"))

    busy = threading.Thread(target=serve)
    busy.start()
    try:
        first = eventually(lambda: stored(agent))[0]
        agent.metaclaw.feedback(False, LESSON, trajectory_id=first.id)
        eventually(lambda: ledger_of(agent).generation("default") == 1)
    finally:
        stop.set()
        busy.join()


# ---------------------------------------------------------------- several wrappings


def test_the_last_judge_counts(learning: Learn) -> None:
    first, second = says(1), says(-1)
    one = learning(talk(), judge=first)
    assert one.metaclaw.learn(60)  # a pass that has begun goes on with the judge that it has
    two = learning(talk(), judge=second)
    assert one.metaclaw is two.metaclaw
    one.invoke(ask(TASK))
    assert one.metaclaw.learn(60)
    assert (len(first.shown), len(second.shown)) == (0, 1)


def test_a_judge_for_a_graph_that_is_wrapped_already_counts(learning: Learn) -> None:
    judge = says(1)
    agent = learning(learning(talk()), judge=judge)
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    assert len(judge.shown) == 1


def test_another_graph_without_a_judge_leaves_the_judge(learning: Learn) -> None:
    judge = says(1)
    one = learning(talk(), judge=judge)
    two = learning(talk())
    two.invoke(ask(TASK))
    assert one.metaclaw.learn(60)
    assert len(judge.shown) == 1


def test_what_an_earlier_process_left_is_for_the_evolver_that_was_given(learning: Learn) -> None:
    """Not for the one that needs no model, in the moment before the other is known."""
    agent = learning(talk(), evolving={"support_wait": 3600})
    agent.invoke(ask(TASK))
    agent.metaclaw.feedback(False, LESSON)
    agent.invoke(ask("something else"))
    agent.metaclaw.feedback(False, "Be brief.")
    agent.metaclaw.close()
    evolver = StandInEvolver()
    again = learning(talk(), evolver=evolver, evolving=SOON)
    assert again.metaclaw.learn(60)
    assert sum(len(ids) for ids in evolver.asked) == 2
    assert {one.evolver for one in ledger_of(again).evolutions("default")} == {"stand-in"}


def test_close_twice_and_learn_after_it(learning: Learn) -> None:
    agent = learning(talk(), judge=says(1))
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    agent.metaclaw.close()
    agent.metaclaw.close()
    assert not agent.metaclaw.learn(None)


def test_a_replay_proves_a_skill_before_it_goes_live(learning: Learn) -> None:
    """The model obeys its system prompt, so the skill helps in every replay."""
    model = EchoModel()

    def answer(state: Any) -> Any:
        said = model.invoke(state["messages"])
        knows = LESSON in model.system_prompts()[-1]
        return {"messages": [said.model_copy(update={"content": "7 euros" if knows else "7"})]}

    agent = learning(conversation(answer), judge=needs_euros, replay=True)
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    ledger = ledger_of(agent)
    assert ledger.generation("default") == 1
    assert ledger.probations("default") == []
    (draft,) = ledger.drafts("default")
    assert draft.evidence["gate"]["won"] is True  # type: ignore[index,call-overload]
    assert len(stored(agent)) == 1  # replays are not runs


def test_what_a_verdict_was_given_by_may_be_told_by_its_author(learning: Learn) -> None:
    agent = learning(talk(), judge=lambda t: Verdict(1.0, "human", "fine"))
    agent.invoke(ask(TASK))
    assert agent.metaclaw.learn(60)
    (verdict,) = ledger_of(agent).verdicts("default", only(agent).id)
    assert (verdict.source, verdict.author) == ("verifier", "<lambda>")
