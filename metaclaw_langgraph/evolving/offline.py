"""The evolver that needs no LLM: a correction in words becomes a skill.

It learns only from what a person or a verifier said was wrong, in their own words. From the task it
takes the topic, so that the skill is found for the next task of its kind, and nothing that could
be an order: a user's message is data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Skill

__all__ = ["OfflineEvolver", "topic"]

_TOPIC_WORDS = 10
_NAME_WORDS = 5
_SAYS = 4
"""Words in a row that may be an order."""
# Scripts without blanks between words are taken two signs at a time.
_SIGN = "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_LETTER = rf"(?!{_SIGN})[^\W_]"
_WORD = re.compile(rf"{_SIGN}{{1,2}}|(?:{_LETTER})+(?:['\u2019.-](?:{_LETTER})+)*")
# Words that carry no topic, and words that would make an order of it.
_NO_TOPIC = """\
    a about above after again all also always am an and any anyway are as ask asked at be because
    been before being below best but by can cannot could did disregard do does doing done down each
    every ever few find follow for forget forward from get give go going good had has have he help
    her here hers him his how i if ignore immediately in instead into is it its just keep know let
    like make many may me might more most much must my need needs never next no nor not note now of
    off ok on once one only or other our out over own please prefer previous put really remember
    reply respond right run said same say see send she should show since so some still stop such
    sure take tell than thank thanks that the their them then there these they thing things this
    those through to too try under until up us use used using very via want was way we well were
    what when where whether which while who whom whose why will with within without would yes yet
    you your yours"""
_STOP = frozenset(_NO_TOPIC.split())


class OfflineEvolver:
    """Turns corrections into skills, one for each task."""

    name = "offline"
    needs_words = True

    def wants(self, failure: Failure) -> bool:
        """A correction in words, and a task that it belongs to."""
        spoken = failure.verdict.source in ("human", "verifier") and failure.verdict.reason.strip()
        return bool(spoken and topic(failure.trajectory.task or ""))

    def draft(self, failures: Sequence[Failure], related: Sequence[Skill]) -> Sequence[Draft]:
        """One draft for each topic, the corrections in the order in which they were given."""
        by_topic: dict[tuple[str, ...], list[Failure]] = {}
        for failure in failures:
            words = topic(failure.trajectory.task or "")
            by_topic.setdefault(tuple(words), []).append(failure)
        return [_draft(words, some) for words, some in by_topic.items()]

    def merge(self, old: Skill, new: Skill) -> Skill:
        """The newest corrections first: of two that differ, the later one counts."""
        said = {line for line in _lines(new.body) if _WORD.search(line)}
        rest = [line for line in old.body.splitlines() if line.rstrip() not in said]
        body = "\n".join([new.body.strip(), *rest]).strip()
        return Skill(old.name, old.description, body, metadata=old.metadata)


def topic(task: str) -> list[str]:
    """The words that say what a task is about, each once: as they stand there, unless so many in a
    row would say something."""
    words = [match.group().lower() for match in _WORD.finditer(task[:2000])]
    telling = [word for word in words if word not in _STOP]
    long = [word for word in telling if len(word) > 1]
    chosen = list(dict.fromkeys(long or telling))[:_TOPIC_WORDS]
    said = f" {' '.join(words)} "
    runs = (chosen[place : place + _SAYS] for place in range(len(chosen) - _SAYS + 1))
    return sorted(chosen) if any(f" {' '.join(run)} " in said for run in runs) else chosen


def _draft(words: Sequence[str], failures: Sequence[Failure]) -> Draft:
    texts = dict.fromkeys("\n".join(_lines(one.verdict.reason)) for one in reversed(failures))
    about = ", ".join(words)
    skill = Skill(_name(words), f"Corrections on: {about}", "\n".join(texts))
    by = sorted({failure.verdict.source for failure in failures})
    origin = tuple(failure.trajectory.id for failure in failures)
    return Draft(skill, None, origin, f"correction by {' and '.join(by)} on {about}")


def _name(words: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", "-".join(words[:_NAME_WORDS]))[:60].strip("-")
    return plain or "correction"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines() if line.strip()]
