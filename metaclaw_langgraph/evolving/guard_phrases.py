"""The notation of the guard's rules: phrases of words with gaps between them.

    ignore|forget ~2 previous|earlier ~1 rules?

is one of the first words, at most two others, one of the next, at most one other, and `rule` or
`rules`, all in one sentence. `_` is a blank inside an alternative, `<name>` a list of words with
that name. Alternatives are small regular expressions. All repetition is bounded, so that no text
can make a pattern slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Rule", "Severity", "rule"]

Severity: TypeAlias = Literal["refuse", "review"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for, in text that went through `plain_text`."""

    kind: str
    severity: Severity
    detail: str
    pattern: re.Pattern[str]
    disguised: bool = False
    """Also look at the text read in other ways: as leetspeak, as rot13, backwards."""


def rule(
    kind: str,
    severity: Severity,
    detail: str,
    phrases: str,
    patterns: Sequence[str] = (),
    *,
    lists: Mapping[str, str],
    disguised: bool = False,
) -> Rule:
    """A rule that looks for any of the phrases, one on each line, or of the patterns."""
    lines = (line.strip() for line in phrases.splitlines())
    found = [_phrase(line, lists) for line in lines if line]
    joined = "|".join(f"(?:{pattern})" for pattern in (*found, *patterns))
    return Rule(kind, severity, detail, re.compile(joined, re.MULTILINE), disguised)


def _phrase(line: str, lists: Mapping[str, str]) -> str:
    parts: list[str] = []
    gap = 0
    for token in line.split():
        if token.startswith("~"):
            gap = int(token[1:])
            continue
        if parts:
            parts.append(_between(gap))
        parts.append(_alternatives(token, lists))
        gap = 0
    return rf"\b{''.join(parts)}(?!\w)"


def _between(most: int) -> str:
    """What stands between two words: at most `most` others, in the same sentence."""
    return rf"(?:[^\w.!?]{{1,4}}\w{{1,24}}){{0,{most}}}[^\w.!?]{{1,4}}"


def _alternatives(token: str, lists: Mapping[str, str]) -> str:
    named = re.sub(r"<(\w+)>", lambda match: "|".join(lists[match[1]].split()), token)
    return f"(?:{named.replace('_', _BLANK)})"


_BLANK = r"\s{1,4}"
