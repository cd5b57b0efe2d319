"""The Agent Skills format: a folder with a SKILL.md, YAML front matter, a Markdown body.

Reading is strict, so that a mistake is told to its author with the file and the line instead of
turning into a skill that is never found. Every text gives either a `Skill` or a
`SkillFormatError`; `render_skill` writes text that reads back as the same skill.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from metaclaw_langgraph.errors import NotFoundError, SkillFormatError
from metaclaw_langgraph.types import Json, Skill

__all__ = [
    "ALLOWED_KEYS",
    "MAX_BYTES",
    "SKILL_FILE",
    "find_skill_files",
    "other_files",
    "parse_skill",
    "read_skill",
    "read_text",
    "render_skill",
]

SKILL_FILE = "SKILL.md"
MAX_BYTES = 64 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
ALLOWED_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Control characters can hide text from a reader and drive a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_SCALARS = ("str", "int", "float", "bool", "null")


def find_skill_files(folder: Path) -> list[Path]:
    """All SKILL.md files in or below `folder`, hidden folders left out, in a fixed order."""
    if not folder.is_dir():
        raise NotFoundError(f"{folder} is not a folder; name a folder that holds skill folders")
    found = [
        path
        for path in folder.rglob("*")
        if path.name.lower() == SKILL_FILE.lower()
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise NotFoundError(
            f"no {SKILL_FILE} in or below {folder}; a skill is a folder with a {SKILL_FILE} in it"
        )
    return sorted(found)


def other_files(path: Path) -> list[str]:
    """What lies in the folder of a SKILL.md beside it: scripts, references, assets.

    Hidden files do not count, nor do folders below that hold a skill of their own.
    """
    found: list[str] = []
    for folder, below, names in os.walk(path.parent):
        place = Path(folder)
        if place != path.parent and _is_skill(names):
            below.clear()
            continue
        below[:] = sorted(name for name in below if not name.startswith("."))
        found += [
            (place / name).relative_to(path.parent).as_posix()
            for name in sorted(names)
            if not name.startswith(".") and place / name != path
        ]
    return found


def _is_skill(names: Sequence[str]) -> bool:
    return any(name.lower() == SKILL_FILE.lower() for name in names)


def read_skill(path: Path) -> Skill:
    """Read one SKILL.md file."""
    return parse_skill(read_text(path), path)


def read_text(path: Path) -> str:
    """The text of one SKILL.md file, when it can be one at all."""
    if path.name != SKILL_FILE:
        raise SkillFormatError(str(path), 1, f"the file must be called {SKILL_FILE}")
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        raise SkillFormatError(str(path), 1, f"cannot be read: {error.strerror}") from error
    if size > MAX_BYTES:
        raise SkillFormatError(str(path), 1, _too_big(size))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SkillFormatError(str(path), line, "not UTF-8; save the file as UTF-8") from error


def parse_skill(text: str, path: Path) -> Skill:
    """The skill that `text` holds; `path` gives the folder's name and the place in errors."""
    return _Parser(str(path)).parse(text, Path(os.path.abspath(path)).parent.name)


