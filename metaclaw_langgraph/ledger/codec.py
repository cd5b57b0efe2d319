"""Trajectories as rows, and back.

What summaries show goes to columns; the rest is JSON in one compressed `body`. Redaction happens
here, on the way in. Where it changed a message that a model call saw or gave, the call's token
ids go too: they would spell out what was redacted, and no longer match the text.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import RowMapping

from metaclaw_langgraph.ledger.store import clean, dump, require_namespace
from metaclaw_langgraph.ledger.values import TrajectorySummary
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Json, ModelCall, SkillHit, Span, ToolCall, Trajectory

__all__ = ["from_row", "hits_of", "summary", "to_row"]

_TOKENS = ("prompt_token_ids", "token_ids", "logprobs")
# The fastest level: chat text already shrinks to a third, and higher ones gain little more.
_LEVEL = 1


def to_row(trajectory: Trajectory, trace: str, redactor: Redactor) -> dict[str, object]:
    """The row of a trajectory, redacted."""
    doc = cast("dict[str, Any]", redactor.json(_document(trajectory)))
    _put_tokens(doc, trajectory)
    columns = {key: _text(doc.pop(key)) for key in ("task", "error", "thread_id")}
    return {
        "namespace": require_namespace(trajectory.namespace),
        "id": trajectory.id,
        "run_id": trajectory.run_id,
        "started_at": trajectory.started_at,
        "ended_at": trajectory.ended_at,
        "outcome": trajectory.outcome,
        "generation": trajectory.generation,
        "adapter": trajectory.adapter,
        "retrieval": trajectory.retrieval,
        "skills": dump([_hit(hit) for hit in trajectory.skills]),
        "n_calls": len(trajectory.calls),
        "n_tools": len(trajectory.tools),
        "role": trajectory.role,
        "trace_id": trajectory.trace_id,
        "trace_state": "done" if trajectory.trace_id else trace,
        "body": zlib.compress(json.dumps(doc, separators=(",", ":")).encode(), _LEVEL),
        **columns,
    }


def from_row(row: RowMapping) -> Trajectory:
    """The trajectory of a row."""
    body = json.loads(zlib.decompress(row["body"]))
    return Trajectory(
        id=row["id"],
        namespace=row["namespace"],
        thread_id=row["thread_id"],
        task=row["task"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        outcome=row["outcome"],
        error=row["error"],
        generation=row["generation"],
        adapter=row["adapter"],
        retrieval=row["retrieval"],
        skills=hits_of(row["skills"]),
        input=body["input"],
        output=body["output"],
        messages=tuple(body["messages"]),
        calls=tuple(_call(call) for call in body["calls"]),
        tools=tuple(_tool(tool) for tool in body["tools"]),
        spans=tuple(_span(span) for span in body["spans"]),
        run_id=row["run_id"],
        trace_id=row["trace_id"],
        role=row["role"],
    )


def summary(row: RowMapping) -> TrajectorySummary:
    """What a list shows; never touches the body."""
    plain = {key: row[key] for key in _SUMMARY}
    return TrajectorySummary(skills=hits_of(row["skills"]), **plain)


_SUMMARY = (
    *("id", "started_at", "ended_at", "task", "outcome", "role"),
    *("generation", "n_calls", "n_tools", "reward", "trace_id"),
)


def _document(trajectory: Trajectory) -> dict[str, Json]:
    """All text that a run brought along. Token ids stay out: nothing to redact, slow to walk."""
    return {
        "task": trajectory.task,
        "error": trajectory.error,
        "thread_id": trajectory.thread_id,
        "input": trajectory.input,
        "output": trajectory.output,
        "messages": list(trajectory.messages),
        "calls": [_call_document(call) for call in trajectory.calls],
        "tools": [_tool_document(tool) for tool in trajectory.tools],
        "spans": [_span_document(span) for span in trajectory.spans],
    }


def _call_document(call: ModelCall) -> dict[str, Json]:
    return {
        "prompt": list(call.prompt),
        "response": call.response,
        "model": call.model,
        "started_at": call.started_at.isoformat(),
        "ended_at": call.ended_at.isoformat(),
        "error": call.error,
        "usage": call.usage,
    }


def _tool_document(tool: ToolCall) -> dict[str, Json]:
    return {
        "name": tool.name,
        "call_id": tool.call_id,
        "input": tool.input,
        "output": tool.output,
        "error": tool.error,
        "started_at": tool.started_at.isoformat(),
        "ended_at": tool.ended_at.isoformat(),
    }


def _span_document(span: Span) -> dict[str, Json]:
    return {
        "id": span.id,
        "parent": span.parent,
        "kind": span.kind,
        "name": span.name,
        "started_at": span.started_at.isoformat(),
        "ended_at": span.ended_at.isoformat(),
        "error": span.error,
        "ref": span.ref,
        "input": span.input,
        "output": span.output,
    }


def _put_tokens(doc: Mapping[str, Any], trajectory: Trajectory) -> None:
    kept = [_same(new, old) for new, old in zip(doc["messages"], trajectory.messages, strict=True)]
    for call, stored in zip(trajectory.calls, doc["calls"], strict=True):
        seen = call.prompt if call.response is None else (*call.prompt, call.response)
        if all(kept[index] for index in seen):
            stored.update({key: getattr(call, key) for key in _TOKENS})


def _same(new: Json, old: Json) -> bool:
    # Tuples have become lists; only then is the slower look needed.
    return new == old or json.dumps(new) == json.dumps(old, default=str)


def _text(value: str | None) -> str | None:
    return None if value is None else clean(value)


def _hit(hit: SkillHit) -> list[Json]:
    plain: list[Json] = [hit.id, hit.score, hit.injected]
    return [*plain, True] if hit.withheld else plain


def hits_of(text: str) -> tuple[SkillHit, ...]:
    """The skills of a row's `skills` column."""
    return tuple(SkillHit(*hit) for hit in json.loads(text))


def _call(doc: dict[str, Any]) -> ModelCall:
    tokens = {key: _tuple(doc.pop(key, None)) for key in _TOKENS}
    return ModelCall(**{**doc, **_times(doc), **tokens, "prompt": tuple(doc["prompt"])})


def _tool(doc: dict[str, Any]) -> ToolCall:
    return ToolCall(**{**doc, **_times(doc)})


def _span(doc: dict[str, Any]) -> Span:
    return Span(**{**doc, **_times(doc)})


def _times(doc: Mapping[str, Any]) -> dict[str, datetime]:
    return {
        key: datetime.fromisoformat(doc[key]).astimezone(UTC) for key in ("started_at", "ended_at")
    }


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
