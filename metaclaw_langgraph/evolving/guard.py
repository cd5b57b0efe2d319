"""The guard: looks at every draft before anything is stored.

A finding is `refuse` (no honest skill says this, nobody is asked) or `review` (honest skills say it
too, a person decides). No finding does not mean that a text is harmless: whoever words an order as
plain advice passes. That is what `grounding.py`, the gate and the review are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metaclaw_langgraph.errors import SkillFormatError
from metaclaw_langgraph.evolving.guard_phrases import Rule, Severity
from metaclaw_langgraph.evolving.guard_rules import NEGATION, RULES
from metaclaw_langgraph.evolving.guard_text import disguises, hidden, plain_text
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.block import too_big
from metaclaw_langgraph.skills.format import SKILL_FILE, parse_skill, render_skill
from metaclaw_langgraph.types import Json, Skill

__all__ = ["MAX_BODY", "Finding", "Guard"]

MAX_BODY = 4000
"""Characters of a body. Advice is short; a long text hides things in its middle."""
_GENERATION = 999_999
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the guard does not like about a draft."""

    kind: str
    severity: Severity
    detail: str
    line: int = 0
    """The line of the body, from 1; 0 when it is elsewhere."""

    def __str__(self) -> str:
        place = f" (line {self.line})" if self.line else ""
        return f"{self.kind}: {self.detail}{place}"


class Guard:
    """Checks skills. Thread-safe."""

    def __init__(self, redactor: Redactor, token_budget: int) -> None:
        self._redactor = redactor
        self._budget = token_budget

    def check(self, skill: Skill) -> tuple[Finding, ...]:
        """What is wrong with it, in no more than one finding of a kind for each part of it."""
        wrong = _form(skill, self._budget)
        if wrong:
            return tuple(wrong)
        found: dict[tuple[str, Severity, str], Finding] = {}
        for field, text in _parts(skill):
            for one in self._findings(field, text):
                found.setdefault((one.kind, one.severity, field), one)
        return tuple(found.values())

    def _findings(self, field: str, text: str) -> Iterator[Finding]:
        for line, kind in self._redactor.find(text):
            yield _finding(field, "secret", "refuse", f"holds a secret ({kind})", line)
        for line, what in hidden(text):
            yield _finding(field, "hidden text", "refuse", f"holds {what}", line)
        plain = plain_text(text)
        readings = [*disguises(plain)]
        for rule in RULES:
            found = _match(rule, plain)
            if found is None and rule.disguised:
                found = _disguised(rule, plain, readings)
            if found is not None:
                severity, detail, line = found
                yield _finding(field, rule.kind, severity, detail, line)
        if field == "allowed-tools":
            yield _finding(field, "permission", "review", "asks for tools", 0)


def _form(skill: Skill, budget: int) -> list[Finding]:
    """What makes it unfit to be a skill at all."""
    if len(skill.body) > MAX_BODY:
        detail = f"the body has {len(skill.body)} characters; at most {MAX_BODY} are allowed"
        return [Finding("size", "refuse", detail)]
    try:
        text = render_skill(skill)
        read = parse_skill(text, Path(skill.name) / SKILL_FILE)
    except SkillFormatError as error:
        return [Finding("format", "refuse", error.problem)]
    except Exception as error:  # YAML cannot write every value
        return [Finding("format", "refuse", f"cannot be written: {type(error).__name__}")]
    if (read.name, read.description, read.body) != (skill.name, skill.description, skill.body):
        return [Finding("format", "refuse", "does not read back as it was written")]
    return [Finding("size", "refuse", str(one)) for one in too_big([skill], _GENERATION, budget)]


def _parts(skill: Skill) -> Iterator[tuple[str, str]]:
    """Every text of a skill that a model may come to see, with the name of its field."""
    yield "body", skill.body
    yield "description", skill.description
    yield "name", skill.name.replace("-", " ")
    for key, value in skill.metadata.items():
        yield key, "\n".join(_texts(value))


def _texts(value: Json) -> Iterable[str]:
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for text in (key, *_texts(item))]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item)]
    return [str(value)]


def _match(rule: Rule, plain: str) -> tuple[Severity, str, int] | None:
    """The worst that a rule finds. Advice against something is for a person to read."""
    milder: tuple[Severity, str, int] | None = None
    for match in rule.pattern.finditer(plain):
        line = plain.count("\n", 0, match.start()) + 1
        detail = f"{rule.detail}: {_shown(match[0])}"
        if rule.severity == "review" or not _negated(plain, match.start()):
            return rule.severity, detail, line
        milder = milder or ("review", detail, line)
    return milder


def _negated(plain: str, start: int) -> bool:
    before = plain[max(0, start - 60) : start]
    return NEGATION.search(before) is not None


def _disguised(
    rule: Rule, plain: str, readings: list[tuple[str, str]]
) -> tuple[Severity, str, int] | None:
    for name, reading in readings:
        match = None if reading == plain else rule.pattern.search(reading)
        if match is not None:
            line = reading.count("\n", 0, match.start()) + 1
            return "refuse", f"{rule.detail} ({name}): {_shown(match[0])}", line
    return None


def _finding(field: str, kind: str, severity: Severity, detail: str, line: int) -> Finding:
    if field == "body":
        return Finding(kind, severity, detail, line)
    return Finding(kind, severity, f"the {field} {detail}")


def _shown(text: str) -> str:
    """A piece of a text that was not trusted, short and on one line."""
    line = " ".join(text.split())
    return ascii(line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…")
