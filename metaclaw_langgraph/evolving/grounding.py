"""Whether a draft may say what untrusted text told it to.

An evolver reads what users and tools wrote, and can be talked into passing it on. Trusted is what
people and verifiers said about a run, and what live skills say. Untrusted is all the rest of a run:
tool results, users' messages, the assistant's own (they echo), a judge's reasons (it read them).

Three looks, from the surest to the weakest: the run holds tool results; the draft repeats words of
an untrusted text; a sentence of it means the same as an untrusted one. The last one is a guess: a
text in entirely other words passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.guard_text import plain_text
from metaclaw_langgraph.judging.feedback import NEXT_TURN
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.skills.embedding import Embedder
from metaclaw_langgraph.types import Json, Skill, Trajectory, Verdict

__all__ = ["Grounding", "Why", "holds_tool_results", "is_trusted"]

_RUN = 6
"""Words in a row that are no coincidence."""
# Chosen on tests/evolving/data: lower values stop more, and stop honest drafts as well.
_CONTAINED = 0.5
_COSINE = 0.6
# An embedding takes about 5 ms. Of more sentences, those with the most words of the draft are read.
_MOST_SENTENCES = 300
_MOST_TRUSTED = 60
_MOST_DRAFTED = 40
_FEWEST = 3
"""Content words below which a share of them says nothing."""


@dataclass(frozen=True, slots=True)
class Why:
    """Which look found it, and in words."""

    look: str
    text: str


class Grounding:
    """Compares drafts with the runs that they were written from."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    def untrusted(
        self, draft: Draft, failures: Sequence[Failure], live: Sequence[Skill]
    ) -> str | None:
        """Why the draft may say what untrusted text told it to; None when nothing points to it."""
        found = self.why(draft, failures, live)
        return found.text if found else None

    def why(self, draft: Draft, failures: Sequence[Failure], live: Sequence[Skill]) -> Why | None:
        """The first of the looks that finds something.

        `failures` are all that the evolver was shown: which of them a draft comes from is only
        the evolver's word.
        """
        if not {failure.trajectory.id for failure in failures}.issuperset(draft.origin or [None]):
            return Why("structure", "the runs that it was written from are not known")
        trusted = _Trusted(failures, live)
        tools = any(holds_tool_results(one.trajectory) for one in failures)
        # What a person said, word by word, is theirs whatever the tools said.
        if tools and not trusted.holds(draft.skill.body):
            return Why("structure", "derived from tool results")
        repeated = _repeats(draft.skill, failures, trusted)
        return repeated or self._resembles(draft.skill, failures, trusted)

    def _resembles(
        self, skill: Skill, failures: Sequence[Failure], trusted: _Trusted
    ) -> Why | None:
        """By meaning: words in common first, since that costs nothing."""
        drafted = [one for one in _sentences(skill.body) if not trusted.holds(one.text)]
        sources = [s for text in _untrusted_texts(failures) for s in _sentences(text)]
        sources = [one for one in dict.fromkeys(sources) if one.content]
        for one in drafted:
            most = max((one.within(source) for source in sources), default=0.0)
            if most >= _CONTAINED and most > trusted.share(one):
                return Why("meaning", f"close to what a run was told: {_shown(one.text)}")
        return self._embedded(drafted, sources, trusted) if self._embedder else None

    def _embedded(
        self, drafted: Sequence[_Sentence], sources: Sequence[_Sentence], trusted: _Trusted
    ) -> Why | None:
        embedder = self._embedder
        drafted = [one for one in drafted if len(one.content) >= 2][:_MOST_DRAFTED]
        if embedder is None or not drafted or not sources:
            return None
        vectors = embedder.embed_documents([one.text for one in drafted])
        theirs = embedder.embed_documents(_nearest(sources, drafted, _MOST_SENTENCES))
        ours = _nearest(trusted.sentences, drafted, _MOST_TRUSTED)
        scores = (vectors @ theirs.T).max(axis=1)
        held = (vectors @ embedder.embed_documents(ours).T).max(axis=1) if ours else 0 * scores
        for one, score, known in zip(drafted, scores, held, strict=True):
            if score >= _COSINE and score > known:
                return Why("meaning", f"means what a run was told: {_shown(one.text)}")
        return None


