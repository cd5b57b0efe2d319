"""Replays a stored trajectory into MLflow's own LangChain tracer, with the times of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage, messages_from_dict
from langchain_core.outputs import ChatGeneration, LLMResult
from mlflow.entities import LiveSpan, SpanStatus, SpanStatusCode
from mlflow.langchain.langchain_tracer import MlflowLangchainTracer
from mlflow.tracing.constant import TraceMetadataKey
from mlflow.tracing.fluent import start_span_no_context
from mlflow.tracing.utils.token import SpanWithToken

from metaclaw_langgraph.types import Json, ModelCall, Span, Trajectory

__all__ = ["readable", "replay", "trace_tags"]

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_SHOWN = ("name", "tool_calls", "tool_call_id")


def replay(trajectory: Trajectory, experiment_id: str) -> str:
    """Write the trajectory as a trace; its id. The spans are exported when the root ends."""
    tracer = _ReplayTracer(trajectory, experiment_id)
    children: dict[str | None, list[Span]] = {}
    for span in trajectory.spans:
        children.setdefault(span.parent, []).append(span)
    # A run has one root; whatever lost its parent is hung below it.
    root, *orphans = children.pop(None)
    children.setdefault(root.id, []).extend(orphans)
    _play(tracer, trajectory, root, children)
    assert tracer.trace_id is not None
    return tracer.trace_id


def trace_tags(trajectory: Trajectory) -> dict[str, str]:
    """What the trace says of the trajectory, searchable in MLflow."""
    injected = ",".join(hit.id for hit in trajectory.skills if hit.injected)
    return {
        "metaclaw.trajectory": trajectory.id,
        "metaclaw.namespace": trajectory.namespace,
        "metaclaw.outcome": trajectory.outcome,
        "metaclaw.generation": "" if trajectory.generation is None else str(trajectory.generation),
        "metaclaw.adapter": trajectory.adapter or "",
        "metaclaw.skills": injected,
        "metaclaw.retrieval": trajectory.retrieval,
    }


class _ReplayTracer(MlflowLangchainTracer):
    """MLflow's tracer, told when things happened and where the trace belongs."""

    def __init__(self, trajectory: Trajectory, experiment_id: str) -> None:
        super().__init__()
        self.trace_id: str | None = None
        self._experiment_id = experiment_id
        self._tags = trace_tags(trajectory)
        self._metadata = (
            {TraceMetadataKey.TRACE_SESSION: trajectory.thread_id} if trajectory.thread_id else {}
        )
        self._times = {
            UUID(span.id): (_ns(span.started_at), _ns(span.ended_at)) for span in trajectory.spans
        }

    def _start_span(
        self,
        span_name: str,
        parent_run_id: UUID | None,
        span_type: str,
        run_id: UUID,
        inputs: str | dict[str, Any] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> LiveSpan:
        root = parent_run_id is None
        span = start_span_no_context(
            name=span_name,
            span_type=span_type,
            parent_span=self._get_span_by_run_id(parent_run_id) if parent_run_id else None,
            inputs=inputs,
            attributes=attributes,
            tags=self._tags if root else None,
            metadata=self._metadata if root else None,
            experiment_id=self._experiment_id if root else None,
            start_time_ns=self._times[run_id][0],
        )
        self._run_span_mapping[str(run_id)] = SpanWithToken(span, None)
        self.trace_id = self.trace_id or span.trace_id
        return span

    def _end_span(
        self,
        run_id: UUID,
        span: LiveSpan,
        outputs: Any = None,
        attributes: dict[str, Any] | None = None,
        status: SpanStatus | None = None,
    ) -> None:
        self._run_span_mapping.pop(str(run_id), None)
        span.end(
            outputs=outputs,
            attributes=attributes,
            status=status or SpanStatus(SpanStatusCode.OK),
            end_time_ns=self._times[run_id][1],
        )


def _play(
    tracer: MlflowLangchainTracer,
    trajectory: Trajectory,
    span: Span,
    children: Mapping[str | None, list[Span]],
    parent: UUID | None = None,
) -> None:
    run_id = UUID(span.id)
    _start(tracer, trajectory, span, run_id, parent)
    for child in children.get(span.id, ()):
        _play(tracer, trajectory, child, children, run_id)
    _end(tracer, trajectory, span, run_id)


def _start(
    tracer: MlflowLangchainTracer,
    trajectory: Trajectory,
    span: Span,
    run_id: UUID,
    parent: UUID | None,
) -> None:
    ids: dict[str, Any] = {"run_id": run_id, "parent_run_id": parent, "name": span.name}
    if span.kind == "model":
        call = _call(trajectory, span)
        prompt = [_message(trajectory, index) for index in call.prompt]
        tracer.on_chat_model_start({}, [prompt], invocation_params={"model": call.model}, **ids)
    elif span.kind == "tool":
        assert span.ref is not None
        tracer.on_tool_start({}, repr(trajectory.tools[span.ref].input), **ids)
    else:
        tracer.on_chain_start({}, readable(span.input if parent else trajectory.input), **ids)


def _end(tracer: MlflowLangchainTracer, trajectory: Trajectory, span: Span, run_id: UUID) -> None:
    error = _exception(span.error)
    if span.kind == "model":
        call = _call(trajectory, span)
        if error is not None:
            tracer.on_llm_error(error, run_id=run_id)
        else:
            tracer.on_llm_end(_result(trajectory, call), run_id=run_id)
    elif span.kind == "tool":
        assert span.ref is not None
        if error is not None:
            tracer.on_tool_error(error, run_id=run_id)
        else:
            tracer.on_tool_end(readable(trajectory.tools[span.ref].output), run_id=run_id)
    elif error is not None and not (span.parent is None and trajectory.outcome != "failed"):
        tracer.on_chain_error(error, run_id=run_id)
    else:
        output = readable(span.output if span.parent else trajectory.output)
        tracer.on_chain_end(output, run_id=run_id)  # type: ignore[arg-type]


def readable(value: Json) -> Json:
    """Messages in the form that MLflow shows as a chat: role, content, tool calls."""
    match value:
        case {"type": str(kind), "data": Mapping() as data, **others} if not others:
            kept = {key: readable(data[key]) for key in _SHOWN if data.get(key)}
            return {"role": _ROLES.get(kind, kind), "content": data.get("content"), **kept}
        case {"name": str(name), "args": args, "id": call_id, "type": "tool_call"}:
            function = {"name": name, "arguments": json.dumps(args)}
            return {"id": call_id, "type": "function", "function": function}
        case [str(role), str(content)] if role in _ROLES or role in _ROLES.values():
            return {"role": _ROLES.get(role, role), "content": content}
        case Mapping():
            return {key: readable(item) for key, item in value.items()}
        case list():
            return [readable(item) for item in value]
        case _:
            return value


def _call(trajectory: Trajectory, span: Span) -> ModelCall:
    assert span.ref is not None
    return trajectory.calls[span.ref]


def _message(trajectory: Trajectory, index: int) -> BaseMessage:
    return messages_from_dict([dict(trajectory.messages[index])])[0]


def _result(trajectory: Trajectory, call: ModelCall) -> LLMResult:
    if call.response is None:
        return LLMResult(generations=[[]])
    message = _message(trajectory, call.response)
    return LLMResult(generations=[[ChatGeneration(message=message)]])


def _exception(error: str | None) -> BaseException | None:
    """The error again as an exception of the same name, as the tracer wants one."""
    if error is None:
        return None
    name, _, text = error.partition(": ")
    return type(name if name.isidentifier() else "Error", (Exception,), {})(text)  # type: ignore[no-any-return]


def _ns(time: datetime) -> int:
    return round(time.timestamp() * 1e6) * 1000
