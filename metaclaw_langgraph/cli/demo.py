"""`metaclaw demo`: a real agent on the embedded model fails, is corrected, and has learned.

Nothing is scripted but the questions and the corrections. The answers come from the model at
temperature 0, the skills from the evolver, the proof from replays, the scores from checks of the
answers; a check that fails is shown as failed. The stores lie in a home of the demo's own, so that
the user's data stays untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console

from metaclaw_langgraph.cli._common import new_console, opened_ledger
from metaclaw_langgraph.cli.status import show_status
from metaclaw_langgraph.config import EvolvingConfig, MetaClawConfig, RetrievalConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import load_embedder
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.status import gather_status
from metaclaw_langgraph.types import Trajectory

if TYPE_CHECKING:
    from metaclaw_langgraph.models import LocalChatModel
    from metaclaw_langgraph.wrapping.graph import WrappedGraph

__all__ = ["app"]

app = typer.Typer()

_NAMESPACE = "demo"
_PROMPT = "You are the assistant of a small company. Answer in one short sentence."
_TRACE_SECONDS = 30.0
_LEARN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the company knows and the model does not: a question, the correction, and the same
    question in other words, which nobody corrects."""

    question: str
    correction: str
    expected: str
    others: tuple[str, ...]


LESSONS = (
    Lesson(
        "Which Wi-Fi network should a guest use?",
        "The guest Wi-Fi network is called BlueHeron.",
        "BlueHeron",
        ("What is the name of the guest Wi-Fi network?", "A guest wants to use our Wi-Fi network."),
    ),
    Lesson(
        "What are the opening hours of the support desk?",
        "The support desk is open from 07:30 to 15:00.",
        "07:30",
        ("When does the support desk open?", "From when to when is the support desk open?"),
    ),
    Lesson(
        "Which printer is on the second floor?",
        "The printer on the second floor is called Magpie.",
        "Magpie",
        ("What is the printer on the second floor called?", "Name the second floor's printer."),
    ),
)
KNOWN = {"What is the capital of France?": "Paris", "What colour is the sky by day?": "blue"}
"""Questions that need no lesson, and must not suffer from one."""


def _expected(question: str) -> str | None:
    for one in LESSONS:
        if question in (one.question, *one.others):
            return one.expected
    return KNOWN.get(question)


def _groups() -> dict[str, list[str]]:
    """All questions, in the order in which they are asked."""
    return {
        "Corrected questions": [one.question for one in LESSONS],
        "The same in other words": [text for one in LESSONS for text in one.others],
        "Unrelated questions": list(KNOWN),
    }


@app.command()
def demo(
    home: Annotated[
        Path | None, typer.Option(help="Where the demo keeps its data; by default HOME/demo.")
    ] = None,
) -> None:
    """Show an agent that fails, is corrected and has learned, on the embedded model."""
    console = new_console()
    base = MetaClawConfig.load()
    config = _demo_config((home or base.home / "demo").expanduser().absolute())
    model = _load_model(base.home, console)
    with _agent(model, config) as agent, opened_ledger(config) as ledger:
        _empty_library(config, ledger)
        questions = [question for some in _groups().values() for question in some]
        before = {text: _ask(agent, text, console) for text in questions}
        _correct(agent, before, console)
        _learn(agent, ledger, console)
        after = {text: _ask(agent, text, console) for text in questions}
        if config.tracing:
            console.print("\nWriting the runs and the new generation to MLflow")
        agent.metaclaw.flush(_TRACE_SECONDS, traces=True)
    console.print()
    for line in _summary(before, after):
        console.print(line)
    _show_state(config, console)


def _demo_config(home: Path) -> MetaClawConfig:
    """Every store inside this home, whatever the user's own settings say."""
    return MetaClawConfig.load(
        home=home,
        namespace=_NAMESPACE,
        ledger_url=f"sqlite:///{(home / 'ledger.db').as_posix()}",
        mlflow_uri=f"sqlite:///{(home / 'mlflow.db').as_posix()}",
        chroma_url=None,
        hook=True,
        # A machine that is busy with a model of its own may need longer than a service allows.
        retrieval=RetrievalConfig().model_dump() | {"deadline": 5.0},
        # Learning waits for the demo to say so: all corrections, one evolution.
        evolving=EvolvingConfig().model_dump() | {"support_wait": 3600.0, "support_size": 100},
    )


