"""`metaclaw demo`: a real agent on the embedded model, without and with skills.

Nothing is scripted. The answers come from the model at temperature 0, the skills from SKILL.md
files beside this module, the scores from the recorded trajectories; a check that fails is shown
as failed. The stores lie in a home of the demo's own, so that the user's data stays untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console
from rich.table import Table

from metaclaw_langgraph.cli._common import new_console, opened_ledger
from metaclaw_langgraph.cli.status import show_status
from metaclaw_langgraph.config import MetaClawConfig, RetrievalConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import load_embedder
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.status import gather_status
from metaclaw_langgraph.types import SkillHit

if TYPE_CHECKING:
    from metaclaw_langgraph.models import LocalChatModel
    from metaclaw_langgraph.wrapping.graph import WrappedGraph

__all__ = ["app"]

app = typer.Typer()

_SKILLS = Path(__file__).parent / "demo_skills"
_NAMESPACE = "demo"
_PROMPT = "You are the assistant of a small company. Answer in one short sentence."
_TRACE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and a text that a right answer contains."""

    text: str
    expected: str


QUESTIONS = (
    Question("Which Wi-Fi network should a guest use?", "BlueHeron"),
    Question("What are the opening hours of the support desk?", "07:30"),
    Question("What is the capital of France?", "Paris"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent said, and the skills that the run had."""

    text: str
    skills: tuple[SkillHit, ...]

    def passes(self, question: Question) -> bool:
        """Whether the answer contains what it should."""
        return question.expected in self.text


@app.command()
def demo(
    home: Annotated[
        Path | None, typer.Option(help="Where the demo keeps its data; by default HOME/demo.")
    ] = None,
) -> None:
    """Show an agent without and with skills: real answers of the embedded model."""
    console = new_console()
    base = MetaClawConfig.load()
    config = _demo_config((home or base.home / "demo").expanduser().absolute())
    model = _load_model(base.home, console)
    with _agent(model, config) as agent, opened_ledger(config) as ledger:
        library = _emptied_library(config, ledger)
        before = _ask_all(agent, ledger, "Without skills", console)
        report = library.import_skills(_SKILLS)
        console.print(f"\nImported {', '.join(report.added)}: generation {report.generation}")
        after = _ask_all(agent, ledger, "With skills", console)
        if config.tracing:
            console.print("\nWriting the runs to MLflow")
        agent.metaclaw.flush(_TRACE_SECONDS, traces=True)
    console.print(_table(before, after))
    console.print(_summary(before, after))
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
    )


def _load_model(home: Path, console: Console) -> LocalChatModel:
    """The embedded model; it is kept in the user's home, where every later use finds it."""
    from metaclaw_langgraph.models import LocalChatModel

    model = LocalChatModel(home=home, max_new_tokens=48)
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
    agent = with_metaclaw(graph, config)
    try:
        yield agent
    finally:
        agent.metaclaw.close()


def _emptied_library(config: MetaClawConfig, ledger: Ledger) -> SkillLibrary:
    """The demo's library without the skills of an earlier demo."""
    library = SkillLibrary(
        ledger,
        lambda: load_embedder(config.retrieval.embedder),
        config.namespace,
        redactor=Redactor(config.redact),
    )
    if active := library.active():
        library.remove(skill.name for skill in active)
    return library


def _ask_all(
    agent: WrappedGraph, ledger: Ledger, title: str, console: Console
) -> tuple[Answer, ...]:
    console.print(f"\n{title}")
    return tuple(_ask(agent, ledger, question, console) for question in QUESTIONS)


def _ask(agent: WrappedGraph, ledger: Ledger, question: Question, console: Console) -> Answer:
    console.print(f"  {question.text}")
    run_id = uuid4()
    state = agent.invoke({"messages": [("user", question.text)]}, {"run_id": run_id})
    agent.metaclaw.flush()
    found = ledger.find_trajectory(_NAMESPACE, run_id=str(run_id))
    skills = ledger.trajectory(_NAMESPACE, found).skills if found else ()
    answer = Answer(state["messages"][-1].text.strip(), skills)
    console.print(f"    {answer.text}", style="cyan", soft_wrap=True)
    return answer


def _table(before: Iterable[Answer], after: Iterable[Answer]) -> Table:
    table = Table(show_lines=True, expand=True)
    for title in ("question", "without skills", "with skills"):
        table.add_column(title, ratio=1)
    table.add_column("skill injected", width=15)
    table.add_column("check", width=12)
    for question, old, new in zip(QUESTIONS, before, after, strict=True):
        skills = [f"{hit.id}\nscore {hit.score:.2f}" for hit in new.skills if hit.injected]
        table.add_row(
            question.text,
            old.text,
            new.text,
            "\n".join(skills) or "none",
            f"says {question.expected}?\nwithout: {_said(question, old)}"
            f"\nwith: {_said(question, new)}",
        )
    return table


def _said(question: Question, answer: Answer) -> str:
    return "yes" if answer.passes(question) else "NO"


def _summary(before: Iterable[Answer], after: Iterable[Answer]) -> str:
    def passed(answers: Iterable[Answer]) -> int:
        return sum(one.passes(asked) for asked, one in zip(QUESTIONS, answers, strict=True))

    total = len(QUESTIONS)
    return f"Checks passed: {passed(before)} of {total} without skills, {passed(after)} with them."


def _show_state(config: MetaClawConfig, console: Console) -> None:
    console.print("\n$ metaclaw status")
    show_status(gather_status(config, namespace=config.namespace), console)
    console.print(
        f"\nLook around: METACLAW_HOME={config.home} METACLAW_NAMESPACE={config.namespace} "
        "metaclaw trajectories list",
        soft_wrap=True,
    )
