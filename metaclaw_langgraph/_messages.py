"""Recorded messages as text for people.

The ledger keeps a message as LangChain's `message_to_dict` writes it: `{"type": "human", "data":
{"content": …, "tool_calls": […]}}`. It may have been cut to a limit, so nothing in it is relied on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from metaclaw_langgraph.types import Json

__all__ = ["is_message", "message_text", "role_of", "value_text"]

# Blocks that repeat a tool call, which is shown by itself.
_CALL_BLOCKS = ("tool_use", "tool_call", "function_call", "tool_call_chunk", "input_json_delta")


def is_message(value: Json) -> bool:
    """Whether a recorded value is a message."""
    return isinstance(value, Mapping) and isinstance(value.get("data"), Mapping)


def role_of(message: Mapping[str, Json]) -> str:
    """Who speaks: human, ai, system, or the tool by its name."""
    data = _data(message)
    kind = str(message.get("type", "message")).removesuffix("MessageChunk").lower()
    if kind == "tool":
        failed = ", error" if data.get("status") == "error" else ""
        return f"tool {data.get('name') or ''}".strip() + failed
    return str(data.get("role") or kind) if kind == "chat" else kind


def message_text(message: Mapping[str, Json]) -> str:
    """What is said and which tools are called, each call on a line of its own."""
    data = _data(message)
    calls = [*_items(data.get("tool_calls")), *_items(data.get("invalid_tool_calls"))]
    lines = [_content(data.get("content"), bool(calls)), *(_call(call) for call in calls)]
    return "\n".join(line for line in lines if line)


def value_text(value: Json) -> str:
    """A recorded value: a message by its text, a text as it is, the rest as JSON."""
    if isinstance(value, Mapping) and is_message(value):
        return message_text(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _data(message: Mapping[str, Json]) -> Mapping[str, Json]:
    data = message.get("data")
    return data if isinstance(data, Mapping) else {}


def _content(content: Json, has_calls: bool) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    blocks = [_block(block, has_calls) for block in _items(content)]
    return "\n".join(block for block in blocks if block)


def _block(block: Json, has_calls: bool) -> str:
    if not isinstance(block, Mapping):
        return value_text(block)
    kind = str(block.get("type", "block"))
    if has_calls and kind in _CALL_BLOCKS:
        return ""
    for key in ("text", "reasoning", "thinking"):
        said = block.get(key)
        if isinstance(said, str):
            return said if key == "text" else f"[{key}] {said}"
    return f"[{kind}]"


def _call(call: Json) -> str:
    if not isinstance(call, Mapping):
        return f"calls {value_text(call)}"
    return f"calls {call.get('name')} {value_text(call.get('args'))}"


def _items(value: Json) -> Sequence[Json]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
