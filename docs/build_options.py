"""Writes the table of options in configuration.md from the code: `python docs/build_options.py`."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from metaclaw_langgraph import config as module
from metaclaw_langgraph.config import MetaClawConfig

PAGE = Path(__file__).with_name("configuration.md")
BETWEEN = re.compile(r"(<!-- options -->\n).*?(<!-- /options -->)", re.DOTALL)


def page() -> str:
    """configuration.md as it should be."""
    rows = "\n".join(_rows(MetaClawConfig, ""))
    table = f"| option | default | allowed | what it does |\n|---|---|---|---|\n{rows}\n"
    return BETWEEN.sub(lambda m: f"{m[1]}{table}{m[2]}", PAGE.read_text("utf-8"))


def _rows(model: type[BaseModel], prefix: str) -> list[str]:
    rows = []
    explained = _docstrings(model.__name__)
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += _rows(kind, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra
        allowed = str(extra["allowed"]) if isinstance(extra, dict) else ""
        default = "" if field.default in (None, ()) else f"`{str(field.default).lower()}`"
        cells = (f"`{prefix}{name}`", default, allowed.replace("|", "\\|"), explained[name])
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _docstrings(name: str) -> dict[str, str]:
    """The text under each field of a class."""
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name).body
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            documented = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split()) if documented else ""  # type: ignore[attr-defined]
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
