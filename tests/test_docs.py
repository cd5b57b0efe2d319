"""What the README and the docs say is true: their Python runs, their commands and options exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaclaw_langgraph.cli import app
from tests.models.support import converted_home, needs_weights

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^([ ]*)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SETUP = """
from langgraph.graph import START, StateGraph
builder = StateGraph(dict)
builder.add_node("agent", lambda state: state)
builder.add_edge(START, "agent")
"""


def blocks(page: Path, language: str) -> list[str]:
    """The code of one language on a page, without its indentation."""
    found = BLOCK.finditer(page.read_text("utf-8"))
    return [
        re.sub(rf"^{block[1]}", "", block[3], flags=re.MULTILINE)
        for block in found
        if block[2] == language
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@needs_weights
def test_the_python_on_the_page_runs(
    page: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "models").symlink_to(Path(converted_home(tmp_path_factory)) / "models")
    monkeypatch.setenv("METACLAW_HOME", str(tmp_path))
    monkeypatch.setenv("METACLAW_TRACING", "false")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(SETUP, names)
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_on_the_page_exist(page: Path) -> None:
    lines = "\n".join(blocks(page, "console")).splitlines()
    commands = [line.split("#")[0].split()[2:] for line in lines if line.startswith("$ metaclaw ")]
    for words in commands:
        names = [word for word in words if re.fullmatch(r"[a-z-]+", word)]
        result = CliRunner().invoke(app, [*names, "--help"])
        assert result.exit_code == 0, (names, result.output)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_the_page_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_table_of_options_is_the_code_s() -> None:
    build = runpy.run_path(str(ROOT / "docs" / "build_options.py"))
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert build["page"]() == page, "run: python docs/build_options.py"
