"""Reads what a model answered when it was asked for scores: JSON if it can, prose if it must.

Nothing is guessed: an answer that says nothing clear, or says two things, is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from metaclaw_langgraph.judging import prose
from metaclaw_langgraph.judging.found_json import find_json, json_values
from metaclaw_langgraph.judging.words import score_of
from metaclaw_langgraph.types import Json

__all__ = ["Answer", "answer_of", "find_json", "read_answer"]

_OUTCOME = (
    "outcome",
    "verdict",
    "judgement",
    "judgment",
    "overall",
    "final",
    "result",
    "reward",
    "rating",
    "score",
)
_STEPS = ("steps", "stepscores", "scores", "stepscore")
_REASON = ("reason", "rationale", "explanation", "justification", "reasoning", "why")
_NUMBER = ("step", "number", "index", "n", "id", "stepnumber")
_STEP_KEY = re.compile(r"(?:step)?(\d{1,6})")
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The scores of one vote, each -1, 0 or 1."""

    outcome: int
    steps: Mapping[int, int] = field(default_factory=dict)
    """By the number of the step, from 1."""
    reason: str = ""


def read_answer(text: str) -> Answer | None:
    """The scores in a model's answer, or None when there are none that are clear."""
    text = _THOUGHT.sub(" ", text)
    spoken, answers = text, []
    for found in json_values(text):
        spoken = spoken[: found.start] + " " * (found.end - found.start) + spoken[found.end :]
        if (answer := answer_of(found.value)) is not None:
            answers.append(answer)
        elif _contradicts(found.value):
            return None
    if not answers:
        outcome = prose.outcome(text)
        return None if outcome is None else Answer(outcome, prose.steps(text), text.strip())
    outcomes = {answer.outcome for answer in answers} | prose.labelled(spoken)
    return answers[-1] if len(outcomes) == 1 else None


def answer_of(value: Json) -> Answer | None:
    """The scores in a JSON value."""
    match value:
        case [Mapping() as only]:
            return answer_of(only)
        case Mapping():
            entries = _entries(value)
            inner = next(iter(value.values())) if len(value) == 1 else None
            if isinstance(inner, Mapping) and (found := answer_of(inner)):
                return found
            outcomes = _outcomes(entries)
            clear = len(outcomes) == 1
            return Answer(outcomes.pop(), _steps(entries), _reason(entries)) if clear else None
        case _:
            return None


def _contradicts(value: Json) -> bool:
    return isinstance(value, Mapping) and len(_outcomes(_entries(value))) > 1


def _entries(value: Mapping[str, Json]) -> dict[str, Json]:
    """The same with keys in one form: "Final score" and "final_score" become finalscore."""
    return {re.sub(r"[\W_]", "", str(key)).lower(): item for key, item in value.items()}


def _outcomes(entries: Mapping[str, Json]) -> set[int]:
    """Every outcome that is named; a table that is about one step has none."""
    if any(key in entries for key in ("step", "stepnumber")):
        return set()
    numbered = any(key in entries for key in _NUMBER)
    named = [item for key, item in entries.items() if _is_outcome(key, strictly=numbered)]
    return {score for item in named if (score := _score(item)) is not None}


def _is_outcome(key: str, strictly: bool = False) -> bool:
    bare = key.removesuffix("score") or key
    for prefix in ("final", "overall"):
        bare = bare.removeprefix(prefix) or bare
    return bare in (_OUTCOME[:4] if strictly else _OUTCOME)


def _reason(entries: Mapping[str, Json]) -> str:
    found = (entries.get(key) for key in _REASON)
    return next((text.strip() for text in found if isinstance(text, str)), "")


def _steps(entries: Mapping[str, Json]) -> dict[int, int]:
    listed = next((entries[key] for key in _STEPS if key in entries), None)
    pairs = [*_listed(listed), *_named(entries, required="step")]
    return dict(_agreeing(pairs))


def _listed(listed: Json) -> Iterator[tuple[int, int | None]]:
    if isinstance(listed, Mapping):
        yield from _named(_entries(listed))
    elif isinstance(listed, Sequence) and not isinstance(listed, str):
        for position, item in enumerate(listed, 1):
            entries = _entries(item) if isinstance(item, Mapping) else {}
            number = _step_number(entries)
            yield position if number is None else number, _score(item)


def _named(entries: Mapping[str, Json], required: str = "") -> Iterator[tuple[int, int | None]]:
    for key, item in entries.items():
        if key.startswith(required) and (match := _STEP_KEY.fullmatch(key)):
            yield int(match[1]), _score(item)


def _step_number(entries: Mapping[str, Json]) -> int | None:
    for key in _NUMBER:
        item = entries.get(key)
        if isinstance(item, int) and not isinstance(item, bool):
            return item
        if isinstance(item, str) and (match := _STEP_KEY.search(item)):
            return int(match[1])
    return None


def _score(item: Json) -> int | None:
    """The score that a value is, or that a table holds."""
    if not isinstance(item, Mapping):
        return score_of(item)
    scores = {
        score_of(one) for key, one in _entries(item).items() if _is_outcome(key) or key == "value"
    }
    scores.discard(None)
    return scores.pop() if len(scores) == 1 else None


def _agreeing(pairs: Sequence[tuple[int, int | None]]) -> Iterator[tuple[int, int]]:
    """Without steps that have two different scores; none at all when they were counted from 0."""
    found: dict[int, set[int]] = {}
    for number, score in pairs:
        if score is not None:
            found.setdefault(number, set()).add(score)
    if all(number > 0 for number, _ in pairs):
        yield from ((n, scores.pop()) for n, scores in found.items() if len(scores) == 1)
