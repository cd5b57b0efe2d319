"""Scores in free text: "Outcome: -1", "Final score: +1", "Step 2: 0 because …", "It is correct."

A number counts only behind a label, and only when nothing after it makes it part of something
else ("1 of 5", "1 or -1", "1 apple").
"""

from __future__ import annotations

import re

from metaclaw_langgraph.judging.words import BAD, GOOD, NEITHER, score_of_word

__all__ = ["labelled", "outcome", "steps"]

_LONGEST = 100_000
_SHORT = 240
_WORDS = "|".join(sorted((re.escape(word) for word in (*GOOD, *BAD, *NEITHER)), key=len)[::-1])
_VALUE = rf"(?:[+-]?[01](?:\.0)?|(?:not\s+)?(?:{_WORDS}))"
_AFTER = (
    r"(?!\.?\d|\s*(?:%|(?:/|\||,|\.\.+|…|-|or|to|and|out\s+of|of)\s*[+-]?\d|[,/]?\s*or\b))"
    r"(?=\s*(?:$|[.;:,!)\]}|\u2014\u2013(-]|(?:because|since|due)\b))"
)
_SIGN = r"(?:\s*(?::|=+>?|->|→|\bis\b|\bwas\b)\s*|\s+(?=[+-]?[01]))"
# "The result was 0" may be that of a tool: such words count at the start of a line only.
_LABEL = (
    r"(?:(?<![\w-])(?:(?:final|overall)\s+)?(?:outcome|verdict|judge?ment)"
    r"|(?<![\w-])(?:final|overall)\s+(?:score|result|rating|reward)"
    r"|^[ \t#>-]{0,9}(?:score|result|rating|reward|overall|final))(?:\s+score)?"
)
_OUTCOME = re.compile(rf"{_LABEL}{_SIGN}(?P<score>{_VALUE}){_AFTER}", re.I | re.M)
_STEP = re.compile(
    rf"(?<![\w-])step\s*\#?(?P<step>\d{{1,6}})(?:\s*\([^()\n]{{0,40}}\))?"
    rf"(?:\s+(?:score|result|outcome|rating|verdict))?"
    rf"(?:{_SIGN}|\s*[)-]\s+)(?:score{_SIGN})?(?P<score>{_VALUE}){_AFTER}",
    re.I | re.M,
)
_CLEAR = (
    r"(?:good|bad|correct|incorrect|wrong|pass(?:ed|es)?|fail(?:ed|s)?|succeeded|"
    r"successful|unsuccessful)"
)
_JUDGING = re.compile(
    rf"(?<![\w-])(?:is|was|are|were|has|have|it|this|that|run|assistant|answer)\s+"
    rf"(?:\w+ly\s+)?(?P<score>{_CLEAR})(?![\w-])",
    re.I,
)
_DOUBT = re.compile(
    r"n't\b|\b(?:not|no|never|hardly|barely|cannot|whether|if|unless|should|would|could|may|might|"
    r"maybe|perhaps|but|however|although|though|except|either|or|unsure|unclear)\b|\?",
    re.I,
)
_ANY_WORD = re.compile(rf"(?<![\w-])(?:{_WORDS})(?![\w-])", re.I)
_ALONE = re.compile(rf"[+-]?[01](?:\.0)?\W?|(?:{_CLEAR}|neutral|unclear)\W?", re.I)
_DECORATION = re.compile(r"[*`\"]+|(?<!\w)'|'(?!\w)")
_MINUS = re.compile(r"(?<![\w)])[\u2212\u2013\u2014\uff0d\u2010\u2011](?=[01])")


def outcome(text: str) -> int | None:
    """The one outcome that the text states, or None."""
    plain = _plain(text)
    found = labelled(plain)
    if not found:
        alone = _alone(plain)
        return _sentence(plain) if alone is None else alone
    return found.pop() if len(found) == 1 else None


def labelled(text: str) -> set[int]:
    """All outcomes that are stated behind a label."""
    outside = _STEP.sub(" ", _plain(text))
    return {score for match in _OUTCOME.finditer(outside) if (score := _score(match)) is not None}


def steps(text: str) -> dict[int, int]:
    """The scores of steps by number; a step with two different ones is left out."""
    found: dict[int, set[int | None]] = {}
    for match in _STEP.finditer(_plain(text)):
        found.setdefault(int(match["step"]), set()).add(_score(match))
    clear = {number: scores.pop() for number, scores in found.items() if len(scores) == 1}
    return {n: score for n, score in clear.items() if n > 0 and score is not None}


def _alone(text: str) -> int | None:
    """The score when the whole text, or the last line below others, is nothing but a score."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    if len(lines) > 1 and not lines[-1].startswith(("+", "-", "0")):
        return None
    return score_of_word(lines[-1]) if _ALONE.fullmatch(lines[-1]) else None


def _sentence(text: str) -> int | None:
    """The score when a short text calls the work good or bad, without doubt or second thoughts."""
    if len(text) > _SHORT or _DOUBT.search(text):
        return None
    said = {_score(match) for match in _JUDGING.finditer(text)}
    words = {score_of_word(word) for word in _ANY_WORD.findall(text)}
    return said.pop() if len(said) == 1 and said == words else None


def _score(match: re.Match[str]) -> int | None:
    return score_of_word(match["score"])


def _plain(text: str) -> str:
    """Without Markdown's emphasis and quotation marks, with one kind of minus."""
    kept = _DECORATION.sub("", text[-_LONGEST:].replace("\u2019", "'").replace("_", " "))
    return _MINUS.sub("-", kept)
