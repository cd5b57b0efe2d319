"""The public surface: few names, all there, and a light import."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import metaclaw_langgraph


def test_the_exported_names() -> None:
    assert metaclaw_langgraph.__all__ == [
        "ConfigError",
        "ConflictError",
        "FeedbackJudge",
        "Judge",
        "LLMJudge",
        "MetaClawConfig",
        "MetaClawError",
        "MetaClawMiddleware",
        "MissingExtraError",
        "NotFoundError",
        "Runtime",
        "SkillFormatError",
        "StoreError",
        "VerifierJudge",
        "metaclaw_model",
        "with_metaclaw",
    ]
    for name in metaclaw_langgraph.__all__:
        assert getattr(metaclaw_langgraph, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="with_metaclav"):
        metaclaw_langgraph.with_metaclav  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import metaclaw_langgraph", ["torch", "langgraph", "chromadb", "mlflow", "sqlalchemy"]),
        ("from metaclaw_langgraph import *", ["torch", "transformers", "chromadb", "mlflow"]),
    ],
)
def test_what_an_import_leaves_out(statement: str, absent: list[str]) -> None:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not set(absent) & set(json.loads(done.stdout))
