"""A pytest plugin: wraps every graph that LangGraph's tests compile, if YARDSTICK_WRAP is 1."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import langgraph.func
from langgraph.graph import StateGraph

if os.environ.get("YARDSTICK_WRAP") == "1":
    from metaclaw_langgraph import MetaClawConfig, with_metaclaw

    _config = MetaClawConfig.load(home=tempfile.mkdtemp(), draw=False, tracing=False)
    _compile = StateGraph.compile
    _decorate = langgraph.func.entrypoint.__call__

    def compile_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return with_metaclaw(_compile(self, *args, **kwargs), _config)

    def decorate_wrapped(self: Any, function: Any) -> Any:
        return with_metaclaw(_decorate(self, function), _config)

    StateGraph.compile = compile_wrapped  # type: ignore[method-assign]
    langgraph.func.entrypoint.__call__ = decorate_wrapped  # type: ignore[method-assign]
