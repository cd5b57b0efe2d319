"""The values that the parts of MetaClaw hand to one another.

They are plain frozen dataclasses so that every part can build and compare them without knowing
where they are stored. JSON-shaped fields hold what `json.dumps` accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

__all__ = [
    "TOKENS_KEY",
    "Json",
    "ModelCall",
    "Outcome",
    "RetrievalState",
    "Retrieved",
    "Role",
    "Skill",
    "SkillHit",
    "Span",
    "ToolCall",
    "Trajectory",
    "Verdict",
    "VerdictSource",
]

TOKENS_KEY = "metaclaw_tokens"
"""Where a model leaves token ids and logprobs, in its message's `response_metadata`, for capture:
`{"prompt": [id…], "completion": [id…], "logprobs": [float…]}`."""

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None

Outcome: TypeAlias = Literal["ok", "failed", "interrupted", "cancelled"]
"""How a run ended. Only `ok` and `failed` runs are ever judged."""

Role: TypeAlias = Literal["unjudged", "query", "support", "consumed", "stale", "trained"]
"""What a trajectory may be used for; moves between roles are ledger transactions."""

RetrievalState: TypeAlias = Literal["none", "hit", "empty", "missed", "failed"]
"""none: never asked; hit/empty: answered in time; missed: past the deadline; failed: raised."""

VerdictSource: TypeAlias = Literal["human", "verifier", "judge", "run"]
"""Who says so. `run` is the run itself: it raised, or reached its recursion limit."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One version of one skill of a namespace. `version` is 0 before it is stored."""

    name: str
    description: str
    body: str
    version: int = 0
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """Other front-matter fields (license, compatibility, metadata, allowed-tools), kept as read."""

    @property
    def id(self) -> str:
        """`name@version`: unique in the namespace, and the id in Chroma."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class SkillHit:
    """A skill that retrieval found for a task."""

    id: str
    score: float
    injected: bool
    """False when the token budget was spent before this one, or it was withheld."""
    withheld: bool = False
    """True when it is on probation and this run was drawn to go without it."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What retrieval answers for one task: one generation, its hits, the text to inject."""

    generation: int
    hits: tuple[SkillHit, ...]
    block: str
    """The prompt text; empty when nothing is injected."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a chat model: an assistant step of the trajectory.

    `prompt` and `response` are indexes into the trajectory's `messages`.
    """

    prompt: tuple[int, ...]
    response: int | None
    model: str | None
    started_at: datetime
    ended_at: datetime
    error: str | None = None
    usage: Mapping[str, Json] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One execution of a tool."""

    name: str
    call_id: str | None
    input: Json
    output: Json
    error: str | None
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """One run inside the trajectory, in LangChain's tree of runs, for the trace that people read.

    `ref` is the index of the model call or tool call that this span is; chains carry their own
    input and output instead.
    """

    id: str
    parent: str | None
    kind: Literal["chain", "model", "tool"]
    name: str
    started_at: datetime
    ended_at: datetime
    error: str | None = None
    ref: int | None = None
    input: Json = None
    output: Json = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One run of the user's graph, as it was sampled."""

    id: str
    namespace: str
    thread_id: str | None
    task: str | None
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    error: str | None
    generation: int | None
    """Stamped when skills were retrieved; None when retrieval never answered."""
    adapter: str | None
    """The adapter in force when it was sampled; None for the bare model."""
    retrieval: RetrievalState
    skills: tuple[SkillHit, ...]
    input: Json
    output: Json
    messages: tuple[Mapping[str, Json], ...] = ()
    calls: tuple[ModelCall, ...] = ()
    tools: tuple[ToolCall, ...] = ()
    spans: tuple[Span, ...] = ()
    run_id: str | None = None
    """LangChain's id of the root run, as the caller may have set it in the config."""
    trace_id: str | None = None
    role: Role = "unjudged"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A reward in [-1, 1], why, and who says so."""

    reward: float
    source: VerdictSource
    reason: str = ""
    author: str | None = None
    step_scores: tuple[float | None, ...] | None = None
    """One for each of the trajectory's model calls; None for a step that nobody scored."""
    at: datetime | None = None
    origin: str | None = None
    """Where it was read from, for instance an MLflow assessment: the same one counts once."""
