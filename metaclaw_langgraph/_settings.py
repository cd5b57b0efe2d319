"""Reading the sources of the configuration, and saying what is wrong with them.

pydantic-settings merges and validates; it does not notice unknown environment variables, and its
errors name neither the source nor the allowed form. This module adds that, one line per problem,
without printing secrets.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from metaclaw_langgraph.errors import ConfigError

__all__ = [
    "ENV_DELIMITER",
    "ENV_PREFIX",
    "allowed",
    "bad_values",
    "hide_secrets",
    "read_sources",
    "settings_file",
    "shown",
    "undecodable",
    "unknown_keys",
]

ENV_PREFIX = "METACLAW_"
ENV_DELIMITER = "__"

_Key = tuple[str, ...]
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://).*(?=@)", re.DOTALL)
_SECRET_QUERY = re.compile(r"([?&;][^=&]*(?:key|token|secret|passw)[^=&]*=)[^&]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One place that settings come from, flattened to keys."""

    place: str
    values: Mapping[_Key, object]

    def spell(self, key: _Key) -> str:
        """The key as a person writes it in this source."""
        if self.place == "the environment":
            return ENV_PREFIX + ENV_DELIMITER.join(key).upper()
        return ".".join(key)


def settings_file() -> tuple[Path, _Key] | None:
    """The settings file of the working directory, and the table inside it."""
    path = Path("metaclaw.toml")
    if path.is_file():
        return path, ()
    path = Path("pyproject.toml")
    if path.is_file() and "metaclaw" in _table(_read_toml(path), "tool", path):
        return path, ("tool", "metaclaw")
    return None


def read_sources(model: type[BaseModel], arguments: Mapping[str, object]) -> list[Source]:
    """All sources but the defaults, the strongest first."""
    sections = set(_known(model)) - set(_leaves(model))
    sources = [
        Source("the arguments", dict(_flatten(_keyed(arguments), sections))),
        Source("the environment", dict(_flatten(_environment(), sections))),
    ]
    found = settings_file()
    if found is not None:
        path, header = found
        table = _read_toml(path)
        for name in header:
            table = _table(table, name, path)
        sources.append(Source(path.name, dict(_flatten(_keyed(table), sections))))
    return sources


def unknown_keys(model: type[BaseModel], sources: list[Source]) -> list[str]:
    """A line for each key that is no setting."""
    known = _known(model)
    return [
        _unknown(model, source, key, value)
        for source in sources
        for key, value in source.values.items()
        if key not in known
    ]


def undecodable(model: type[BaseModel], sources: list[Source]) -> list[str]:
    """A line for each environment variable that must hold JSON and does not."""
    return [
        f"bad setting {source.spell(key)} = {_show(key, value)} in {source.place}: "
        f"give {allowed(model, key)}, as JSON"
        for source in sources
        if source.place == "the environment"
        for key, value in source.values.items()
        if _needs_json(_known(model).get(key)) and not _is_json(str(value))
    ]


def bad_values(model: type[BaseModel], error: ValidationError, sources: list[Source]) -> list[str]:
    """A line for each value that its field refused; `unknown_keys` has told the extra ones."""
    return [
        _bad(model, dict(problem), sources)
        for problem in error.errors()
        if problem["type"] != "extra_forbidden"
    ]


def hide_secrets(text: str) -> str:
    """The text without the user and password of a URL, or secrets in its query."""
    return _SECRET_QUERY.sub(r"\1***", _USER_INFO.sub("***", text))


def allowed(model: type[BaseModel], key: _Key) -> str:
    """The allowed form of a setting, for errors."""
    field = _known(model).get(key)
    if field is None:
        return "a known setting"
    section = _section(field)
    if section is not None:
        return f"a table with any of {', '.join(section.model_fields)}"
    extra = field.json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else str(field.annotation)


def shown(value: object) -> str:
    """A value as errors show it: short, without passwords."""
    text = hide_secrets(repr(value))
    return text if len(text) <= 80 else f"{text[:79]}…"