def render_skill(skill: Skill) -> str:
    """The SKILL.md text of a skill."""
    front = {"name": skill.name, "description": skill.description, **_plain(skill.metadata)}
    head = yaml.dump(front, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{head}---\n\n{skill.body}\n"


def _too_big(size: int) -> str:
    return (
        f"{size} bytes is more than the {MAX_BYTES} allowed; "
        "move detail to other files of the folder"
    )


def _plain(value: Mapping[str, Json]) -> dict[str, object]:
    """Mappings and sequences of any kind as the dicts and lists that YAML can write."""
    return {key: _plain_item(item) for key, item in value.items()}


def _plain_item(item: Json) -> object:
    if isinstance(item, Mapping):
        return _plain(item)
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [_plain_item(part) for part in item]
    return item


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full: the reader refuses aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class _Parser:
    """Reads one text; holds the path so that every check can name the place."""

    def __init__(self, path: str) -> None:
        self.path = path

    def parse(self, text: str, folder: str) -> Skill:
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self._check_text(text)
        front, body, body_line = self._split(text)
        fields = self._fields(front)
        name = self._name(fields, folder)
        description = self._text(fields, "description", MAX_DESCRIPTION)
        metadata = self._metadata(fields)
        if not body:
            raise self.error(
                body_line, "the body is empty; write the advice below the front matter"
            )
        return Skill(name, description, body, metadata=metadata)

    def error(self, line: int, problem: str) -> SkillFormatError:
        return SkillFormatError(self.path, line, problem)

    def _check_text(self, text: str) -> None:
        bad = _CONTROL.search(text)
        if bad is not None:
            line = text.count("\n", 0, bad.start()) + 1
            raise self.error(line, f"control character U+{ord(bad[0]):04X}; remove it")
        size = len(text.encode())
        if size > MAX_BYTES:
            raise self.error(1, _too_big(size))

    def _split(self, text: str) -> tuple[str, str, int]:
        """Front matter, body, and the line on which the body begins."""
        lines = text.split("\n")
        if lines[0].rstrip() != "---":
            raise self.error(1, "no front matter; the first line must be ---")
        for number, line in enumerate(lines[1:], start=2):
            if line.rstrip() == "---":
                return "\n".join(lines[1 : number - 1]), _body(lines[number:]), number + 1
        raise self.error(1, "the front matter is not closed; end it with a line ---")

    def _fields(self, front: str) -> dict[str, tuple[Json, int]]:
        """Each top-level key with its value and line."""
        node = self._compose(front)
        if not isinstance(node, yaml.MappingNode):
            raise self.error(2, "the front matter must be `key: value` lines")
        fields: dict[str, tuple[Json, int]] = {}
        for key_node, value_node in node.value:
            key, line = self._key(key_node, fields), _line(key_node)
            if key not in ALLOWED_KEYS:
                allowed = ", ".join(ALLOWED_KEYS)
                raise self.error(line, f"unknown key {key!r}; the allowed keys are {allowed}")
            fields[key] = (self._value(value_node), line)
        return fields

    def _compose(self, front: str) -> yaml.Node | None:
        try:
            node: yaml.Node | None = yaml.compose(front, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 2 if mark else 2
            problem = " ".join(str(error.problem or error.context).split())
            hint = "; put a value that holds `: ` in quotes" if "mapping values" in problem else ""
            raise self.error(line, f"not valid YAML: {problem}{hint}") from error
        except (yaml.YAMLError, ValueError) as error:
            problem = " ".join(str(error).split())
            raise self.error(2, f"not valid YAML: {problem}") from error
        except RecursionError as error:
            raise self.error(2, "the front matter is nested too deeply") from error
        return node

    def _key(self, node: yaml.Node, seen: Mapping[str, object]) -> str:
        line = _line(node)
        if not isinstance(node, yaml.ScalarNode) or not node.tag.endswith(":str"):
            raise self.error(line, "a key must be text; put it in quotes")
        key = str(node.value)
        if key in seen:
            raise self.error(line, f"the key {key!r} is there twice; remove one")
        return key

    def _value(self, node: yaml.Node) -> Json:
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Json] = {}
            for key_node, value_node in node.value:
                mapping[self._key(key_node, mapping)] = self._value(value_node)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item) for item in node.value]
        return self._scalar(node)

    def _scalar(self, node: yaml.Node) -> Json:
        kind = node.tag.rpartition(":")[2]
        if kind not in _SCALARS:
            raise self.error(_line(node), f"the tag {node.tag} is not allowed; use plain values")
        if kind == "str":
            return str(node.value)
        try:
            value: Json = getattr(yaml.constructor.SafeConstructor(), f"construct_yaml_{kind}")(
                node
            )
        except (ValueError, KeyError) as error:
            problem = f"{node.value[:40]!r} is not a valid {kind}; put it in quotes"
            raise self.error(_line(node), problem) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(
                _line(node), f"{node.value!r} is not a finite number; put it in quotes"
            )
        return value

    def _name(self, fields: Mapping[str, tuple[Json, int]], folder: str) -> str:
        name, line = self._text(fields, "name", MAX_NAME), fields["name"][1]
        if not _NAME.fullmatch(name):
            form = "use lowercase letters a-z, digits and single hyphens between them"
            raise self.error(line, f"the name {name!r} has a wrong form; {form}")
        if name != folder:
            raise self.error(line, f"the name {name!r} must equal its folder's name {folder!r}")
        return name

    def _text(self, fields: Mapping[str, tuple[Json, int]], key: str, longest: int) -> str:
        if key not in fields:
            raise self.error(1, f"the front matter has no {key}; add `{key}: …`")
        value, line = fields[key]
        if value is None or value == "" or (isinstance(value, str) and not value.strip()):
            raise self.error(line, f"the {key} is empty")
        if not isinstance(value, str):
            raise self.error(line, f"the {key} must be text; put it in quotes")
        if len(value.strip()) > longest:
            size = len(value.strip())
            raise self.error(
                line, f"the {key} has {size} characters; at most {longest} are allowed"
            )
        return value.strip()

    def _metadata(self, fields: Mapping[str, tuple[Json, int]]) -> dict[str, Json]:
        self._check_optional(fields)
        return {key: fields[key][0] for key in ALLOWED_KEYS[2:] if key in fields}

    def _check_optional(self, fields: Mapping[str, tuple[Json, int]]) -> None:
        if "license" in fields:
            self._text(fields, "license", MAX_DESCRIPTION)
        if "compatibility" in fields:
            self._text(fields, "compatibility", MAX_COMPATIBILITY)
        extra, line = fields.get("metadata", ({}, 1))
        if not isinstance(extra, Mapping):
            raise self.error(line, "metadata must be a mapping of keys to values")
        tools, line = fields.get("allowed-tools", ("", 1))
        if isinstance(tools, str):
            return
        if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
            raise self.error(line, "allowed-tools must be one text or a list of texts")


def _body(lines: list[str]) -> str:
    """The body without blank lines around it; indentation of its first line is kept."""
    text = "\n".join(lines).rstrip()
    return re.sub(r"\A(?:[ \t]*\n)+", "", text)


def _line(node: yaml.Node) -> int:
    """The file's line of a node: YAML counts from 0 and does not see the opening ---."""
    return int(node.start_mark.line) + 2


class _Loader(yaml.SafeLoader):
    """YAML without dates (they stay text, as written) and without aliases (they can explode)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regexp) for tag, regexp in resolvers if not tag.endswith((":timestamp", ":merge"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
