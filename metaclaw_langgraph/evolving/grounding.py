"""Whether a draft may say what untrusted text told it to.

An evolver reads what users and tools wrote, and can be talked into passing it on. Trusted is what
people and verifiers said about a run, and what live skills say. Untrusted is all the rest of a run:
tool results, users' messages, the assistant's own (they echo), a judge's reasons (it read them),
and what a verifier quotes of them.

Three looks, from the surest to the weakest: the run holds tool results; the draft repeats words of
an untrusted text; a sentence of it means the same as an untrusted one. The last one is a guess: a
text in entirely other words passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from metaclaw_langgraph._messages import message_text
from metaclaw_langgraph.evolving.base import Draft
from metaclaw_langgraph.evolving.grounding_text import (
    Sentence,
    Text,
    common_runs,
    runs_of,
    sentences,
    shown,
    strings,
    words,
)
from metaclaw_langgraph.evolving.grounding_topic import (
    claims,
    is_made_of,
    is_offline_description,
    is_offline_name,
    topics,
)
from metaclaw_langgraph.evolving.grounding_trust import (
    Trusted,
    is_trusted,
    turned,
    untrusted_texts,
)
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.skills.embedding import Embedder
from metaclaw_langgraph.types import Skill, Trajectory

__all__ = ["Grounding", "Why", "holds_tool_results", "is_trusted"]

# Chosen on tests/evolving/data: lower values stop more, and stop honest drafts as well.
_CONTAINED = 0.5
_COSINE = 0.6
# An embedding takes about 5 ms. Of more sentences, those with the most words of the draft are read.
_MOST_SENTENCES = 300
_MOST_TRUSTED = 60
_MOST_DRAFTED = 40


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
        shown_to_it = _Origin(failures, live)
        tools = any(holds_tool_results(one.trajectory) for one in failures)
        if tools and not shown_to_it.accounts_for(draft.skill):
            return Why("structure", "derived from tool results")
        return shown_to_it.repeated(draft.skill) or self._resembles(draft.skill, shown_to_it)

    def _resembles(self, skill: Skill, origin: _Origin) -> Why | None:
        """By meaning: words in common first, since that costs nothing."""
        trusted, sources = origin.trusted, origin.told
        for one in origin.topics(skill):
            most = max((one.within(source.content) for source in sources), default=0.0)
            if most >= _CONTAINED and most > one.within(origin.known & one.content):
                return Why("meaning", f"close to what a run was told: {shown(one.text)}")
        drafted = origin.claims(skill)
        for one in drafted:
            most = max((one.within(source.content) for source in sources), default=0.0)
            if most >= _CONTAINED and most > trusted.share(one):
                return Why("meaning", f"close to what a run was told: {shown(one.text)}")
        return self._embedded(drafted, sources, trusted) if self._embedder else None

    def _embedded(
        self, drafted: Sequence[Sentence], sources: Sequence[Sentence], trusted: Trusted
    ) -> Why | None:
        embedder = self._embedder
        drafted = [one for one in drafted if len(one.content) >= 2][:_MOST_DRAFTED]
        if embedder is None or not drafted or not sources:
            return None
        vectors = embedder.embed_documents([one.text for one in drafted])
        near = _nearest(sources, drafted, _MOST_SENTENCES)
        scores = (vectors @ embedder.embed_documents([one.text for one in near]).T).max(axis=1)
        ours = _nearest(trusted.sentences, drafted, _MOST_TRUSTED)
        held = 0 * scores
        if ours:
            alike = vectors @ embedder.embed_documents([one.text for one in ours]).T
            for row, one in enumerate(drafted):
                alike[row, [turned(one, other) for other in ours]] = 0
            held = alike.max(axis=1)
        for one, score, known in zip(drafted, scores, held, strict=True):
            if score >= _COSINE and score > known:
                return Why("meaning", f"means what a run was told: {shown(one.text)}")
        return None


class _Origin:
    """The runs that an evolver was shown, and what is trusted beside them."""

    def __init__(self, failures: Sequence[Failure], live: Sequence[Skill]) -> None:
        self._failures = failures
        self.trusted = Trusted(failures, live)

    @cached_property
    def told(self) -> list[Sentence]:
        found = [one for text in untrusted_texts(self._failures) for one in sentences(text)]
        return [one for one in dict.fromkeys(found) if one.content]

    @cached_property
    def _tasks(self) -> str:
        return "\n".join(_task(one.trajectory) for one in self._failures)

    @cached_property
    def known(self) -> frozenset[str]:
        """What the tasks are about, and what was said of the runs by those who are trusted."""
        texts = [self._tasks, *(one.text for one in self.trusted.sentences)]
        return Sentence("\n".join(texts)).content

    def accounts_for(self, skill: Skill) -> bool:
        """Whether people said all of it, word by word, whatever the tools said; the name and the
        description may also say what the task is about."""
        texts = [self._tasks, *(one.text for one in self.trusted.reasons)]
        known = {word for text in texts for word in words(text)}
        holds, runs = self.trusted.holds, self._failures
        described, name = skill.description, skill.name.replace("-", " ")
        return (
            holds(skill.body)
            and (
                holds(described)
                or is_offline_description(described, runs)
                or is_made_of(described, known)
            )
            and (holds(name) or is_offline_name(skill.name, runs) or is_made_of(name, known))
            and all(holds(text) for text in _metadata(skill))
        )

    def repeated(self, skill: Skill) -> Why | None:
        """Word by word: any field of the draft against all that was said in the runs."""
        known: set[tuple[str, ...]] = set()
        for text in untrusted_texts(self._failures):
            known.update(runs_of(words(text)))
        for field in map(Text, (skill.body, skill.description, skill.name, *_metadata(skill))):
            for start, end in common_runs(field.words, known):
                run = field.words[start:end]
                if not self.trusted.says(run, field.negations(start, end - start)):
                    return Why("words", f"repeats what a run was told: {shown(' '.join(run))}")
            for quoted in self.trusted.quoted:
                places = field.places(quoted)
                unsaid = (
                    not self.trusted.says(quoted, field.negations(place, len(quoted)))
                    for place in places
                )
                if any(unsaid):
                    what = shown(" ".join(quoted))
                    return Why("words", f"repeats what a verifier quotes of a run: {what}")
        return None

    def claims(self, skill: Skill) -> list[Sentence]:
        """What the draft tells the agent and nobody trusted has said, wherever it stands."""
        texts = [skill.body, *_metadata(skill)]
        if not is_offline_description(skill.description, self._failures):
            texts += claims(skill.description)
        if not is_offline_name(skill.name, self._failures):
            texts += claims(skill.name.replace("-", " "))
        found = [one for text in texts for one in sentences(text)]
        return [one for one in found if not self.trusted.holds(one.text)]

    def topics(self, skill: Skill) -> Iterator[Sentence]:
        for text in (skill.description, skill.name.replace("-", " ")):
            yield from map(Sentence, topics(text))


def _task(run: Trajectory) -> str:
    """What it was about; without a task, what the user said first."""
    said = (one for one in run.messages if one.get("type") == "human")
    return run.task or next((message_text(one) for one in said), "")


def holds_tool_results(run: Trajectory) -> bool:
    """Whether a run took in what its tools returned."""
    return bool(run.tools) or any(one.get("type") in ("tool", "function") for one in run.messages)


def _metadata(skill: Skill) -> list[str]:
    """The texts of the other fields; the keys of the inner ones are texts as well."""
    return [text for value in skill.metadata.values() for text in strings(value, keys=True)]


def _nearest(some: Sequence[Sentence], drafted: Sequence[Sentence], most: int) -> list[Sentence]:
    if len(some) > most:
        content = frozenset[str]().union(*(one.content for one in drafted))
        return sorted(some, key=lambda one: -len(one.content & content))[:most]
    return list(some)
