"""What the user asked for: the task of a run, taken from the graph's input.

Skills are looked up by the task, so what surrounds the request (time stamps that a chat channel
puts in front, metadata blocks, reminders that a client injects) is taken off first: otherwise
every run looks alike and retrieves the same skills. People whose input has a shape of its own
pass `task=` to `with_metaclaw`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command
from pydantic import BaseModel

__all__ = ["TaskInput", "strip_envelope", "task_of_input", "task_of_messages"]

TaskInput: TypeAlias = object
"""Whatever the graph takes as input."""

_KEYS = ("task", "question", "query", "request", "prompt", "input", "goal", "topic", "instruction")
_USER_ROLES = {"user", "human"}

_BLOCK = re.compile(
    r"""
    <(system-reminder|metadata|envelope)\b[^>]*> .*? </\1>      # <metadata>…</metadata>
    | ^[^\n]*\(untrusted\ metadata\):\s*```(?:json)?\s.*?```    # X (untrusted metadata): ```…```
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
# A bracket in front of the request, if it holds a clock time or a date: "[Tue 2026-03-03 09:12] ".
_STAMP = re.compile(r"^\s*\[[^\]\n]{0,120}?(?:\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2})[^\]\n]{0,120}\]\s*")


def strip_envelope(text: str) -> str:
    """The request without the metadata that a channel or client wrapped around it."""
    bare = _BLOCK.sub("", text).strip()
    while (shorter := _STAMP.sub("", bare, count=1)) != bare:
        bare = shorter
    return bare.strip() or text.strip()


def task_of_input(value: TaskInput) -> str | None:
    """The user's request in a graph's input, or None when the input holds no such text."""
    match value:
        case None | Command():
            return None
        case str():
            return _clean(value)
        case BaseMessage():
            return task_of_messages([value])
        case BaseModel():
            return _task_of_mapping(dict(value))
        case Mapping():
            return _task_of_mapping(value)
        case Sequence():
            return task_of_messages(value)
        case _ if hasattr(value, "__dict__"):
            return _task_of_mapping(vars(value))
        case _:
            return None


def task_of_messages(messages: Iterable[object]) -> str | None:
    """The text of the last message that a user wrote."""
    for message in reversed(list(messages)):
        text = _user_text(message)
        if text:
            return _clean(text)
    return None


def _task_of_mapping(value: Mapping[str, object]) -> str | None:
    messages = value.get("messages")
    if isinstance(messages, str | BaseMessage):
        messages = [messages]
    if isinstance(messages, Sequence) and (task := task_of_messages(messages)):
        return task
    for key in _KEYS:
        if isinstance(found := value.get(key), str) and found.strip():
            return _clean(found)
    texts = [v for v in value.values() if isinstance(v, str) and v.strip()]
    return _clean(texts[0]) if len(texts) == 1 else None


def _user_text(message: object) -> str | None:
    match message:
        case HumanMessage():
            return _content_text(message.content)
        case BaseMessage():
            return None
        case str():
            return message
        case (str() as role, content) if role in _USER_ROLES:
            return _content_text(content)
        case {"role": role, "content": content} if role in _USER_ROLES:
            return _content_text(content)
        case {"type": role, "content": content} if role in _USER_ROLES:
            return _content_text(content)
        case _:
            return None


def _content_text(content: object) -> str | None:
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return None
    parts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")
    ]
    return "\n".join(part for part in parts if isinstance(part, str)) or None


def _clean(text: str) -> str | None:
    return strip_envelope(text) or None
