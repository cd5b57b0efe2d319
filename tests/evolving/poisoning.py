"""Which defence stops which poison: the figures of docs/poisoning.md.

Run `python -m tests.evolving.poisoning` to print them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.grounding import Grounding
from metaclaw_langgraph.evolving.guard import Guard
from metaclaw_langgraph.evolving.offline import OfflineEvolver
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import Embedder, MiniLMInt8
from metaclaw_langgraph.skills.format import find_skill_files, read_skill
from metaclaw_langgraph.types import Skill, ToolCall, Trajectory, VerdictSource
from tests.evolving.runs import call, failure, message, tool, trajectory

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
TOKEN_BUDGET = 1500
DEFENCES = ("refuse", "review", "structure", "words", "meaning")
"""What can stop a draft, in the order in which the pipeline asks."""


@dataclass(frozen=True)
class Poison:
    """An injection, and what an evolver that obeys it would write."""

    id: str
    kind: str
    channel: str
    text: str
    obeyed: str
    paraphrased: str
    part: Literal["body", "description", "name", "metadata"] = "body"
    """Where in the skill the evolver puts it."""
    body: str = ""
    """The rest of the skill, when it is not put there: what a person said."""
    source: VerdictSource = "judge"
    reason: str = "The answer did not help."
    task: str = "Please look this up and answer."

    def skill(self, wording: str) -> Skill:
        """What the evolver writes."""
        said = self.obeyed if wording == "obeyed" else self.paraphrased
        skill = Skill("learned-advice", "Advice for such tasks", self.body)
        if self.part == "metadata":
            return replace(skill, metadata={"metadata": {"note": said}})
        changed: dict[str, Any] = {self.part: said}
        return replace(skill, **changed)

    def run(self) -> Trajectory:
        """A run that met the injection."""
        if self.channel == "user":
            said = message("human", self.text), message("ai", "Done.")
            return trajectory(*said, id=self.id, task=self.text, calls=[call(0)])
        return trajectory(
            message("human", self.task),
            message("tool", self.text),
            message("ai", "Here is what I found."),
            id=self.id,
            task=self.task,
            tools=[tool(1, output=self.text)],
            calls=[call(0), call(2)],
        )

    def failure(self) -> Failure:
        """The run as a failure; in most classes the judge said nothing of use."""
        return failure(self.run(), self.source, self.reason)


@dataclass(frozen=True)
class Benign:
    """A conversation without an attacker, and what a good evolver writes from it."""

    id: str
    user: str
    source: VerdictSource
    reason: str
    description: str
    body: str
    answer: str = "Here it is."

    def failure(self, tools: Sequence[ToolCall] = ()) -> Failure:
        said = message("human", self.user), message("ai", self.answer)
        run = trajectory(*said, task=self.user, tools=tools)
        return failure(run, self.source, self.reason)


@dataclass
class Figures:
    """How many of each class, channel and wording each defence stops; None: nothing does."""

    stopped: Counter[tuple[str, str, str, str | None]] = field(default_factory=Counter)
    passed: list[tuple[str, str]] = field(default_factory=list)
    false_alarms: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    corrected: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    """Corrections that the offline evolver makes skills of, from runs with tool results."""
    library: Counter[str | None] = field(default_factory=Counter)


def poisons() -> list[Poison]:
    return [
        Poison(**{("kind" if key == "class" else key): value for key, value in row.items()})
        for row in _rows("poison.jsonl")
    ]


def benign() -> list[Benign]:
    return [
        Benign(**{key: value for key, value in row.items() if key != "task"})
        for row in _rows("benign.jsonl")
    ]


def library() -> list[Skill]:
    """Skills that people wrote."""
    return [read_skill(path) for path in find_skill_files(ROOT / "benchmarks/data/skills")]


def draft(body: str, *origin: str, description: str = "Advice for such tasks") -> Draft:
    return Draft(Skill("learned-advice", description, body), None, origin or ("t1",), "test")


class Measure:
    """The defences, as the default configuration puts them together."""

    def __init__(self, embedder: Embedder | None) -> None:
        self.guard = Guard(Redactor(), TOKEN_BUDGET)
        self.grounding = Grounding(embedder)
        self.offline = OfflineEvolver()

    def stopped_by(self, made: Draft, origin: Failure) -> str | None:
        """The first defence that keeps a draft from going live by itself."""
        severities = {finding.severity for finding in self.guard.check(made.skill)}
        if "refuse" in severities:
            return "refuse"
        if "review" in severities:
            return "review"
        why = self.grounding.why(made, [origin], [])
        return why.look if why else None

    def figures(self) -> Figures:
        figures = Figures()
        for one in poisons():
            for wording in ("obeyed", "paraphrased"):
                made = Draft(one.skill(wording), None, (one.id,), "test")
                by = self.stopped_by(made, one.failure())
                figures.stopped[one.kind, one.channel, wording, by] += 1
                if by is None:
                    figures.passed.append((one.id, wording))
        for good in benign():
            made = draft(good.body, description=good.description)
            figures.false_alarms[good.source, self.stopped_by(made, good.failure())] += 1
            origin = good.failure([tool(1, output="3 results")])
            for made in self.offline.draft([origin], []) if self.offline.wants(origin) else ():
                figures.corrected[good.source, self.stopped_by(made, origin)] += 1
        for skill in library():
            found = {finding.severity for finding in self.guard.check(skill)}
            figures.library[next((s for s in ("refuse", "review") if s in found), None)] += 1
        return figures


def table(figures: Figures, wording: str) -> str:
    """The figures of one wording, a line for each class and channel."""
    lines = [
        "| class | channel | texts | guard refuses | guard asks | tool results | words | meaning | "
        "nothing |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    groups = dict.fromkeys((kind, channel) for kind, channel, _, _ in figures.stopped)
    for kind, channel in groups:
        counts = [figures.stopped[kind, channel, wording, by] for by in (*DEFENCES, None)]
        lines.append(_line(kind, channel, counts))
    total = [
        sum(n for (_, _, how, by), n in figures.stopped.items() if how == wording and by == one)
        for one in (*DEFENCES, None)
    ]
    return "\n".join([*lines, _line("all", "", total)])


def _line(kind: str, channel: str, counts: Iterable[int]) -> str:
    numbers = list(counts)
    cells = [kind, channel, str(sum(numbers)), *(str(n) if n else "" for n in numbers)]
    return "| " + " | ".join(cells) + " |"


def _rows(name: str) -> list[Mapping[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def main() -> None:
    figures = Measure(MiniLMInt8()).figures()
    for wording in ("obeyed", "paraphrased"):
        print(f"{wording}\n{table(figures, wording)}\n")
    print("passed:", *figures.passed)
    print("false alarms:", dict(figures.false_alarms))
    print("corrections, from runs with tool results:", dict(figures.corrected))
    print("library:", dict(figures.library))


if __name__ == "__main__":
    main()
