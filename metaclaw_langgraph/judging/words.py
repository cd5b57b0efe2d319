"""What one value says as a score: numbers and the words that people and models use for them."""

from __future__ import annotations

import re

from metaclaw_langgraph.types import Json

__all__ = ["BAD", "GOOD", "NEITHER", "score_of", "score_of_word"]

GOOD = (
    "good",
    "great",
    "correct",
    "right",
    "pass",
    "passed",
    "passes",
    "success",
    "successful",
    "succeeded",
    "positive",
    "yes",
    "true",
    "thumbs up",
    "👍",
)
BAD = (
    "bad",
    "poor",
    "incorrect",
    "wrong",
    "fail",
    "failed",
    "fails",
    "failure",
    "unsuccessful",
    "negative",
    "no",
    "false",
    "thumbs down",
    "👎",
)
NEITHER = ("neutral", "unclear", "mixed", "neither", "undecided")

_SCORES = {**dict.fromkeys(GOOD, 1), **dict.fromkeys(BAD, -1), **dict.fromkeys(NEITHER, 0)}
_NUMBER = re.compile(r"[+-]?1(?:\.0*)?|[+-]?0(?:\.0*)?", re.ASCII)
_MINUS = str.maketrans("\u2212\u2013\uff0d\u2010\u2011", "-----")


def score_of(value: Json) -> int | None:
    """-1, 0 or 1, or None for a value that says neither."""
    if isinstance(value, bool):
        return 1 if value else -1
    if isinstance(value, int | float):
        return int(value) if value in (-1, 0, 1) else None
    return score_of_word(value) if isinstance(value, str) else None


def score_of_word(text: str) -> int | None:
    """The same for a text that is one number or one word, with or without a full stop."""
    bare = " ".join(re.sub(r"[\s_]+|(?<=thumbs)-", " ", text.translate(_MINUS).lower()).split())
    bare = bare.strip(" .!*`\"'()[]")
    if _NUMBER.fullmatch(bare):
        return int(float(bare))
    if bare.startswith("not "):
        # "not correct" is clear, "not bad" is not.
        return -1 if _SCORES.get(bare.removeprefix("not ")) == 1 else None
    return _SCORES.get(bare)
