"""Gathering failures: how many, how long to wait, and which ones nobody learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metaclaw_langgraph.config import EvolvingConfig
from metaclaw_langgraph.evolving.base import Evolver
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.learning.gathering import Gathered, Gathering
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Verdict
from tests.learning.support import NAMESPACE, START, Clock, StandInEvolver, judged, put


def gathering(
    ledger: Ledger, clock: Clock, evolver: Evolver | None = None, **settings: Any
) -> Gathering:
    chosen = evolver or StandInEvolver()
    return Gathering(ledger, NAMESPACE, chosen, EvolvingConfig(**settings), clock)


def bad(ledger: Ledger, clock: Clock, reason: str = "no currency", **marks: Any) -> str:
    verdict = Verdict(-1.0, marks.pop("source", "human"), reason, at=clock.time)
    return judged(ledger, verdict, ended=clock.time, **marks)


def ids(gathered: Gathered) -> Sequence[str]:
    return [one.trajectory.id for one in gathered.failures]


def test_enough_of_them_are_taken_at_once_the_oldest_first(ledger: Ledger) -> None:
    clock = Clock()
    gather = gathering(ledger, clock, support_size=3, support_wait=100).gather
    assert gather() == Gathered()
    waiting = []
    for _ in range(4):
        waiting.append(bad(ledger, clock))
        clock.forward(1)
    assert ids(gather()) == waiting[:3]


def test_fewer_wait_for_others_but_not_for_ever(ledger: Ledger) -> None:
    clock = Clock()
    gather = gathering(ledger, clock, support_size=3, support_wait=10).gather
    first = bad(ledger, clock)
    clock.forward(4)
    second = bad(ledger, clock)
    assert gather() == Gathered(look_again_in=6)
    clock.forward(5)
    assert gather() == Gathered(look_again_in=1)
    clock.forward(1)
    assert ids(gather()) == [first, second]


def test_who_asks_does_not_wait(ledger: Ledger) -> None:
    clock = Clock()
    waiting = {bad(ledger, clock, thread="t") for _ in range(3)}
    settings: dict[str, Any] = {"support_size": 2, "support_wait": 100, "thread_debounce": 100}
    found = gathering(ledger, clock, **settings).gather(at_once=True)
    assert len(ids(found)) == 2
    assert set(ids(found)) < waiting


def test_a_thread_that_is_busy_is_left_alone(ledger: Ledger) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"support_size": 1, "support_wait": 0, "thread_debounce": 5}
    gather = gathering(ledger, clock, **settings).gather
    busy = bad(ledger, clock, thread="busy")
    alone = bad(ledger, clock)
    assert ids(gather()) == [alone]
    ledger.add_verdict(NAMESPACE, alone, Verdict(1.0, "human"))
    clock.forward(3)
    put(ledger, ended=clock.time, thread="busy")  # the user goes on
    clock.forward(3)
    assert gather() == Gathered(look_again_in=2)
    clock.forward(2)
    assert ids(gather()) == [busy]


def test_what_nobody_should_learn_from_is_consumed_with_the_reason(ledger: Ledger) -> None:
    clock = Clock()
    timeout = put(ledger, outcome="failed", error="TimeoutError: timed out", ended=clock.time)
    limit = put(ledger, outcome="failed", error="RateLimitError: Error code: 429", ended=clock.time)
    real = bad(ledger, clock)
    assert ids(gathering(ledger, clock).gather(at_once=True)) == [real]
    for id in (timeout, limit):
        found = ledger.consumption(NAMESPACE, id)
        assert found is not None
        assert found[1]
        assert ledger.trajectory(NAMESPACE, id).role == "consumed"
    (evolution,) = ledger.evolutions(NAMESPACE)
    assert (evolution.evolver, evolution.generation) == ("do-not-learn", None)


def test_an_outage_is_consumed_without_a_model_too(ledger: Ledger) -> None:
    clock = Clock()
    real = put(ledger, outcome="failed", error="ValueError: no currency", ended=clock.time)
    gather = gathering(ledger, clock, OfflineEvolver()).gather
    assert gather() == Gathered()
    outage = put(ledger, outcome="failed", error="ConnectionError: refused", ended=clock.time)
    assert gather() == Gathered()
    assert ledger.trajectory(NAMESPACE, outage).role == "consumed"
    assert ledger.trajectory(NAMESPACE, real).role == "support"


def test_a_thread_that_never_rests_does_not_keep_its_failures(ledger: Ledger) -> None:
    clock = Clock()
    settings: dict[str, Any] = {"support_size": 1, "support_wait": 0, "thread_debounce": 5}
    gather = gathering(ledger, clock, **settings).gather
    busy = bad(ledger, clock, thread="busy")
    for _ in range(52):
        assert gather().failures == ()
        clock.forward(2)
        put(ledger, ended=clock.time, thread="busy")
    clock.forward(1)
    assert ids(gather()) == [busy]


def test_more_useless_failures_than_are_looked_at_hide_nothing(ledger: Ledger) -> None:
    clock = Clock()
    for _ in range(120):
        put(ledger, outcome="failed", error="TimeoutError: timed out", ended=START)
    clock.forward(1)
    verdict = Verdict(-1.0, "judge", "no currency")
    real = judged(ledger, verdict, ended=clock.time)
    assert ids(gathering(ledger, clock).gather(at_once=True)) == [real]
    assert ledger.counts(NAMESPACE).role == {"consumed": 120, "support": 1}


def test_without_a_model_failures_without_words_stay_and_hide_nothing(ledger: Ledger) -> None:
    clock = Clock()
    for _ in range(110):
        put(ledger, outcome="failed", error="ValueError: no currency", ended=clock.time)
    for _ in range(20):
        bad(ledger, clock, source="judge")
    clock.forward(1)
    spoken = bad(ledger, clock, "Give amounts in euros.")
    assert ids(gathering(ledger, clock, OfflineEvolver()).gather(at_once=True)) == [spoken]
    assert ledger.counts(NAMESPACE).role == {"support": 131}


def test_failures_with_words_but_no_topic_hide_nothing_either(ledger: Ledger) -> None:
    clock = Clock()
    for _ in range(130):
        bad(ledger, clock, "Give amounts in euros.", task=None)
    clock.forward(1)
    spoken = bad(ledger, clock, "Give amounts in euros.")
    assert ids(gathering(ledger, clock, OfflineEvolver()).gather(at_once=True)) == [spoken]
    assert ledger.counts(NAMESPACE).role == {"support": 131}