def _unknown(model: type[BaseModel], source: Source, key: _Key, value: object) -> str:
    line = f"unknown setting {source.spell(key)} = {_show(key, value)} in {source.place}"
    nearest = _nearest(model, key)
    if nearest is None:
        names = ", ".join(source.spell(leaf) for leaf in _leaves(model))
        return f"{line}; the settings are {names}"
    return f"{line}; did you mean {source.spell(nearest)} ({allowed(model, nearest)})?"


def _bad(model: type[BaseModel], problem: dict[str, Any], sources: list[Source]) -> str:
    location = problem["loc"]
    key = tuple(part for part in location if isinstance(part, str))
    index = "".join(f"[{part}]" for part in location if isinstance(part, int))
    source = next((one for one in sources if _holds(one, key)), Source("the defaults", {}))
    detail = f" ({problem['ctx']['error']})" if problem["type"] == "value_error" else ""
    return (
        f"bad setting {source.spell(key)}{index} = {_show(key, problem['input'])} "
        f"in {source.place}: give {allowed(model, key)}{detail}"
    )


def _holds(source: Source, key: _Key) -> bool:
    """Whether the source gives the key, or the section that it is in."""
    return any(given[: len(key)] == key or key[: len(given)] == given for given in source.values)


def _nearest(model: type[BaseModel], key: _Key) -> _Key | None:
    """The known key most like this one, by its full name or by its last part."""
    spelled = "_".join(key).lower().replace("-", "_").replace(".", "_")
    names = {"_".join(leaf): leaf for leaf in _leaves(model)}
    names = {leaf[-1]: leaf for leaf in _leaves(model)} | names
    close = difflib.get_close_matches(spelled, names, n=1, cutoff=0.6)
    close = close or difflib.get_close_matches(key[-1].lower(), names, n=1, cutoff=0.6)
    return names[close[0]] if close else None


def _show(key: _Key, value: object) -> str:
    if key and _SECRET_NAME.search(key[-1]) and key[-1] != "token_budget":
        return "***"
    return "{…}" if isinstance(value, Mapping) else shown(value)


def _known(model: type[BaseModel], prefix: _Key = ()) -> dict[_Key, FieldInfo]:
    """Every key of the model, sections and their settings alike."""
    known: dict[_Key, FieldInfo] = {}
    for name, field in model.model_fields.items():
        known[(*prefix, name)] = field
        section = _section(field)
        if section is not None:
            known |= _known(section, (*prefix, name))
    return known


def _leaves(model: type[BaseModel]) -> list[_Key]:
    return [key for key, field in _known(model).items() if _section(field) is None]


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _flatten(table: Mapping[_Key, object], sections: set[_Key]) -> Iterator[tuple[_Key, object]]:
    for key, value in table.items():
        if key in sections and isinstance(value, Mapping):
            yield from _flatten(_keyed(value, key), sections)
        else:
            yield key, value


def _keyed(table: Mapping[str, object], prefix: _Key = ()) -> dict[_Key, object]:
    return {(*prefix, name): value for name, value in table.items()}


def _environment() -> dict[_Key, object]:
    """Our variables by key; a section given as one JSON object becomes a table."""
    found: dict[_Key, object] = {}
    for name, value in os.environ.items():
        if name.upper().startswith(ENV_PREFIX):
            key = tuple(name[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))
            found[key] = json.loads(value) if value[:1] == "{" and _is_json(value) else value
    return found


def _needs_json(field: FieldInfo | None) -> bool:
    if field is None:
        return False
    return _section(field) is not None or str(field.annotation).startswith("tuple")


def _is_json(text: str) -> bool:
    if not text:
        return True  # An empty variable counts as unset.
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{path.name} cannot be read as TOML: {reason}") from error


def _table(parent: Mapping[str, object], name: str, path: Path) -> dict[str, object]:
    table = parent.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path.name}: {name} must be a table, as in [{name}]")
    return table
