"""Several processes on one home, processes that are killed, processes that want to end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.types import Verdict
from tests.learning.conftest import Learn
from tests.learning.support import LESSON, TASK, StandInEvolver, ledger_of, put
from tests.wrapping.support import (
    ask,
    counted,
    opened,
    process_env,
    run_python,
    saved,
    stored,
    talk,
)

AGENT = """
import json, os, sys, threading
from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.learning import lease
from tests.learning.support import *
from tests.judging.support import ProseModel
from tests.wrapping.support import EchoModel, ask, talk
model = EchoModel()
def wrapped(**settings):
    evolving = {**ALWAYS, **settings.pop("evolving", {})}
    return with_metaclaw(
        talk(model), home=sys.argv[1], tracing=False, retrieval=RETRIEVAL, evolving=evolving,
        **settings,
    )
"""


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is talked to line by line, and killed at the end."""
    command = [sys.executable, "-c", AGENT + code, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=process_env(), **pipes) as started:  # type: ignore[call-overload]
        try:
            yield started
        finally:
            started.kill()


def says(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def tell(started: subprocess.Popen[str], text: str = "go") -> None:
    assert started.stdin is not None
    started.stdin.write(f"{text}\n")
    started.stdin.flush()


def some_failures(ledger: Ledger, number: int) -> set[str]:
    """With words, on tasks that are about different things."""
    found = set()
    for n in range(number):
        id = put(ledger, namespace="default", task=f"write report number{n} on subject{n}")
        ledger.add_verdict("default", id, Verdict(-1.0, "human", f"Begin with total number{n}."))
        found.add(id)
    return found


def test_what_one_process_learns_the_other_knows_on_its_next_run(
    home: Path, learning: Learn
) -> None:
    code = """
agent = wrapped()
for line in sys.stdin:
    agent.invoke(ask(TASK))
    print(LESSON in model.system_prompts()[-1], flush=True)
"""
    with process(code, str(home)) as other:
        tell(other)
        assert says(other) == "False"
        agent = learning(talk())
        agent.invoke(ask(TASK))
        agent.metaclaw.feedback(False, LESSON)
        assert agent.metaclaw.learn(60)
        assert ledger_of(agent).generation("default") == 1
        tell(other)
        assert says(other) == "True"


def test_two_processes_that_learn_at_once_consume_each_failure_once(home: Path) -> None:
    with opened(home) as ledger:
        failures = some_failures(ledger, 24)
    code = """
evolver = StandInEvolver()
agent = wrapped(evolver=evolver, evolving={"support_wait": 3600, "support_size": 2})
print("ready", flush=True)
sys.stdin.readline()
done = agent.metaclaw.learn(60)
print(json.dumps([done, evolver.asked, agent.metaclaw._store.ledger().counts("default").role]))
"""
    with process(code, str(home)) as one, process(code, str(home)) as two:
        assert [says(one), says(two)] == ["ready", "ready"]
        tell(one)
        tell(two)
        results = [json.loads(says(one)), json.loads(says(two))]
    for done, _, roles in results:
        # Who was second has waited for the first: nothing is left when it returns.
        assert (done, roles) == (True, {"consumed": 24})
    asked = [id for _, calls, _ in results for ids in calls for id in ids]
    assert sorted(asked) == sorted(failures)
    with opened(home) as ledger:
        consumed = [id for one in ledger.evolutions("default") for id in one.consumed]
        assert sorted(consumed) == sorted(failures)
        assert saved(ledger, "learning") == saved(ledger, "evolver") == 0


def test_a_process_killed_in_the_middle_of_an_evolution_leaves_it_to_the_next(
    home: Path, learning: Learn
) -> None:
    """With an LLM stand-in that does not answer; the lease of the dead runs out."""
    with opened(home) as ledger:
        failures = some_failures(ledger, 3)
    code = """
lease._SECONDS = 1.0
def hang():
    print("evolving", flush=True)
    threading.Event().wait()
wrapped(evolver=StandInEvolver(hang), evolving={"support_wait": 0})
threading.Event().wait()
"""
    with process(code, str(home)) as killed:
        assert says(killed) == "evolving"
        killed.send_signal(signal.SIGKILL)
        killed.wait(10)
    evolver = StandInEvolver()
    agent = learning(talk(), evolver=evolver, evolving={"support_wait": 3600})
    ledger = ledger_of(agent)
    assert agent.metaclaw.learn(60)
    assert sorted(id for ids in evolver.asked for id in ids) == sorted(failures)
    assert ledger.counts("default").role == {"consumed": 3}
    assert ledger.generation("default") == 1


HANGING = {
    "a check": "wrapped(judge=lambda t: hang())",
    "an async check": "wrapped(judge=ahang)",
    "a model stand-in that judges": "wrapped(judge=HangingModel(answers=['']))",
    "a model stand-in that writes": "wrapped(evolver=HangingModel(answers=['']))",
    "a replay": "wrapped(judge=lambda t: (False, LESSON), replay=lambda t, c: hang())",
}


@pytest.mark.parametrize("agent", HANGING.values(), ids=list(HANGING))
def test_a_process_ends_though_somebody_hangs(home: Path, agent: str) -> None:
    """In time, without a crash, and with everything stored."""
    code = f"""
import asyncio
reached = threading.Event()
def hang():
    reached.set()
    threading.Event().wait()
async def ahang(trajectory):
    reached.set()
    await asyncio.Event().wait()
class HangingModel(ProseModel):
    def _generate(self, *args, **kwargs):
        hang()
agent = {agent}
print(agent.invoke(ask(TASK))["messages"][-1].content)
if "judge=" not in {agent!r}:
    agent.metaclaw.feedback(False, LESSON)
threading.Thread(target=agent.metaclaw.learn, daemon=True).start()
assert reached.wait(30)
"""
    done = run_python(AGENT + code, str(home))
    assert (done.returncode, done.stdout) == (0, f"echo {TASK}\n"), done.stderr
    assert "Traceback" not in done.stderr
    with opened(home) as ledger:
        assert ledger.counts("default").total == 1
        assert saved(ledger, "learning") == 0


def test_a_process_ends_though_a_judge_is_inside_a_native_library(home: Path) -> None:
    """A daemon thread that comes back from torch into an interpreter that has ended aborts it."""
    code = """
import time, torch
begun = threading.Event()
def judge(trajectory):
    begun.set()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        torch.ones(600, 600) @ torch.ones(600, 600)
    return True
agent = wrapped(judge=judge)
agent.invoke(ask("hello"))
assert begun.wait(30)
"""
    done = run_python(AGENT + code, str(home))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_has_a_learner_of_its_own(home: Path) -> None:
    code = """
seen = []
agent = wrapped(judge=lambda trajectory: seen.append(os.getpid()) or (False, LESSON))
agent.invoke(ask(TASK))
assert agent.metaclaw.learn(60)
child = os.fork()
if not child:
    seen.clear()
    agent.metaclaw.feedback(True)
    agent.invoke(ask("write the invoice for order nine"))
    good = agent.metaclaw.learn(60) and seen == [os.getpid()]
    good = good and LESSON in model.system_prompts()[-1]
    agent.metaclaw.close()
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
agent.invoke(ask(TASK))
assert agent.metaclaw.learn(60)
print(len(seen), agent.metaclaw._store.ledger().counts("default").total)
"""
    done = run_python(AGENT + code, str(home))
    assert (done.returncode, done.stdout) == (0, "2 3\n"), done.stderr


def test_a_short_program_does_not_end_before_its_failure_is_kept(
    home: Path, learning: Learn
) -> None:
    """It did not live to learn; the next process does it by itself."""
    code = """
agent = wrapped()
agent.invoke(ask(TASK))
agent.metaclaw.feedback(False, LESSON)
"""
    done = run_python(AGENT + code, str(home))
    assert done.returncode == 0, done.stderr
    agent = learning(talk())
    assert agent.metaclaw.learn(60)
    assert stored(agent)[0].role == "consumed"
    assert counted(agent, "learning") == 0
