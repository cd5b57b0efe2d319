"""MetaClaw for LangGraph: any graph learns from its own use.

    from metaclaw_langgraph import with_metaclaw
    agent = with_metaclaw(graph)

`agent` is used exactly as `graph` was; `agent.metaclaw` is its runtime.
"""

from __future__ import annotations

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
from metaclaw_langgraph.runtime import Runtime
from metaclaw_langgraph.wrapping.graph import with_metaclaw
from metaclaw_langgraph.wrapping.middleware import MetaClawMiddleware
from metaclaw_langgraph.wrapping.model import metaclaw_model

__all__ = [
    "ConfigError",
    "ConflictError",
    "MetaClawConfig",
    "MetaClawError",
    "MetaClawMiddleware",
    "MissingExtraError",
    "NotFoundError",
    "Runtime",
    "SkillFormatError",
    "StoreError",
    "metaclaw_model",
    "with_metaclaw",
]

__version__ = "0.1.0"