class _Sentence:
    """A sentence and its words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.content = frozenset(_content(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sentence) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def within(self, other: _Sentence) -> float:
        """The share of its content that the other one has too; of next to nothing, all or none."""
        if len(self.content) < _FEWEST:
            return float(self.content == other.content)
        return len(self.content & other.content) / len(self.content)


class _Trusted:
    """What people and verifiers said of these runs, and the live skills."""

    def __init__(self, failures: Sequence[Failure], live: Sequence[Skill]) -> None:
        reasons = [one.verdict.reason for one in failures if is_trusted(one.verdict)]
        self.texts = [*reasons, *(f"{one.description}\n{one.body}" for one in live)]

    @cached_property
    def runs(self) -> list[str]:
        return [f" {' '.join(_words(text))} " for text in self.texts]

    @cached_property
    def sentences(self) -> list[_Sentence]:
        return [one for text in self.texts for one in _sentences(text)]

    def says(self, words: Sequence[str]) -> bool:
        """Whether these words stand in a row in one of the texts."""
        run = f" {' '.join(words)} "
        return any(run in text for text in self.runs)

    def holds(self, text: str) -> bool:
        """Whether every sentence of the text stands there word by word."""
        sentences = [words for one in _sentences(text) if (words := _words(one.text))]
        return bool(sentences) and all(self.says(words) for words in sentences)

    def share(self, sentence: _Sentence) -> float:
        return max((sentence.within(one) for one in self.sentences), default=0.0)


def is_trusted(verdict: Verdict) -> bool:
    """Whether its reason is the word of somebody who may teach the agent.

    A user's next message is not, though it is a person's: it is as untrusted as all the others.
    """
    read_from_chat = NEXT_TURN in (verdict.author, verdict.origin)
    return verdict.source in ("human", "verifier") and not read_from_chat


def holds_tool_results(run: Trajectory) -> bool:
    """Whether a run took in what its tools returned."""
    return bool(run.tools) or any(one.get("type") in ("tool", "function") for one in run.messages)


def _repeats(skill: Skill, failures: Sequence[Failure], trusted: _Trusted) -> Why | None:
    """Word by word: any field of the draft against all that was said in the runs."""
    known: set[tuple[str, ...]] = set()
    for text in _untrusted_texts(failures):
        known.update(_shingles(_words(text)))
    for text in _fields(skill):
        for run in _common_runs(_words(text), known):
            if not trusted.says(run):
                return Why("words", f"repeats what a run was told: {_shown(' '.join(run))}")
    return None


def _common_runs(words: list[str], known: set[tuple[str, ...]]) -> Iterator[list[str]]:
    """The pieces of a text that are known, as long as they go, if they are long enough."""
    start = None
    for place in range(len(words) + 1):
        if tuple(words[place : place + _RUN]) in known and place + _RUN <= len(words):
            start = place if start is None else start
        elif start is not None:
            run = words[start : place + _RUN - 1]
            if sum(0.5 if _WIDE.match(word) else 1.0 for word in run) >= _RUN:
                yield run
            start = None


def _shingles(words: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[place : place + _RUN]) for place in range(len(words) - _RUN + 1))


def _fields(skill: Skill) -> list[str]:
    return [skill.body, skill.description, skill.name, *_strings(dict(skill.metadata))]


def _untrusted_texts(failures: Iterable[Failure]) -> Iterator[str]:
    """All that was said in the runs by anybody, and the reasons of those who are not trusted."""
    for failure in failures:
        run = failure.trajectory
        yield from (text for message in run.messages for text in _message_texts(message))
        yield from (text for tool in run.tools for text in _strings([tool.output, tool.error]))
        yield from _strings([run.task, run.input, run.output, run.error])
        if not is_trusted(failure.verdict):
            yield failure.verdict.reason


def _message_texts(message: Mapping[str, Json]) -> Iterator[str]:
    data = message.get("data")
    yield from _strings(data.get("content") if isinstance(data, Mapping) else None)


def _strings(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _nearest(some: Sequence[_Sentence], drafted: Sequence[_Sentence], most: int) -> list[str]:
    if len(some) > most:
        words = frozenset[str]().union(*(one.content for one in drafted))
        some = sorted(some, key=lambda one: -len(one.content & words))[:most]
    return [one.text for one in some]


# Scripts that are written without blanks: each sign counts as half a word.
_SIGN = "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_WIDE = re.compile(_SIGN)
_WORD = re.compile(rf"{_SIGN}|(?:(?!{_SIGN})[^\W_])+")
_END = re.compile(r"(?<=[.!?;])\s+|[\n\u3002\uff01\uff1f\uff1b]+")
_BULLET = re.compile(r"\s*(?:[-*+•>#]+|\d{1,3}[.)])\s+")
_STOP_WORDS = """\
    a about after all also an and any are as at be because been before but by can did do does for
    from get give had has have he her his how i if in into is it its may me more must my no not of
    on one or other our out please she should since so some such than that the their them then
    there these they this those to too up use used us was we were what when where which who will
    with would you your answer answers ask asks say says tell user users question questions always
    never only each every first"""
_STOP = frozenset(_STOP_WORDS.split())


def _words(text: str) -> list[str]:
    return _WORD.findall(plain_text(text))


def _content(text: str) -> Iterator[str]:
    """The words that carry meaning, without their endings; signs in pairs."""
    words = _words(text)
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if _WIDE.match(word):
            yield word + (following if _WIDE.match(following) else "")
        elif word not in _STOP:
            yield _stem(word)


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _sentences(text: str) -> list[_Sentence]:
    pieces = (_BULLET.sub("", piece, count=1).strip() for piece in _END.split(text))
    return [_Sentence(piece) for piece in pieces if piece]


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:79] + "…")
