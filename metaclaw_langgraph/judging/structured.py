"""Asks a chat model for an answer of a given form, whatever the model can do.

Models that have structured output are asked through it. The others, and servers that refuse it,
are asked plainly: the prompt says which JSON is wanted either way, and the text is read tolerantly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ValidationError

from metaclaw_langgraph.judging.found_json import json_values

__all__ = ["Reply", "ask", "reply"]

S = TypeVar("S", bound=BaseModel)

_REFUSED = (400, 404, 405, 415, 422, 501)
"""HTTP answers of servers that do not know tools or response formats."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[S]):
    """What a model answered."""

    parsed: S | None
    """The structured answer, where the model gave one that fits."""
    text: str
    """All that it said, the arguments of its tool calls included."""


def ask(model: BaseChatModel, prompt: Sequence[BaseMessage], schema: type[S]) -> S | None:
    """The model's answer in the form of the schema, or None when it cannot be read as that."""
    answer = reply(model, prompt, schema)
    return _read(answer.text, schema) if answer.parsed is None else answer.parsed


def reply(model: BaseChatModel, prompt: Sequence[BaseMessage], schema: type[S]) -> Reply[S]:
    """The model's answer, structured where it can be. What the model raises is raised."""
    chain = _structured(model, schema)
    if chain is not None:
        try:
            return _reply(chain.invoke(list(prompt)), schema)
        except Exception as error:
            if not _refused(error):
                raise
    return _reply(model.invoke(list(prompt)), schema)


def _structured(model: BaseChatModel, schema: type[S]) -> Runnable[Any, Any] | None:
    try:
        return model.with_structured_output(schema, include_raw=True)
    except (NotImplementedError, TypeError, ValueError):
        return None


def _refused(error: Exception) -> bool:
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return isinstance(error, NotImplementedError) or status in _REFUSED


def _reply(result: object, schema: type[S]) -> Reply[S]:
    raw = result.get("raw") if isinstance(result, Mapping) else result
    parsed = result.get("parsed") if isinstance(result, Mapping) else result
    text = _text(raw) if isinstance(raw, BaseMessage) else ""
    return Reply(parsed if isinstance(parsed, schema) else None, text)


def _text(message: BaseMessage) -> str:
    parts = [str(message.text)]
    if isinstance(message, AIMessage):
        parts += [json.dumps(call["args"], default=str) for call in message.tool_calls]
        parts += [call["args"] or "" for call in message.invalid_tool_calls]
    return "\n".join(part for part in parts if part)


def _read(text: str, schema: type[S]) -> S | None:
    found = sorted(json_values(text), key=lambda one: one.start - one.end)
    for one in found:
        try:
            return schema.model_validate(_fitted(one.value, schema))
        except (ValidationError, RecursionError):
            continue
    return None


def _fitted(value: object, schema: type[BaseModel]) -> object:
    """A bare list, where the schema is a table with one list in it."""
    fields = list(schema.model_fields)
    return {fields[0]: value} if isinstance(value, list) and len(fields) == 1 else value
