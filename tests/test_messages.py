"""Recorded messages as text: every kind has a role and says something."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    ToolMessage,
    message_to_dict,
)

from metaclaw_langgraph._messages import message_text, role_of, value_text

CALL = {"name": "add", "args": {"a": 1}, "id": "c1"}


@pytest.mark.parametrize(
    ("message", "role", "text"),
    [
        (AIMessage("", tool_calls=[CALL]), "ai", 'calls add {"a": 1}'),
        (
            AIMessage(
                ["Hm.", {"type": "tool_use", "id": "c1", "name": "add", "input": {}}],
                tool_calls=[CALL],
            ),
            "ai",
            'Hm.\ncalls add {"a": 1}',
        ),
        (
            AIMessage("", invalid_tool_calls=[{**CALL, "args": "{a", "error": "bad"}]),
            "ai",
            "calls add {a",
        ),
        (AIMessage([{"type": "image", "url": "http://x/y.png"}]), "ai", "[image]"),
        (ChatMessage(content="Hello", role="critic"), "critic", "Hello"),
        (
            ToolMessage("no", name="add", tool_call_id="c1", status="error"),
            "tool add, error",
            "no",
        ),
    ],
)
def test_every_kind_of_message_has_its_role_and_text(
    message: BaseMessage, role: str, text: str
) -> None:
    recorded = message_to_dict(message)
    assert (role_of(recorded), message_text(recorded)) == (role, text)


def test_a_message_that_was_cut_is_still_shown() -> None:
    cut: Any = {"type": "ai", "data": {"content": "It is…", "tool_calls": "…"}}
    assert value_text(cut) == "It is…"
    for broken in ({"type": "ai", "data": "…"}, {"type": "ai"}, {}):
        assert message_text(broken) == ""
    odd: Any = {"type": "ai", "data": {"content": [7, "…"], "tool_calls": ["…"]}}
    assert message_text(odd) == "7\n…\ncalls …"
