"""The exception tree: every error that MetaClaw raises on purpose.

    MetaClawError
    ├── ConfigError (ValueError)        a setting is unknown or has a bad value
    ├── SkillFormatError (ValueError)   a SKILL.md file breaks the format
    ├── NotFoundError (LookupError)     a skill, trajectory or generation that is not there
    ├── ConflictError (RuntimeError)    another writer moved first
    ├── EvolverError (RuntimeError)     the evolver gave no answer that can be used
    ├── JudgeError                      a judge could not come to a verdict
    ├── StoreError (RuntimeError)       the ledger, Chroma or MLflow cannot be used
    └── MissingExtraError (ImportError) an optional dependency is not installed

Each message is one line that says what is wrong and how to mend it. None of them reaches a
user's run: there, failures are counted as incidents instead.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "ConflictError",
    "MetaClawError",
    "MissingExtraError",
    "NotFoundError",
    "SkillFormatError",
    "StoreError",
    "error_text",
]


class MetaClawError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(MetaClawError, ValueError):
    """A setting is unknown, or its value is not of the allowed form."""


class SkillFormatError(MetaClawError, ValueError):
    """A SKILL.md file breaks the format; `path` and `line` say where."""

    def __init__(self, path: str, line: int, problem: str) -> None:
        super().__init__(path, line, problem)
        self.path = path
        self.line = line
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


class NotFoundError(MetaClawError, LookupError):
    """Nothing with that name or id in this namespace."""


class ConflictError(MetaClawError, RuntimeError):
    """Another process changed the same thing first; read again and retry."""


class StoreError(MetaClawError, RuntimeError):
    """A store (ledger, Chroma, MLflow) cannot be opened, read or written."""


class MissingExtraError(MetaClawError, ImportError):
    """An optional dependency is missing; the message names the extra to install."""


def error_text(error: BaseException) -> str:
    """Any exception in words, also one whose own text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: (its text cannot be had)"
