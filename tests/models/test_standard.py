"""LangChain's own unit tests for chat models."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_tests.unit_tests import ChatModelUnitTests

from metaclaw_langgraph.models import LocalChatModel


class TestLocalChatModel(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return LocalChatModel

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        # An in-process model has no time-outs, retries or keys, and refuses unknown options.
        return {"temperature": 0, "max_tokens": 100, "stop": []}

    @property
    def has_tool_calling(self) -> bool:
        return False

    @property
    def has_structured_output(self) -> bool:
        return False
