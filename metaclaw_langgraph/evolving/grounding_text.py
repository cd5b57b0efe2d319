"""Texts as words, sentences and negations, so that they can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from metaclaw_langgraph.evolving.guard_text import plain_text
from metaclaw_langgraph.types import Json

__all__ = [
    "RUN",
    "Sentence",
    "Text",
    "Unit",
    "common_runs",
    "runs_of",
    "sentences",
    "shown",
    "spelled",
    "strings",
    "units",
    "words",
]

RUN = 6
"""Words in a row that are no coincidence."""
_FEWEST = 3
"""Content words below which a share of them says nothing."""

# Scripts that are written without blanks: each sign counts as half a word.
_SIGN = "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_WIDE = re.compile(_SIGN)
_WORD = re.compile(rf"{_SIGN}|(?:(?!{_SIGN})[^\W_])+")
_ESCAPED = re.compile(r"\\[nrt]")
_END = re.compile(r"(?<=[.!?])\s+|[\n\u3002\uff01\uff1f]+")
_PART = re.compile(r"(?<=;)\s+|\uff1b+")
_BULLET = re.compile(r"\s*(?:[-*+•>#]+|\d{1,3}[.)])\s+")
_STOP_WORDS = """\
    a about after all also an and any are as at be because been before but by can did do does for
    from get give had has have he her his how i if in into is it its may me more must my no not of
    on one or other our out please she should since so some such than that the their them then
    there these they this those to too up use used us was we were what when where which who will
    with would you your answer answers ask asks say says tell user users question questions always
    never only each every first"""
_STOP = frozenset(_STOP_WORDS.split())
# "t" is what is left of "don't" and its like.
_NEGATION_WORDS = """\
    not no never none nor neither nothing nobody cannot t dont without avoid stop refrain forbidden
    prohibited wrong false untrue incorrect mistake instead unless except nicht kein keine keinen
    nie niemals ohne ne pas jamais sans nunca jamas sin non mai
    не нет никогда без 不 别 勿 没 無 未"""
_NEGATIONS = frozenset(_NEGATION_WORDS.split())


def words(text: str) -> list[str]:
    """Folded, without signs between them; a line break that was written as `\\n` is none."""
    return list(_words(text) if len(text) < _SHORT else _read_words(text))


def _read_words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(plain_text(_ESCAPED.sub(" ", text))))


# The same prompts and skills come again in every run, and each sentence is read several times.
_SHORT = 2000
_words = lru_cache(4096)(_read_words)


def spelled(text: str) -> tuple[str, list[tuple[str, int, int]]]:
    """The text that the words are found in, and where in it each begins and ends."""
    plain = plain_text(_ESCAPED.sub(" ", text))
    return plain, [(match[0], *match.span()) for match in _WORD.finditer(plain)]


@dataclass(frozen=True)
class Unit:
    """A sentence and what may turn it round: a word on its own after it ("Free? Never."), or the
    lines under a heading such as "Never say:"."""

    pieces: tuple[str, ...]

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(word for piece in self.pieces for word in words(piece))

    @cached_property
    def negations(self) -> int:
        return sum(word in _NEGATIONS for word in self.words)


class Sentence:
    """A sentence and its words."""

    def __init__(self, text: str, negations: int = 0) -> None:
        self.text = text
        self.content = frozenset(_content(text))
        self.negations = negations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sentence) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def within(self, content: frozenset[str]) -> float:
        """The share of its content that is there too; of next to nothing, all or none."""
        if len(self.content) < _FEWEST:
            return float(self.content == content)
        return len(self.content & content) / len(self.content)


class Text:
    """A text as one row of words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.units = units(text)

    @cached_property
    def words(self) -> list[str]:
        return [word for unit in self.units for word in unit.words]

    @cached_property
    def _row(self) -> str:
        return f" {' '.join(self.words)} "

    def places(self, run: Sequence[str]) -> Iterator[int]:
        """Where these words stand in a row."""
        wanted = f" {' '.join(run)} "
        at = self._row.find(wanted) if run else -1
        while at >= 0:
            yield self._row.count(" ", 0, at)
            at = self._row.find(wanted, at + 1)

    def negations(self, start: int, length: int) -> int:
        """How many negations the units hold that some of these words stand in."""
        found = place = 0
        for unit in self.units:
            end = place + len(unit.words)
            found += unit.negations if place < start + length and start < end else 0
            place = end
        return found


def units(text: str) -> list[Unit]:
    made: list[list[str]] = []
    heading = False
    for piece in (_BULLET.sub("", one, count=1).strip() for one in _END.split(text)):
        said = words(piece)
        if not said:
            continue
        if made and (heading or len(said) == 1):
            made[-1].append(piece)
        else:
            made.append([piece])
        heading = heading or (piece.endswith(":") and not _NEGATIONS.isdisjoint(said))
    return [Unit(tuple(pieces)) for pieces in made]


def sentences(text: str) -> list[Sentence]:
    return [
        Sentence(part, unit.negations)
        for unit in units(text)
        for piece in unit.pieces
        for part in _PART.split(piece)
        if part
    ]


def _content(text: str) -> Iterator[str]:
    """The words that carry meaning, without their endings; signs in pairs."""
    row = words(text)
    for word, following in zip(row, [*row[1:], ""], strict=False):
        if _WIDE.match(word):
            yield word + (following if _WIDE.match(following) else "")
        elif word not in _STOP:
            yield _stem(word)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def runs_of(row: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """All that are just long enough to be no coincidence."""
    return (tuple(row[place : place + RUN]) for place in range(len(row) - RUN + 1))


def common_runs(row: Sequence[str], known: set[tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """The pieces of a text that are known, as long as they go, if they are long enough."""
    start = None
    for place in range(len(row) + 1):
        if tuple(row[place : place + RUN]) in known and place + RUN <= len(row):
            start = place if start is None else start
        elif start is not None:
            end = place + RUN - 1
            if sum(0.5 if _WIDE.match(word) else 1.0 for word in row[start:end]) >= RUN:
                yield start, end
            start = None


def strings(value: Json, *, keys: bool = False) -> Iterator[str]:
    """All texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value if keys else ()
        for item in value.values():
            yield from strings(item, keys=keys)
    elif isinstance(value, Sequence):
        for item in value:
            yield from strings(item, keys=keys)


def shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:79] + "…")
