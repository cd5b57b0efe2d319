"""Values made comparable between two runs: ids numbered by first appearance, times blanked.

Numbering instead of blanking keeps the structure: two places that shared an id must share it in
both runs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_VERSION = re.compile(r"\b0{20,}\d+\.\d+(\.\d+)?")
_TIMINGS = {"created_at", "updated_at", "ts", "timestamp", "latency", "duration"}


def comparable(value: Any, *, ordered: bool = True) -> Any:
    """The value of one run, ready to be compared with another's.

    Parallel nodes end in any order: with `ordered=False` lists are sorted, and ids, whose numbers
    depend on the order, are blanked.
    """
    normal = _Normaliser(numbered=ordered)(value)
    return normal if ordered else _sorted(normal)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return value


class _Normaliser:
    """One per run."""

    def __init__(self, *, numbered: bool) -> None:
        self._numbered = numbered
        self._ids: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, BaseMessage):
            return [type(value).__name__, self(value.model_dump())]
        if isinstance(value, BaseModel):
            return [type(value).__name__, self(dict(value))]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            return [type(value).__name__, self(fields)]
        if isinstance(value, Mapping):
            if "tool_call_id" in value:
                # A bare graph too saves a tool's message with or without its id, as it happens.
                value = {**value, "id": "tool"}
            return {
                self.text(str(k)): "<time>" if k in _TIMINGS else self(v) for k, v in value.items()
            }
        if hasattr(value, "_asdict"):
            return [type(value).__name__, self(value._asdict())]
        if isinstance(value, list | tuple | set | frozenset):
            return [self(item) for item in value]
        return self.text(repr(value))

    def text(self, text: str) -> str:
        text = _TIME.sub("<time>", text)
        text = _ADDRESS.sub("<address>", text)
        text = _VERSION.sub("<version>", text)
        if not self._numbered:
            return _ID.sub("<id>", text)
        return _ID.sub(lambda m: self._ids.setdefault(m[0], f"<id {len(self._ids)}>"), text)
