"""Our values as plain JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime

from metaclaw_langgraph.types import Json

__all__ = ["plain", "plain_table"]


def plain(value: object) -> Json:
    """Dataclasses become objects, tuples arrays, times ISO texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain_table(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def plain_table(value: object) -> dict[str, Json]:
    """A dataclass as a JSON object."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} is no dataclass")
    return {name: plain(inner) for name, inner in asdict(value).items()}
