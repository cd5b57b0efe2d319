"""MetaClaw for LangGraph: any graph learns from its own use.

    from metaclaw_langgraph import with_metaclaw
    agent = with_metaclaw(graph)

`agent` is used exactly as `graph` was; `agent.metaclaw` is its runtime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig
    from metaclaw_langgraph.errors import (
        ConfigError,
        ConflictError,
        MetaClawError,
        MissingExtraError,
        NotFoundError,
        SkillFormatError,
        StoreError,
    )
    from metaclaw_langgraph.judging import FeedbackJudge, Judge, LLMJudge, VerifierJudge
    from metaclaw_langgraph.runtime import Runtime
    from metaclaw_langgraph.wrapping.graph import with_metaclaw
    from metaclaw_langgraph.wrapping.middleware import MetaClawMiddleware
    from metaclaw_langgraph.wrapping.model import metaclaw_model

__all__ = [
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

__version__ = "0.1.0"

_ELSEWHERE = {
    "FeedbackJudge": "judging",
    "Judge": "judging",
    "LLMJudge": "judging",
    "MetaClawConfig": "config",
    "MetaClawMiddleware": "wrapping.middleware",
    "Runtime": "runtime",
    "VerifierJudge": "judging",
    "metaclaw_model": "wrapping.model",
    "with_metaclaw": "wrapping.graph",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the CLI does not wait for LangGraph."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'errors')}"), name)
