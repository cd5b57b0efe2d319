"""What is trusted: the words of people and verifiers on a run, and live skills.

A verifier is a program, and many quote what they check ("expected 16.0, got '…'"). What it quotes
from the run is the run's word, not the verifier's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from metaclaw_langgraph.evolving.grounding_text import (
    Sentence,
    Text,
    common_runs,
    runs_of,
    sentences,
    spelled,
    strings,
    units,
    words,
)
from metaclaw_langgraph.judging.feedback import NEXT_TURN
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Json, Skill, Verdict

__all__ = ["Trusted", "is_trusted", "untrusted_texts"]

_TURNED = 0.75
"""The share from which on a sentence says what another one says, but for its negations."""
_LONGEST = 10_000
"""Characters of a verifier's reason that are read; more are not trusted."""
_FEWEST_QUOTED = 3
_FEWEST_IN_SENTENCE = 2
_QUOTES = re.compile(
    r"[\n;:,\"“”„«»`{}\[\]]|(?<!\w)'|'(?!\w)"
    r"|\b(?:got|but|was|were|returned|received|answered|said|says|found)\b"
)


class Trusted:
    """What people and verifiers said of these runs, and the live skills."""

    def __init__(self, failures: Sequence[Failure], live: Sequence[Skill]) -> None:
        self.quoted: list[list[str]] = []
        """What verifiers repeat of the runs."""
        self.reasons: list[Text] = []
        told = _Told(untrusted_texts(failures))
        for one in failures:
            if is_trusted(one.verdict) and one.verdict.source == "verifier":
                kept, quoted = told.cut_out(one.verdict.reason)
                self.quoted += quoted
                self.reasons += map(Text, kept)
            elif is_trusted(one.verdict):
                self.reasons.append(Text(one.verdict.reason))
        names = [one.name.replace("-", " ") for one in live]
        skills = [text for one in live for text in (one.description, one.body)]
        self._texts = [*self.reasons, *map(Text, (*names, *skills))]

    @cached_property
    def sentences(self) -> list[Sentence]:
        return [one for text in self._texts for one in sentences(text.text)]

    def says(self, run: Sequence[str], negations: int) -> bool:
        """Whether these words stand in a row in one of the texts, with as many negations."""
        return any(
            text.negations(place, len(run)) == negations
            for text in self._texts
            for place in text.places(run)
        )

    def holds(self, text: str) -> bool:
        """Whether all of its sentences stand there, whole; what is left out of a text that some
        come from must hold no negation, since it may be of them."""
        drafted = {unit.words for unit in units(text)}
        held: set[tuple[str, ...]] = set()
        for one in self._texts:
            if not any(unit.negations for unit in one.units if unit.words not in drafted):
                held.update(unit.words for unit in one.units)
        return bool(drafted) and drafted <= held

    def backing(self, sentence: Sentence) -> list[Sentence]:
        """The sentences there that can speak for it: all but those that it turns round."""
        return [one for one in self.sentences if not turned(sentence, one)]

    def share(self, sentence: Sentence) -> float:
        return max((sentence.within(one.content) for one in self.backing(sentence)), default=0.0)


def turned(sentence: Sentence, trusted: Sentence) -> bool:
    """Whether it says nearly the same, but for a negation."""
    return sentence.negations != trusted.negations and sentence.within(trusted.content) >= _TURNED


def is_trusted(verdict: Verdict) -> bool:
    """Whether its reason is the word of somebody who may teach the agent.

    A user's next message is not, though it is a person's: it is as untrusted as all the others.
    """
    read_from_chat = NEXT_TURN in (verdict.author, verdict.origin)
    return verdict.source in ("human", "verifier") and not read_from_chat


def untrusted_texts(failures: Iterable[Failure]) -> Iterator[str]:
    """All that was said in the runs by anybody, and the reasons of those who are not trusted."""
    for failure in failures:
        run = failure.trajectory
        yield from (text for message in run.messages for text in _message_texts(message))
        yield from (text for tool in run.tools for text in strings([tool.output, tool.error]))
        yield from strings([run.task, run.input, run.output, run.error])
        if not is_trusted(failure.verdict):
            yield failure.verdict.reason


def _message_texts(message: Mapping[str, Json]) -> Iterator[str]:
    data = message.get("data")
    yield from strings(data.get("content") if isinstance(data, Mapping) else None)


class _Told:
    """What the runs were told, to find it again in what a verifier says."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._given = texts

    @cached_property
    def _rows(self) -> list[list[str]]:
        return [words(text) for text in dict.fromkeys(self._given)]

    @cached_property
    def _runs(self) -> set[tuple[str, ...]]:
        return {run for row in self._rows for run in runs_of(row)}

    @cached_property
    def _all(self) -> str:
        return "\n".join(f" {' '.join(row)} " for row in self._rows)

    def cut_out(self, reason: str) -> tuple[list[str], list[list[str]]]:
        """The reason without what it repeats of the runs, in pieces, and what that is.

        Six words in a row, a whole sentence, or what stands between quotes, colons or words such
        as "got".
        """
        plain, spans = spelled(reason[:_LONGEST])
        row = [word for word, _, _ in spans]
        found = [row[start:end] for start, end in common_runs(row, self._runs)]
        whole = [piece for unit in units(plain) for piece in unit.pieces]
        found += self._repeated(whole, _FEWEST_IN_SENTENCE)
        found += self._repeated(_QUOTES.split(plain), _FEWEST_QUOTED)
        cut = {place for quoted in found for place in _places(row, quoted)}
        kept = [plain[: spans[0][1]]] if spans else []
        for place, (_, start, _) in enumerate(spans):
            end = spans[place + 1][1] if place + 1 < len(spans) else len(plain)
            if place in cut:
                kept.append("")
            else:
                kept[-1] += plain[start:end]
        return [piece for piece in kept if words(piece)], found

    def _repeated(self, pieces: Iterable[str], least: int) -> list[list[str]]:
        rows = [words(piece) for piece in dict.fromkeys(pieces)]
        return [row for row in rows if len(row) >= least and f" {' '.join(row)} " in self._all]


def _places(row: Sequence[str], quoted: Sequence[str]) -> Iterator[int]:
    for start in range(len(row) - len(quoted) + 1):
        if row[start : start + len(quoted)] == quoted:
            yield from range(start, start + len(quoted))
