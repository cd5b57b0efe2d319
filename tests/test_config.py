"""The configuration: which source wins, and what is refused in which words."""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from metaclaw_langgraph.config import LearningConfig, MetaClawConfig, RetrievalConfig
from metaclaw_langgraph.errors import ConfigError

in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


@pytest.fixture(autouse=True)
def bare_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory without settings files, and an environment without our variables."""
    for name in [*os.environ]:
        if name.upper().startswith("METACLAW_") or name == "MLFLOW_TRACKING_URI":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(**overrides: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        MetaClawConfig.load(**overrides)
    return str(caught.value).splitlines()


def test_defaults() -> None:
    config = MetaClawConfig.load()
    assert config.namespace == "default"
    assert config.home == Path.home() / ".metaclaw"
    assert (config.draw, config.tracing) == (True, True)
    assert config.retrieval == RetrievalConfig(
        top_k=5, min_score=0.25, token_budget=1500, deadline=0.25, warmup=10.0
    )
    assert config.learning == LearningConfig(queue_size=1000, flush_interval=0.05)
    assert config.redact.env
    assert config.redact.patterns == ()


def test_the_bare_constructor_does_as_load_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MetaClawConfig(draw=False) == MetaClawConfig.load(draw=False)
    (tmp_path / "metaclaw.toml").write_text("zebra = 'red'\n")
    monkeypatch.setenv("METACLAW_TRACNG", "false")
    wrong = {"retrieval": {"top_k": 0}, "mlflow_uri": "ftp://ann:Pa55@host", "nmespace": "x"}
    with pytest.raises(ConfigError) as caught:
        MetaClawConfig(**wrong)
    assert str(caught.value).splitlines() == problems(**wrong)
    assert len(problems(**wrong)) == 5
    # Nor does the traceback show what the message hides.
    assert "Pa55" not in "".join(traceback.format_exception(caught.value))


def test_it_cannot_be_changed() -> None:
    config = MetaClawConfig.load()
    with pytest.raises(ValidationError):
        config.namespace = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.retrieval.top_k = 9  # type: ignore[misc]


def test_stores_live_in_home_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = MetaClawConfig.load(home=tmp_path)
    assert config.resolved_ledger_url == f"sqlite:///{tmp_path}/ledger.db"
    assert config.resolved_mlflow_uri == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert config.resolved_mlflow_uri == "http://127.0.0.1:5000"
    told = MetaClawConfig.load(
        home=tmp_path, ledger_url="postgresql+psycopg://u:p@db/m", mlflow_uri="http://mlflow:80"
    )
    assert told.resolved_ledger_url == "postgresql+psycopg://u:p@db/m"
    assert told.resolved_mlflow_uri == "http://mlflow:80"


@pytest.mark.parametrize("uri", ["file:./mlruns", "mlruns", "sqlite://", "http://", "http://h:x"])
def test_a_tracking_uri_of_mlflow_s_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (line,) = problems()
    assert line.startswith(f"bad setting MLFLOW_TRACKING_URI = {uri!r} in the environment: give ")
    assert "tracing = false" in line
    # It does not matter where it is not used.
    assert MetaClawConfig.load(tracing=False).tracing is False
    assert MetaClawConfig.load(mlflow_uri="http://h:80").resolved_mlflow_uri == "http://h:80"


def test_home_is_expanded_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MetaClawConfig.load(home="here/it is").home == tmp_path / "here" / "it is"
    monkeypatch.setenv("METACLAW_HOME", "~/elsewhere")
    assert MetaClawConfig.load().home == Path.home() / "elsewhere"


def test_metaclaw_toml_hides_pyproject(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.metaclaw]\nnamespace = 'project'\n")
    assert MetaClawConfig.load().namespace == "project"
    (tmp_path / "metaclaw.toml").write_text("draw = false\n")
    assert MetaClawConfig.load().namespace == "default"
    assert MetaClawConfig.load().draw is False


def test_a_pyproject_of_other_tools_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nnamespace = 'theirs'\n")
    assert MetaClawConfig.load().namespace == "default"


def test_a_section_may_be_one_json_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL", '{"top_k": 7, "deadline": 2}')
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOP_K", "8")
    monkeypatch.setenv("METACLAW_REDACT__PATTERNS", '["a+", "b"]')
    config = MetaClawConfig.load()
    assert (config.retrieval.top_k, config.retrieval.deadline) == (8, 2)
    assert config.redact.patterns == ("a+", "b")


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_LEDGER_URL", "")
    monkeypatch.setenv("METACLAW_RETRIEVAL", "")
    assert MetaClawConfig.load().ledger_url is None


def test_a_section_object_overrides_only_what_it_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL__TOP_K", "8")
    config = MetaClawConfig.load(retrieval=RetrievalConfig(min_score=0.5))
    assert (config.retrieval.top_k, config.retrieval.min_score) == (8, 0.5)


# The merge order. Each source gives some of these settings; the last one that gives a key wins.
_VALUES: dict[str, st.SearchStrategy[object]] = {
    "namespace": st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,20}\Z"),
    "draw": st.booleans(),
    "retrieval.top_k": st.integers(1, 50),
    "retrieval.min_score": st.floats(-1, 1),
    "retrieval.deadline": st.floats(0.001, 100),
    "learning.queue_size": st.integers(1, 10_000),
    "redact.env": st.booleans(),
}
_layers = st.fixed_dictionaries({}, optional=_VALUES)


def nested(flat: Mapping[str, object]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        inner = table.setdefault(section, {}) if section else table
        assert isinstance(inner, dict)
        inner[name] = value
    return table


def as_toml(flat: Mapping[str, object], prefix: str = "") -> str:
    return "".join(f"{prefix}{key} = {json.dumps(value)}\n" for key, value in flat.items())


def as_environ(flat: Mapping[str, object]) -> dict[str, str]:
    return {f"METACLAW_{key.upper().replace('.', '__')}": str(flat[key]) for key in flat}


@in_one_folder
@given(in_file=_layers, in_env=_layers, in_arguments=_layers, project=st.booleans())
@example(in_file={"retrieval.top_k": 2}, in_env={"redact.env": True}, in_arguments={}, project=True)
def test_later_sources_win_key_by_key(
    bare_place: Path,
    in_file: dict[str, object],
    in_env: dict[str, object],
    in_arguments: dict[str, object],
    project: bool,
) -> None:
    (bare_place / "metaclaw.toml").unlink(missing_ok=True)
    if project:
        (bare_place / "pyproject.toml").write_text("[tool.metaclaw]\n" + as_toml(in_file))
    else:
        (bare_place / "metaclaw.toml").write_text(as_toml(in_file))
    with mock.patch.dict(os.environ, as_environ(in_env)):
        config = MetaClawConfig.load(**nested(in_arguments))
    defaults = MetaClawConfig.model_construct().model_dump()
    for key in _VALUES:
        section, _, name = key.rpartition(".")
        got = getattr(getattr(config, section) if section else config, name)
        default = defaults[section][name] if section else defaults[name]
        assert got == {key: default, **in_file, **in_env, **in_arguments}[key], key


@in_one_folder
@given(
    key=st.from_regex(r"\A[a-z][a-z0-9_]{0,12}[a-z0-9]\Z"),
    where=st.sampled_from(["file", "project", "environment", "arguments"]),
    section=st.sampled_from(["", "retrieval.", "learning.", "redact."]),
)
def test_an_unknown_key_is_refused_from_every_source(
    bare_place: Path, key: str, where: str, section: str
) -> None:
    taken = {name for _, name in known_settings()} | {"retrieval", "learning", "redact"}
    key = f"{key}x" if key in taken else key
    flat: dict[str, object] = {f"{section}{key}": 1}
    (bare_place / "metaclaw.toml").unlink(missing_ok=True)
    (bare_place / "pyproject.toml").unlink(missing_ok=True)
    if where == "file":
        (bare_place / "metaclaw.toml").write_text(as_toml(flat))
    if where == "project":
        (bare_place / "pyproject.toml").write_text(as_toml(flat, "tool.metaclaw."))
    with mock.patch.dict(os.environ, as_environ(flat) if where == "environment" else {}):
        (line,) = problems(**(nested(flat) if where == "arguments" else {}))
    spelled = [*as_environ(flat)] if where == "environment" else [*flat]
    assert line.startswith(f"unknown setting {spelled[0]} = ")


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("METACLAW_RETRIEVAL_TOP_K", "METACLAW_RETRIEVAL__TOP_K (a whole number from 1 to 50)"),
        ("METACLAW_TOP_K", "METACLAW_RETRIEVAL__TOP_K (a whole number from 1 to 50)"),
        ("METACLAW_RETRIEVAL__TOPK", "METACLAW_RETRIEVAL__TOP_K (a whole number from 1 to 50)"),
        ("METACLAW_TRACNG", "METACLAW_TRACING (true or false)"),
        ("METACLAW_LEDGER", "METACLAW_LEDGER_URL (sqlite:///FILE or postgresql+psycopg://"),
        ("METACLAW_RETRIEVAL__TOP_K__DEEP", "METACLAW_RETRIEVAL__TOP_K (a whole number"),
    ],
)
def test_an_unknown_variable_is_told_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, nearest: str
) -> None:
    monkeypatch.setenv(variable, "3")
    line = problems()[0]
    assert line.startswith(f"unknown setting {variable} = '3' in the environment; did you mean ")
    assert nearest in line


def test_a_key_unlike_any_other_is_told_all_of_them() -> None:
    (line,) = problems(zzz=1)
    assert "the settings are namespace, home, draw" in line
    assert "redact.patterns" in line


def test_every_problem_has_its_line_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metaclaw.toml").write_text("zebra = 'red'\n[retrieval]\ntop_k = 51\n")
    monkeypatch.setenv("METACLAW_DRAW", "perhaps")
    assert problems(namespace="Not This") == [
        "unknown setting zebra = 'red' in metaclaw.toml; the settings are "
        + ", ".join(f"{s}{k}" for s, k in known_settings()),
        "bad setting namespace = 'Not This' in the arguments: give 1 to 63 of a-z, 0-9, dot, "
        "underscore and hyphen, beginning with a letter or digit",
        "bad setting METACLAW_DRAW = 'perhaps' in the environment: give true or false",
        "bad setting retrieval.top_k = 51 in metaclaw.toml: give a whole number from 1 to 50",
    ]


def known_settings() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in MetaClawConfig.model_construct().model_dump().items():
        found += [(f"{name}.", k) for k in value] if isinstance(value, dict) else [("", name)]
    return found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"namespace": "-x"}, "beginning with a letter or digit"),
        ({"namespace": "x" * 64}, "1 to 63"),
        ({"namespace": "x\n"}, "1 to 63"),
        ({"home": ""}, "the path of a folder"),
        ({"home": "/tmp/a?b"}, "without ? and #"),
        ({"home": 3}, "the path of a folder"),
        ({"ledger_url": "postgresql://h/d"}, "postgresql+psycopg://"),
        ({"ledger_url": "sqlite://"}, "names no file"),
        ({"ledger_url": "sqlite:///:memory:"}, "names no file"),
        ({"ledger_url": "ledger.db"}, "sqlite:///FILE"),
        ({"chroma_url": "localhost:8000"}, "http://HOST:PORT"),
        ({"chroma_url": "http://h:port"}, "http://HOST:PORT"),
        ({"chroma_url": "http://"}, "names no host"),
        ({"chroma_url": "http://u:p@h:80"}, "only a host and a port are used"),
        ({"chroma_url": "http://h:80/v2"}, "only a host and a port are used"),
        ({"mlflow_uri": "./mlruns"}, "sqlite:///FILE"),
        ({"retrieval": "much"}, "a table with any of top_k"),
        ({"retrieval": {"top_k": 0}}, "a whole number from 1 to 50"),
        ({"retrieval": {"top_k": True}}, "a whole number from 1 to 50"),
        ({"retrieval": {"top_k": 2.5}}, "a whole number from 1 to 50"),
        ({"retrieval": {"min_score": 1.01}}, "a number from -1 to 1"),
        ({"retrieval": {"min_score": float("nan")}}, "a number from -1 to 1"),
        ({"retrieval": {"token_budget": 0}}, "a whole number above 0"),
        ({"retrieval": {"deadline": 0}}, "seconds above 0"),
        ({"retrieval": {"deadline": float("inf")}}, "seconds above 0"),
        ({"retrieval": {"warmup": -1}}, "seconds, 0 or more"),
        ({"retrieval": {"embedder": "bert"}}, "'minilm-int8' or 'module:attribute'"),
        ({"learning": {"queue_size": 0}}, "a whole number of 1 or more"),
        ({"learning": {"flush_interval": -0.1}}, "seconds above 0"),
        ({"redact": {"patterns": ["a", "("]}}, "redact.patterns[1] = '(' in the arguments"),
        ({"redact": {"patterns": ["a*"]}}, "matches the empty text"),
        ({"redact": {"patterns": "abc"}}, "a list of regular expressions"),
    ],
)
def test_a_bad_value_is_refused_with_the_allowed_form(
    arguments: dict[str, object], says: str
) -> None:
    (line,) = problems(**arguments)
    assert line.startswith("bad setting ")
    assert says in line


@pytest.mark.parametrize(
    "arguments",
    [
        {"mlflow_uri": "databricks://profile"},
        {"mlflow_uri": "postgresql://u:p@h:5432/d"},
        {"chroma_url": "https://chroma.example:443"},
        {"ledger_url": "sqlite:///relative.db"},
        {"retrieval": {"embedder": "my_package.embed:Mine"}},
        {"retrieval": {"warmup": 0}},
        {"namespace": "9.a_b-c"},
    ],
)
def test_an_allowed_value_is_kept(arguments: dict[str, object]) -> None:
    dumped = MetaClawConfig.load(**arguments).model_dump()
    for key, value in arguments.items():
        kept = dumped[key]
        assert kept == ({**kept, **value} if isinstance(value, dict) else value)


def test_bad_json_in_a_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METACLAW_RETRIEVAL", "{top_k: 3}")
    monkeypatch.setenv("METACLAW_REDACT__PATTERNS", "abc")
    monkeypatch.setenv("METACLAW_NAMES", "x")
    first, *rest = problems()
    assert first.startswith("unknown setting METACLAW_NAMES = 'x'")
    assert all(line.endswith(", as JSON") for line in rest)
    assert len(rest) == 2


@in_one_folder
@given(
    password=st.from_regex(r"\A[A-Za-z0-9%/@:?#]{0,10}Pa55[A-Za-z0-9%/@:?#]{0,10}\Z"),
    user=st.sampled_from(["", "ann"]),
    start=st.sampled_from(["ftp://", "postgresql+psycopg2:///", "http://\u2100"]),
)
@example(password="Pa55#x", user="ann", start="postgresql://")
def test_passwords_are_never_printed(password: str, user: str, start: str) -> None:
    url = f"{start}{user}:{password}@host/x"
    for arguments in ({"ledger_url": url}, {"url": url}, {"mlflow_uri": url}, {"chroma_url": url}):
        assert "Pa55" not in "\n".join(problems(**arguments))


def test_values_of_keys_that_sound_secret_are_never_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METACLAW_API_KEY", "sk-live-1234")
    monkeypatch.setenv("METACLAW_CHROMA_URL", "ftp://h/?api_key=abcd-1234")
    text = "\n".join(problems(auth={"password": "hunter2"}, db_password="hunter2"))
    assert not re.search("1234|hunter2", text)
    assert "METACLAW_API_KEY" in text


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("metaclaw.toml", "draw = \n", "metaclaw.toml cannot be read as TOML: "),
        ("metaclaw.toml", "draw = '\xff'", "metaclaw.toml cannot be read as TOML: "),
        ("pyproject.toml", "[tool", "pyproject.toml cannot be read as TOML: "),
        ("pyproject.toml", "[tool]\nmetaclaw = 3\n", "pyproject.toml: metaclaw must be a table"),
        ("pyproject.toml", "tool = 3\n", "pyproject.toml: tool must be a table"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    (line,) = problems()
    assert line.startswith(says)
