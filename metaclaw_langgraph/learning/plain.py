"""Any value of a user's graph as JSON of a bounded size.

A state repeats its messages at every node. Each message object is turned into JSON once for a
whole trajectory, and the same JSON object is used in all places.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, message_to_dict
from pydantic import BaseModel

from metaclaw_langgraph.types import Json

__all__ = ["SPAN_LIMIT", "VALUE_LIMIT", "Plain"]

VALUE_LIMIT = 200_000
"""Characters of one input or output that are kept; longer text is cut, and says so."""
SPAN_LIMIT = 8_000
"""The same for the input or output of one node, which repeats most of the messages."""
_DEPTH = 12
_LONGEST_SECRET = 8_000
_NUMBER = 8
"""Characters that a number counts for: a list of a million must not pass the limit either."""


class Plain:
    """Turns the values of one trajectory into JSON."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self.redact = redact
        # The message is kept as well: an id is only its own while the object lives.
        self._messages: dict[int, tuple[BaseMessage, Json, int]] = {}

    def value(self, value: Any, limit: int = VALUE_LIMIT) -> Json:
        """The value in about `limit` characters at most."""
        return _Writer(limit, self).write(value, 0)

    def message(self, message: BaseMessage) -> tuple[Json, int]:
        """A whole message and how many characters it counts for."""
        known = self._messages.get(id(message))
        if known is None:
            writer = _Writer(VALUE_LIMIT, self)
            value = writer.mapping(message_to_dict(message), 1)
            known = self._messages[id(message)] = (message, value, VALUE_LIMIT - writer.left)
        return known[1], known[2]


class _Writer:
    def __init__(self, limit: int, plain: Plain) -> None:
        self.left = limit
        self._plain = plain

    def write(self, value: Any, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind is int or kind is bool or kind is float:
            self.left -= _NUMBER
            return value if kind is not float or math.isfinite(value) else str(value)
        if depth >= _DEPTH or self.left <= 0:
            return "…"
        if isinstance(value, BaseMessage):
            return self._message(value, depth)
        return self._structure(value, depth + 1)

    def mapping(self, value: Mapping[Any, Any], depth: int) -> Json:
        # A list first: the user's program may go on changing what it gave to the graph.
        return {_shown(key): self.write(item, depth) for key, item in list(value.items())}

    def _message(self, message: BaseMessage, depth: int) -> Json:
        value, size = self._plain.message(message)
        if size <= self.left:
            self.left -= size
            return value
        return self.mapping(message_to_dict(message), depth + 1)

    def _structure(self, value: Any, depth: int) -> Json:
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, str):
            return self._text(str(value))
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if isinstance(value, Sequence | set | frozenset):
            return self._items(value, depth)
        if isinstance(value, BaseModel):
            return self.mapping(dict(value), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return self.mapping({f.name: getattr(value, f.name) for f in fields}, depth)
        return self._text(_shown(value))

    def _items(self, value: Collection[Any], depth: int) -> Json:
        items: list[Json] = []
        for item in list(value):
            if self.left <= 0:
                items.append(f"… [{len(value) - len(items)} more items]")
                break
            items.append(self.write(item, depth))
        return items

    def _text(self, text: str) -> str:
        room = max(0, self.left)
        self.left -= min(room, len(text))
        if len(text) <= room:
            return text
        # Redacted before it is cut: half a secret would no longer look like one.
        kept = self._plain.redact(text[: room + _LONGEST_SECRET])[:room]
        return f"{kept}… [{len(text) - room} more characters]"


def _shown(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # the user's object; its failure must not cost the record
        return f"<{type(value).__name__}, which raised {type(error).__name__}>"
