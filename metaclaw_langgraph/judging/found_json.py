"""Finds JSON in a model's answer: in fences, inside prose, with the usual small faults.

Faults that are mended: trailing commas, single quotes, keys without quotes, True/False/None, +1,
line breaks inside strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from metaclaw_langgraph.types import Json

__all__ = ["Found", "find_json", "json_values"]

_LONGEST = 200_000
_EFFORT = 1_000_000
"""Characters to look at for openings that turn out to begin nothing."""
_OPENING = re.compile(r"[{\[]")
# A string that is never closed goes on to the end: looking again from each quote takes for ever.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)' + r"|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)"
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_FAULT = re.compile(
    rf"{_STRING}|,(?=\s*[}}\]])|\b(?:True|False|None)\b|(?<![\w.])\+(?=\d)|\b[A-Za-z_]\w*+(?=\s*:)",
    re.DOTALL,
)
_PYTHON = {"True": "true", "False": "false", "None": "null", ",": "", "+": ""}


class Found(NamedTuple):
    """A JSON object or array, and where it stands in the text."""

    value: Json
    start: int
    end: int


def find_json(text: str) -> Json:
    """The longest JSON object or array in the text, or None."""
    found = max(json_values(text), key=lambda one: one.end - one.start, default=None)
    return None if found is None else found.value


def json_values(text: str) -> Iterator[Found]:
    """All JSON objects and arrays in the text, in order, none inside another."""
    text, at, effort = text[:_LONGEST], 0, 0
    while effort < _EFFORT and (opening := _OPENING.search(text, at)):
        start = opening.start()
        found = _strict(text, start) or _mended(text, start)
        if found is None:
            at, effort = opening.end(), effort + len(text) - start
        else:
            at = found.end
            yield found


def _strict(text: str, start: int) -> Found | None:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return Found(value, start, end)


def _mended(text: str, start: int) -> Found | None:
    end = _closing(text, start)
    if end is None:
        return None
    try:
        value = _DECODER.decode(_FAULT.sub(_mend, text[start:end]))
    except (ValueError, RecursionError):
        return None
    return Found(value, start, end)


def _closing(text: str, start: int) -> int | None:
    """Where the bracket that opens at `start` is closed, brackets in strings not counted."""
    open_now: list[str] = []
    for match in _BRACKET.finditer(text, start):
        token = match[0]
        if token in "{[":
            open_now.append("}" if token == "{" else "]")
        elif token in "}]":
            if open_now.pop() != token:
                return None
            if not open_now:
                return match.end()
    return None


def _mend(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] == '"':
        return token
    if token[0] == "'":
        return json.dumps(token[1:-1].replace("\\'", "'"))
    return _PYTHON[token] if token in _PYTHON else json.dumps(token)


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant)
