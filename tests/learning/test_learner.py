"""The learner's thread: when it works, what it answers, and how it ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from metaclaw_langgraph._timed import StoppedError, Timed
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.learning import learner as learners
from metaclaw_langgraph.learning.learner import Learner, Pass
from metaclaw_langgraph.redaction import Redactor

Work = Callable[[bool], Pass]
Start = Callable[[Work], Learner]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Learner] = []

    def new(work: Work) -> Learner:
        made.append(Learner(work, Incidents(Redactor())))
        return made[-1]

    yield new
    for one in made:
        one.close(10)


def counted(learner: Learner) -> dict[str, int]:
    return {f"{one.part} {one.kind}": one.count for one in learner._incidents.total()}


def test_it_works_at_once_until_nothing_is_left(start: Start) -> None:
    left, asked = [3], []

    def work(at_once: bool) -> Pass:
        asked.append(at_once)
        left[0] -= 1
        return Pass(0.0 if left[0] else None)

    assert start(work).learn(10)
    assert asked == [True, True, True]


def test_a_pass_that_was_begun_before_does_not_count_for_who_asks_now(start: Start) -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def work(at_once: bool) -> Pass:
        asked.append(at_once)
        begun.set()
        assert go_on.wait(10)
        return Pass()

    learner = start(work)
    learner.wake()
    assert begun.wait(10)
    waiting = queue.SimpleQueue[bool]()
    asking = threading.Thread(target=lambda: waiting.put(learner.learn(10)))
    asking.start()
    with learner._changed:
        assert learner._changed.wait_for(lambda: learner._asked == 1, 10)
    go_on.set()
    assert waiting.get(timeout=10)
    asking.join(10)
    assert asked == [False, True]


def test_what_raises_is_counted_and_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "_BACK_OFF_FIRST", 0.01)
    again, tries = threading.Event(), []

    def work(at_once: bool) -> Pass:
        tries.append(1)
        if len(tries) < 4:
            raise StoreError("the ledger is away")
        again.set()
        return Pass()

    learner = start(work)
    assert not learner.learn(10)
    assert again.wait(10)
    assert counted(learner) == {"learning failed": 3}
    assert learner.learn(10)


def test_who_asks_does_not_wait_for_the_back_off(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "_BACK_OFF_FIRST", 3600.0)
    monkeypatch.setattr(learners, "_BACK_OFF_MOST", 3600.0)
    broken = [True]

    def work(at_once: bool) -> Pass:
        if broken:
            raise StoreError("the ledger is away")
        return Pass()

    learner = start(work)
    assert not learner.learn(10)
    broken.clear()
    assert learner.learn(10)


def test_the_pause_after_failures_grows_up_to_a_minute(start: Start) -> None:
    learner = start(lambda _: Pass())
    pauses = [learner._fail(StoreError("away")).again for _ in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_who_was_asked_and_failed_is_told(start: Start) -> None:
    answers = iter([Pass(15.0, failed=True), Pass()])
    learner = start(lambda _: next(answers))
    assert not learner.learn(10)
    assert learner.learn(10)
    assert counted(learner) == {}  # counted where it happened


def test_while_another_process_is_at_it_nothing_is_answered(start: Start) -> None:
    answers = iter([Pass(0.01, mine=False), Pass(0.01, mine=False), Pass()])
    asked = []

    def work(at_once: bool) -> Pass:
        asked.append(at_once)
        return next(answers)

    assert start(work).learn(10)
    assert asked == [True, True, True]


def test_closing_answers_everybody(start: Start) -> None:
    begun = threading.Event()
    timed = Timed()

    def work(at_once: bool) -> Pass:
        begun.set()
        timed.call(60, threading.Event().wait, "waiting")
        return Pass()

    learner = start(work)
    answers = queue.SimpleQueue[bool]()
    asking = threading.Thread(target=lambda: answers.put(learner.learn(None)))
    asking.start()
    assert begun.wait(10)
    timed.stop()
    learner.close(10)
    assert answers.get(timeout=10) is False
    asking.join(10)
    assert learner._thread is not None
    assert not learner._thread.is_alive()
    assert counted(learner) == {}
    assert learner.learn(None) is False


def test_it_looks_now_and_then_for_what_others_left(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "_LOOK_EVERY", 0.01)
    looks = threading.Semaphore(0)

    def work(at_once: bool) -> Pass:
        looks.release()
        return Pass()

    start(work).wake()
    for _ in range(3):
        assert looks.acquire(timeout=10)


def test_no_more_threads(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = start(lambda _: Pass())

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        learner.wake()
    assert counted(learner) == {"learning no thread": 1}
    assert learner.learn(10)


# ---------------------------------------------------------------- calls of other people's code


def test_a_call_that_takes_too_long() -> None:
    free = threading.Event()
    with pytest.raises(TimeoutError, match=r"the judge x took longer than 0\.05 s"):
        Timed().call(0.05, free.wait, "the judge x")
    free.set()


def test_a_call_gives_its_result_or_raises() -> None:
    assert Timed().call(10, lambda: 7, "counting") == 7
    with pytest.raises(ZeroDivisionError):
        Timed().call(10, lambda: 1 / 0, "dividing")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_call_that_wants_to_end_the_program_only_fails(error: type[BaseException]) -> None:
    def leave() -> None:
        raise error

    with pytest.raises(RuntimeError, match=f"the check ended with {error.__name__}"):
        Timed().call(10, leave, "the check")


def test_a_stop_ends_all_waiting() -> None:
    timed, free, begun = Timed(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        free.wait(60)

    def stop() -> None:
        begun.wait(10)
        timed.stop()

    threading.Thread(target=stop, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(StoppedError):
        timed.call(60, hang, "hanging")
    assert time.monotonic() - started < 30
    with pytest.raises(StoppedError):
        timed.call(60, free.wait, "later")
    free.set()
