"""From a finished Run to a Trajectory: the copying that the caller did not wait for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from metaclaw_langgraph.learning.plain import SPAN_LIMIT, Plain
from metaclaw_langgraph.types import Json, ModelCall, SkillHit, Span, ToolCall, Trajectory
from metaclaw_langgraph.wrapping.run import OpenSpan, Run

__all__ = ["trajectory_of"]


def trajectory_of(run: Run, redact: Callable[[str], str]) -> Trajectory:
    """Everything that the run did, as plain values; text that is cut is redacted before."""
    plain = Plain(redact)
    book = _MessageBook(plain)
    calls: list[ModelCall] = []
    tools: list[ToolCall] = []
    spans: list[Span] = []
    for span in list(run.spans.values()):
        ref: int | None = None
        if span.kind == "model":
            ref = len(calls)
            calls.append(_model_call(span, run, book))
        elif span.kind == "tool":
            ref = len(tools)
            tools.append(_tool_call(span, run, plain))
        spans.append(_span(span, run, ref, plain))
    retrieved = run.retrieved
    return Trajectory(
        id=run.id,
        namespace=run.host.namespace,
        thread_id=run.thread_id,
        task=run.task,
        started_at=_time(run.started_ns),
        ended_at=_time(run.ended_ns or run.started_ns),
        outcome=run.outcome or "cancelled",
        error=run.error,
        generation=retrieved.generation if retrieved else None,
        adapter=None,
        retrieval=run.retrieval,
        skills=_skills(run),
        input=plain.value(run.input),
        output=plain.value(run.output),
        messages=tuple(book.messages),
        calls=tuple(calls),
        tools=tuple(tools),
        spans=tuple(spans),
        run_id=str(run.root_id) if run.root_id else None,
    )


class _MessageBook:
    """The run's messages, each once: the prompts of later calls repeat the earlier ones."""

    def __init__(self, plain: Plain) -> None:
        self.messages: list[Mapping[str, Json]] = []
        self._plain = plain
        self._by_text: dict[str, int] = {}
        self._by_object: dict[int, int] = {}

    def index(self, message: BaseMessage) -> int:
        if id(message) not in self._by_object:
            self._by_object[id(message)] = self._add(message)
        return self._by_object[id(message)]

    def _add(self, message: BaseMessage) -> int:
        value = self._plain.value(message)
        assert isinstance(value, Mapping)
        text = json.dumps(value, sort_keys=True)
        if text not in self._by_text:
            self._by_text[text] = len(self.messages)
            self.messages.append(value)
        return self._by_text[text]


def _model_call(span: OpenSpan, run: Run, book: _MessageBook) -> ModelCall:
    prompt = tuple(book.index(m) for m in span.input if isinstance(m, BaseMessage))
    output = AIMessage(span.output) if isinstance(span.output, str) else span.output
    answer = output if isinstance(output, BaseMessage) else None
    tokens = span.tokens or _provider_tokens(answer)
    usage = getattr(answer, "usage_metadata", None)
    return ModelCall(
        prompt=prompt,
        response=None if answer is None else book.index(answer),
        model=span.model,
        started_at=_time(span.started_ns),
        ended_at=_end(span, run),
        error=span.error,
        usage=dict(usage) if usage else None,
        prompt_token_ids=_numbers(tokens.get("prompt"), int),
        token_ids=_numbers(tokens.get("completion"), int),
        logprobs=_numbers(tokens.get("logprobs"), float),
    )


def _provider_tokens(answer: BaseMessage | None) -> dict[str, Any]:
    """Logprobs in OpenAI's form; token ids where the server was asked to name tokens by id."""
    logprobs = (answer.response_metadata if answer else {}).get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not content:
        return {}
    names = [str(entry.get("token", "")) for entry in content]
    ids = [name.removeprefix("token_id:") for name in names if name.startswith("token_id:")]
    return {
        "completion": ids if len(ids) == len(names) else None,
        "logprobs": [entry.get("logprob") for entry in content],
    }


def _tool_call(span: OpenSpan, run: Run, plain: Plain) -> ToolCall:
    call_id = span.call_id or getattr(span.output, "tool_call_id", None)
    return ToolCall(
        name=span.name,
        call_id=call_id,
        input=plain.value(span.input),
        output=plain.value(span.output),
        error=span.error,
        started_at=_time(span.started_ns),
        ended_at=_end(span, run),
    )


def _span(span: OpenSpan, run: Run, ref: int | None, plain: Plain) -> Span:
    chain = span.kind == "chain"
    return Span(
        id=str(span.id),
        parent=str(span.parent) if span.parent in run.spans else None,
        kind=span.kind,
        name=span.name,
        started_at=_time(span.started_ns),
        ended_at=_end(span, run),
        error=span.error,
        ref=ref,
        input=plain.value(span.input, SPAN_LIMIT) if chain else None,
        output=plain.value(span.output, SPAN_LIMIT) if chain else None,
    )


def _skills(run: Run) -> tuple[SkillHit, ...]:
    """The hits; a run that called no model was given none and had none withheld."""
    hits = run.retrieved.hits if run.retrieved else ()
    if run.asked:
        return hits
    return tuple(dataclasses.replace(hit, injected=False, withheld=False) for hit in hits)


def _numbers(values: Sequence[Any] | None, kind: Any) -> tuple[Any, ...] | None:
    return tuple(kind(value) for value in values) if values else None


def _end(span: OpenSpan, run: Run) -> datetime:
    return _time(span.ended_ns or run.ended_ns or span.started_ns)


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
