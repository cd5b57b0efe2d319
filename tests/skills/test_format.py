"""The SKILL.md format: what is read, what is refused and where, and that writing reads back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclaw_langgraph.errors import NotFoundError, SkillFormatError
from metaclaw_langgraph.skills.format import (
    MAX_BYTES,
    find_skill_files,
    parse_skill,
    read_skill,
    render_skill,
)
from metaclaw_langgraph.types import Json, Skill
from tests.skills.conftest import write_skill

PATH = Path("bake-bread/SKILL.md")
GOOD = "---\nname: bake-bread\ndescription: How to bake bread\n---\n\nKnead, wait, bake.\n"


def front(lines: str, body: str = "Knead.") -> str:
    return f"---\n{lines}\n---\n{body}\n"


def test_reads_name_description_and_body() -> None:
    expected = Skill("bake-bread", "How to bake bread", "Knead, wait, bake.")
    assert parse_skill(GOOD, PATH) == expected


def test_optional_fields_are_kept_as_read() -> None:
    text = front(
        "name: bake-bread\ndescription: >\n  How to\n  bake\nlicense: MIT\n"
        "compatibility: needs an oven\nallowed-tools: [oven, scale]\n"
        "metadata:\n  author: ann\n  since: 2024-01-31\n  hot: true\n  grams: 500"
    )
    skill = parse_skill(text, PATH)
    assert skill.description == "How to bake"
    assert skill.metadata == {
        "license": "MIT",
        "compatibility": "needs an oven",
        "metadata": {"author": "ann", "since": "2024-01-31", "hot": True, "grams": 500},
        "allowed-tools": ["oven", "scale"],
    }


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bake-bread" / "SKILL.md"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_skill(path) == parse_skill(GOOD, PATH)


def test_the_body_may_hold_rules_and_indented_lines() -> None:
    text = front("name: bake-bread\ndescription: d", "\n    code\n\n---\n\nmore  ")
    assert parse_skill(text, PATH).body == "    code\n\n---\n\nmore"


NAMED = "name: bake-bread\n"
REFUSED = [
    ("", 1, "no front matter"),
    ("# Bread\n", 1, "first line must be ---"),
    ("---\nname: bake-bread\n", 1, "not closed"),
    ("---\n---\nx", 2, "key: value"),
    (front("- a\n- b"), 2, "key: value"),
    (front("description: d"), 1, "has no name"),
    (front("name: bake-bread"), 1, "has no description"),
    (front("description: d\nname:"), 3, "name is empty"),
    (front(NAMED + "description: '  '"), 3, "description is empty"),
    (front(NAMED + "description: 12"), 3, "must be text"),
    (front(NAMED + "description: [a]"), 3, "must be text"),
    (front("name: Bake-Bread\ndescription: d"), 2, "lowercase"),
    (front("name: bake--bread\ndescription: d"), 2, "wrong form"),
    (front("name: -bake\ndescription: d"), 2, "wrong form"),
    (front("name: bäckerei\ndescription: d"), 2, "wrong form"),
    (front(f"name: {'a' * 65}\ndescription: d"), 2, "at most 64"),
    (front("name: bake-cake\ndescription: d"), 2, "folder's name 'bake-bread'"),
    (front(NAMED + f"description: {'d' * 1025}"), 3, "at most 1024"),
    (front(NAMED + "description: d\ntags: x"), 4, "allowed keys are name, description, license"),
    (front(NAMED + "description: d\nname: bake-bread"), 4, "there twice"),
    (front(NAMED + "description: d\nmetadata:\n  a: 1\n  a: 2"), 6, "there twice"),
    (front(NAMED + "description: a: b"), 3, "in quotes"),
    (front(NAMED + "description: 'open"), 3, "not valid YAML"),
    (front(NAMED + "description: &a d\nlicense: *a"), 4, "aliases are not allowed"),
    (front(NAMED + "description: !!python/name:os.system d"), 3, "tag"),
    (front(NAMED + "description: d\nmetadata: {x: .inf}"), 4, "finite"),
    (front(NAMED + "description: d\nmetadata: {1: x}"), 4, "key must be text"),
    (front(NAMED + "description: d\nmetadata: " + "[" * 3000 + "]" * 3000), 2, "deeply"),
    (front(NAMED + "description: d\nmetadata: x"), 4, "mapping"),
    (front(NAMED + "description: d\nallowed-tools: 3"), 4, "list of texts"),
    (front(NAMED + f"description: d\ncompatibility: {'c' * 501}"), 4, "at most 500"),
    (front(NAMED + "description: d", " \n\n "), 5, "body is empty"),
    (front(NAMED + "description: d", "one\ntwo \x1b[2J"), 6, "U+001B"),
    (front(NAMED + "description: d", "\ud800"), 5, "U+D800"),
    (front(NAMED + "description: d", "x" * MAX_BYTES), 1, "bytes is more than"),
]


@pytest.mark.parametrize(("text", "line", "problem"), REFUSED)
def test_refuses_with_the_line_and_the_reason(text: str, line: int, problem: str) -> None:
    with pytest.raises(SkillFormatError) as raised:
        parse_skill(text, PATH)
    assert raised.value.line == line
    assert problem in raised.value.problem
    assert str(raised.value).startswith(f"{PATH}:{line}: ")
    assert "\n" not in str(raised.value)


def test_refuses_other_encodings_by_line(tmp_path: Path) -> None:
    path = write_skill(tmp_path, "bake-bread")
    path.write_bytes(GOOD.encode() + "Brötchen".encode("latin-1"))
    with pytest.raises(SkillFormatError, match=r":7: not UTF-8"):
        read_skill(path)


def test_refuses_a_file_that_is_too_big_without_reading_it(tmp_path: Path) -> None:
    path = write_skill(tmp_path, "bake-bread", GOOD + "x" * MAX_BYTES)
    with pytest.raises(SkillFormatError, match="move detail to other files"):
        read_skill(path)


def test_refuses_a_file_whose_name_has_the_wrong_case(tmp_path: Path) -> None:
    path = write_skill(tmp_path, "bake-bread").rename(tmp_path / "bake-bread" / "skill.md")
    assert find_skill_files(tmp_path) == [path]
    with pytest.raises(SkillFormatError, match=r"must be called SKILL\.md"):
        read_skill(path)


def test_finds_files_below_a_folder_in_order_without_hidden_ones(tmp_path: Path) -> None:
    names = ["z", "a", "deep/er/m", ".git/hooks/x", "deep/.hidden/y"]
    for name in names:
        write_skill(tmp_path, name)
    found = [path.parent.name for path in find_skill_files(tmp_path)]
    assert found == ["a", "m", "z"]
    assert find_skill_files(tmp_path / "a") == [tmp_path / "a" / "SKILL.md"]


def test_a_folder_without_skills_or_no_folder_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no SKILL\.md"):
        find_skill_files(tmp_path)
    with pytest.raises(NotFoundError, match="not a folder"):
        find_skill_files(tmp_path / "nowhere")


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_a_skill_or_a_format_error(text: str) -> None:
    _parse_or_refuse(text)


YAML_LIKE = st.text(st.sampled_from("abz01 \n\t:-#'\"[]{},&*!|>%@`~?<=.\\x_\u2028é"), max_size=80)


@settings(deadline=None)
@given(YAML_LIKE, st.text(max_size=20))
def test_any_front_matter_gives_a_skill_or_a_format_error(lines: str, body: str) -> None:
    _parse_or_refuse(front(lines, body))
    _parse_or_refuse(front(f"name: bake-bread\ndescription: d\nmetadata: {lines}", body))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_a_skill_or_a_format_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bake-bread" / "SKILL.md"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"---\n" + data)
    _check(_outcome(lambda: read_skill(path)))


def _parse_or_refuse(text: str) -> None:
    _check(_outcome(lambda: parse_skill(text, PATH)))


def _outcome(read: Callable[[], Skill]) -> Skill | SkillFormatError:
    try:
        return read()
    except SkillFormatError as error:
        return error


def _check(outcome: Skill | SkillFormatError) -> None:
    if isinstance(outcome, Skill):
        assert parse_skill(render_skill(outcome), PATH) == outcome
    else:
        assert outcome.line >= 1
        assert outcome.problem


# Everything but control characters, which the format refuses.
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.just("\n"), max_size=60)
WRITTEN = TEXT.map(str.strip).filter(bool)
BODY = TEXT.map(lambda text: text.strip("\n").rstrip()).filter(lambda text: bool(text.strip()))
FIRST_LINE = BODY.filter(lambda text: bool(text.split("\n")[0].strip(" \t")))
LEAVES: st.SearchStrategy[Json] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES: st.SearchStrategy[Json] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "license": WRITTEN,
        "compatibility": WRITTEN,
        "metadata": st.dictionaries(TEXT, VALUES, max_size=3),
        "allowed-tools": TEXT | st.lists(TEXT, max_size=3),
    },
)


@settings(deadline=None)
@given(description=WRITTEN, body=FIRST_LINE, metadata=METADATA)
def test_what_is_written_reads_back(description: str, body: str, metadata: dict[str, Json]) -> None:
    skill = Skill("bake-bread", description, body, metadata=metadata)
    assert parse_skill(render_skill(skill), PATH) == skill
