"""What the user asked for: the task of a run, taken from the graph's input.

Skills are looked up by the task, so what surrounds the request (time stamps that a chat channel
puts in front, metadata blocks, reminders that a client injects) is taken off first: otherwise
every run looks alike and retrieves the same skills. People whose input has a shape of its own
pass `task=` to `with_metaclaw`.

This runs in the caller's thread on whatever text a user sends: everything here is linear in the
length of the text, which is cut first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.types import Command
from pydantic import BaseModel

__all__ = ["TaskFunction", "strip_envelope", "task_of_input", "task_of_messages"]

TaskFunction: TypeAlias = Callable[[Any], str | None]
"""From whatever the graph takes as input to the user's request in it."""

_KEYS = ("task", "question", "query", "request", "prompt", "input", "goal", "topic", "instruction")
_USER_ROLES = {"user", "human"}
_TEXT_BLOCKS = {"text", "input_text"}
_HEAD, _TAIL = 12_000, 4_000

_TAG = re.compile(r"<(system-reminder|metadata|envelope)(?: [^<>]{0,200})?>", re.IGNORECASE)
_METADATA = "(untrusted metadata):"
_FENCE = "```"
# A bracket in front of the request: with a date and a clock time in it, whatever else it says
# ("[Chat +49 2026-03-03 09:12]"), or with nothing else than a date or a time ("[09:12]").
_STAMP = re.compile(
    r"""\s*\[(?:
        [^\]\n]{0,80}?\d{4}-\d\d-\d\d[T\ ]\d{1,2}:\d\d[^\]\n]{0,80}
        | (?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\ )?[\d:./\-+TZ\ ]{4,40}
          (?:\ ?(?:utc|gmt|am|pm))?
    )\]\s*""",
    re.VERBOSE | re.IGNORECASE,
)


def strip_envelope(text: str) -> str:
    """The request without the metadata that a channel or client wrapped around it."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    bare = _without_metadata(_without_tags(text)).strip()
    while stamp := _STAMP.match(bare):
        bare = bare[stamp.end() :]
    return bare


def task_of_input(value: object) -> str | None:
    """The user's request in a graph's input, or None when the input holds no such text."""
    match value:
        case None | Command():
            return None
        case str():
            return strip_envelope(value) or None
        case BaseMessage():
            return task_of_messages([value])
        case BaseModel():
            return _task_of_mapping(dict(value))
        case Mapping():
            return _task_of_mapping(value)
        case Sequence():
            return task_of_messages(value)
        case _ if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            return _task_of_mapping({f.name: getattr(value, f.name) for f in fields})
        case _ if hasattr(value, "__dict__"):
            return _task_of_mapping(vars(value))
        case _:
            return None


def task_of_messages(messages: Iterable[object]) -> str | None:
    """The text of the last message that a user wrote; one that is all envelope is passed over."""
    for message in reversed(list(messages)):
        text = _user_text(message)
        if text and (task := strip_envelope(text)):
            return task
    return None


def _task_of_mapping(value: Mapping[str, object]) -> str | None:
    messages = value.get("messages")
    if isinstance(messages, str | BaseMessage | Mapping):
        messages = [messages]
    if isinstance(messages, Sequence) and (task := task_of_messages(messages)):
        return task
    for key in _KEYS:
        if isinstance(found := value.get(key), str) and (task := strip_envelope(found)):
            return task
    texts = [v for v in value.values() if isinstance(v, str) and v.strip()]
    return strip_envelope(texts[0]) or None if len(texts) == 1 else None


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
    parts = [part if isinstance(part, str) else _block_text(part) for part in content]
    return "\n".join(part for part in parts if part) or None


def _block_text(block: object) -> str | None:
    if not isinstance(block, Mapping) or block.get("type") not in _TEXT_BLOCKS:
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def _without_tags(text: str) -> str:
    """Without `<metadata>…</metadata>` and the like; a tag that is not closed is only text."""
    kept: list[str] = []
    unclosed: set[str] = set()
    lower, end = text.lower(), 0
    for tag in _TAG.finditer(text):
        name = tag[1].lower()
        if tag.start() < end or name in unclosed:
            continue
        close = lower.find(f"</{name}>", tag.end())
        if close < 0:
            unclosed.add(name)
            continue
        kept.append(text[end : tag.start()])
        end = close + len(name) + 3
    return "".join([*kept, text[end:]])


def _without_metadata(text: str) -> str:
    """Without blocks like "Sender (untrusted metadata):" and the fenced JSON that follows."""
    kept: list[str] = []
    end = 0
    while (mark := text.find(_METADATA, end)) >= 0:
        opening = _opening_fence(text, mark + len(_METADATA))
        close = -1 if opening < 0 else text.find(_FENCE, opening + len(_FENCE))
        if close < 0:
            break
        kept.append(text[end : max(end, text.rfind("\n", 0, mark) + 1)])
        end = close + len(_FENCE)
    return "".join([*kept, text[end:]])


def _opening_fence(text: str, at: int) -> int:
    """Where the fence begins that follows after white space only; -1 when there is none."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at if text.startswith(_FENCE, at) else -1
