"""Keep secrets out of what is stored.

Three sources say what a secret is: the token formats that `detect-secrets` knows, with a few newer
ones and fixes of ours; the values of environment variables that are named like secrets; the user's
own patterns. Guessing by entropy is left out on purpose: it takes hashes, ids and pictures for
secrets, and a trajectory that is mangled cannot be learned from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from metaclaw_langgraph.redaction_rules import Rule, RuleSet, rules
from metaclaw_langgraph.types import Json

__all__ = ["RedactSettings", "Redactor"]


class RedactSettings(Protocol):
    """The part of the configuration that redaction reads (`RedactConfig` is one)."""

    @property
    def env(self) -> bool: ...

    @property
    def patterns(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class _Defaults:
    env: bool = True
    patterns: tuple[str, ...] = ()


# A whole word of the name (API_KEY_BASE, GITHUB_PAT), or its end (APIKEY). PWD alone is a folder.
_SECRET_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIALS)\Z"
    r"|(?:\A|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?|PAT)(?:_|\Z)|_PWD\Z",
    re.IGNORECASE,
)
_SHORTEST_VALUE = 8


class Redactor:
    """Replaces secrets by `[redacted:<kind>]`. Thread-safe; text without secrets is untouched."""

    def __init__(self, settings: RedactSettings | None = None) -> None:
        chosen = settings or _Defaults()
        self._env = chosen.env
        self._patterns = tuple(chosen.patterns)

    def text(self, text: str) -> str:
        """The text with every secret replaced."""
        return self._rules().redact(text)

    def json(self, value: Json) -> Json:
        """The value with every secret in its strings replaced; the shape stays.

        A string under a key such as `password` or `api_key` is a secret by its place. What JSON
        cannot hold becomes text, so that nothing slips through unread.
        """
        return _Walk(self._rules()).value(value)

    def find(self, text: str) -> list[tuple[int, str]]:
        """Where secrets are: (line from 1, kind), in order."""
        found = self._rules().spans(text)
        return [(text.count("\n", 0, start) + 1, kind) for start, _, kind in found]

    def _rules(self) -> RuleSet:
        # The environment is read each time: programs often load their keys late.
        return _rule_set(_secret_values() if self._env else (), self._patterns)


class _Walk:
    """One pass over a JSON value. The same text often comes again: as input, message, output."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._done: dict[str, str] = {}

    def value(self, value: object) -> Json:
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(item) for item in value]
        return self._text(str(value))

    def _text(self, text: str) -> str:
        if text not in self._done:
            self._done[text] = self._rules.redact(text)
        return self._done[text]

    def _mapping(self, value: Mapping[object, object]) -> Json:
        done: dict[str, Json] = {}
        for key, item in value.items():
            name, is_secret = self._rules.key(str(key))
            while name in done:
                name += "'"
            if is_secret is not None and isinstance(item, str) and is_secret(item):
                done[name] = "[redacted:keyword]"
            else:
                done[name] = self.value(item)
        return done


def _secret_values() -> tuple[str, ...]:
    names = [name for name in os.environ if _SECRET_NAME.search(name)]
    values = {value for name in names if len(value := os.environ.get(name, "")) >= _SHORTEST_VALUE}
    # A value inside a JSON text is written with its escapes.
    return tuple(sorted(values | {json.dumps(value)[1:-1] for value in values}))


@lru_cache(maxsize=16)
def _rule_set(values: tuple[str, ...], patterns: tuple[str, ...]) -> RuleSet:
    known = (Rule("environment", re.compile(re.escape(one)), (one.lower(),)) for one in values)
    own = (Rule("pattern", re.compile(one)) for one in patterns)
    return RuleSet((*known, *own, *rules()))