def _load_model(home: Path, console: Console) -> LocalChatModel:
    """The embedded model; it is kept in the user's home, where every later use finds it."""
    from metaclaw_langgraph.models import LocalChatModel

    model = LocalChatModel(home=home, max_new_tokens=32)
    console.print("Loading the embedded model SmolLM2-135M-Instruct (converted at its first use)")
    model.load()
    return model


@contextmanager
def _agent(model: LocalChatModel, config: MetaClawConfig) -> Iterator[WrappedGraph]:
    """A graph of one node with a system prompt of its own, wrapped."""
    from langgraph.graph import START, MessagesState, StateGraph

    from metaclaw_langgraph import with_metaclaw

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([("system", _PROMPT), *state["messages"]])]}

    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
    agent = with_metaclaw(graph, config, judge=_check, replay=True)
    try:
        yield agent
    finally:
        agent.metaclaw.close()


def _check(trajectory: Trajectory) -> bool | None:
    """The demo's verifier: whether the answer holds what a right one holds."""
    task = trajectory.task or ""
    answers = [call.response for call in trajectory.calls if call.response is not None]
    if _expected(task) is None or not answers:
        return None
    return _passes(task, str(trajectory.messages[answers[-1]]))


def _passes(question: str, answer: str) -> bool:
    expected = _expected(question)
    return expected is not None and expected in answer


def _empty_library(config: MetaClawConfig, ledger: Ledger) -> None:
    """Retire the skills of an earlier demo."""
    library = SkillLibrary(
        ledger,
        lambda: load_embedder(config.retrieval.embedder),
        config.namespace,
        redactor=Redactor(config.redact),
    )
    if active := library.active():
        library.retire((skill.name for skill in active), "a new demo begins")


def _ask(agent: WrappedGraph, question: str, console: Console) -> str:
    run_id = uuid4()
    state = agent.invoke({"messages": [("user", question)]}, {"run_id": run_id})
    answer = str(state["messages"][-1].text).strip()
    mark = "ok  " if _passes(question, answer) else "FAIL"
    console.print(f"  {mark} {question}")
    console.print(f"       {answer}", style="cyan", soft_wrap=True)
    return answer


def _correct(agent: WrappedGraph, answers: dict[str, str], console: Console) -> None:
    """A person says what was wrong, in words."""
    console.print("\nA person corrects the first answers, in words")
    for lesson in LESSONS:
        if _passes(lesson.question, answers[lesson.question]):
            continue
        console.print(f'  feedback(False, "{lesson.correction}")')
        agent.metaclaw.feedback(
            False, lesson.correction, trajectory_id=_latest(agent, lesson.question)
        )


def _latest(agent: WrappedGraph, question: str) -> str:
    agent.metaclaw.flush()
    with opened_ledger(agent.metaclaw.config) as ledger:
        runs = ledger.trajectories(_NAMESPACE, limit=50)
    return next(run.id for run in runs if run.task == question)


def _learn(agent: WrappedGraph, ledger: Ledger, console: Console) -> None:
    """Evolve now; in an app it happens by itself."""
    console.print("\nLearning: each draft is replayed with it and without it, four times a task")
    if not agent.metaclaw.learn(_LEARN_SECONDS):
        console.print("  learning did not finish; `metaclaw status` says why")
    for draft in ledger.drafts(_NAMESPACE, limit=len(LESSONS)):
        console.print(f"  {draft.skill.name}: {draft.state}: {draft.reason}")
        console.print(f"       {draft.skill.body}", style="cyan", soft_wrap=True)
    console.print(f"Generation {ledger.generation(_NAMESPACE)} is live. The same questions again:")


def _summary(before: dict[str, str], after: dict[str, str]) -> list[str]:
    def passed(questions: Sequence[str], answers: dict[str, str]) -> int:
        return sum(_passes(question, answers[question]) for question in questions)

    return [
        f"{title}: {passed(some, before)} of {len(some)} passed before, {passed(some, after)} after"
        for title, some in _groups().items()
    ]


def _show_state(config: MetaClawConfig, console: Console) -> None:
    console.print("\n$ metaclaw status")
    show_status(gather_status(config, namespace=config.namespace), console)
    console.print(
        f"\nLook around: METACLAW_HOME={config.home} METACLAW_NAMESPACE={config.namespace} "
        "metaclaw skills log | skills list | trajectories list | ui",
        soft_wrap=True,
    )
