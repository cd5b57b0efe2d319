"""What there is and what is broken: the answer of `metaclaw status` and of `status()` in an app.

Each part is asked on its own, and says its own error: a broken ledger must not hide what waits in
the spool, nor a broken namespace its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar

from metaclaw_langgraph._json import plain_table
from metaclaw_langgraph._settings import hide_secrets
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.ledger import Counts, Incident, IncidentRecord, JudgingCounts, Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Json

__all__ = ["JudgeAgreement", "NamespaceStatus", "Problem", "Running", "Status", "gather_status"]

T = TypeVar("T")

_MOST_DRAFTS = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """A part that does not work now."""

    part: str
    message: str


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """How far the judge agrees with people and verifiers, over the runs that both judged."""

    n: int
    observed: float | None
    """The share on which they agree."""
    kappa: float | None
    """1: always, 0: as often as by chance, None: chance alone agrees always."""


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """One namespace. None means that the ledger could not say."""

    namespace: str
    generation: int | None
    skills: int | None
    """Members of the current generation."""
    trajectories: Counts | None
    incidents: tuple[IncidentRecord, ...]
    """What went wrong so far, the latest first; the user's runs went on."""
    incidents_known: bool = True
    """False: the ledger did not answer, so there may be more."""
    support_waiting: int | None = None
    """Failures that nothing was learnt from yet."""
    drafts_waiting: int | None = None
    """Drafts that wait for a person's review."""
    on_probation: int | None = None
    """Live skills that have to prove themselves yet."""
    judging: JudgingCounts | None = None
    """Runs without a verdict that are young enough to be judged."""
    agreement: JudgeAgreement | None = None
    """None also when nothing was judged twice."""

    @property
    def traces_pending(self) -> int:
        """Trajectories that are still to be shown in MLflow."""
        return self.trajectories.trace.get("pending", 0) if self.trajectories else 0


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that `metaclaw status` shows."""

    home: str
    ledger: str
    skills_index: str
    mlflow: str
    tracing: bool
    namespaces: tuple[NamespaceStatus, ...]
    waiting: int = 0
    """Finished runs that this process has not stored yet."""
    spool_waiting: int = 0
    """Files of finished runs on their way to the ledger."""
    spool_unreadable: int = 0
    """Files that were set aside for a person to look at."""
    problems: tuple[Problem, ...] = field(default=())

    @property
    def working(self) -> bool:
        """Whether every part answers now. Past incidents do not count."""
        return not self.problems

    def to_json(self) -> dict[str, Json]:
        """The same as plain JSON values."""
        return {"working": self.working, **plain_table(self)}


class Running(Protocol):
    """What a live runtime knows and the ledger does not yet."""

    @property
    def namespace(self) -> str: ...

    @property
    def waiting(self) -> int: ...

    @property
    def incidents(self) -> Incidents: ...


def gather_status(
    config: MetaClawConfig,
    ledger: Ledger | None = None,
    *,
    namespace: str | None = None,
    runtime: Running | None = None,
) -> Status:
    """Ask every part; never raises because one of them is broken.

    Without a ledger, the configured one is opened for the question. `namespace` limits the answer
    to one; so does `runtime`, to its own, and adds what only that process knows.
    """
    namespace = runtime.namespace if runtime else namespace
    gathering = _Gathering()
    opened = ledger or gathering.ask("ledger", lambda: _open(config), None)
    try:
        names = _names(gathering, config, opened, namespace)
        unsaved = runtime.incidents.unsaved() if runtime else []
        since = datetime.now(UTC) - timedelta(hours=config.judging.window)
        namespaces = tuple(_namespace(gathering, opened, name, unsaved, since) for name in names)
    finally:
        if opened is not None and opened is not ledger:
            opened.close()
    waiting, unreadable = gathering.ask("spool", lambda: _spool(config), (0, 0))
    return Status(
        home=str(config.home),
        ledger=hide_secrets(config.resolved_ledger_url),
        skills_index=config.chroma_url or "embedded Chroma",
        mlflow=hide_secrets(config.resolved_mlflow_uri),
        tracing=config.tracing,
        namespaces=namespaces,
        waiting=runtime.waiting if runtime else 0,
        spool_waiting=waiting,
        spool_unreadable=unreadable,
        problems=tuple(gathering.problems),
    )


def _open(config: MetaClawConfig) -> Ledger | None:
    return Ledger.open(config.resolved_ledger_url, redactor=Redactor(config.redact))


def _names(
    gathering: _Gathering, config: MetaClawConfig, ledger: Ledger | None, namespace: str | None
) -> list[str]:
    names = [namespace or config.namespace]
    if ledger is None:
        return names
    gathering.ask("ledger", ledger.check, None)
    if namespace is not None:
        return names
    return gathering.ask("ledger", lambda: sorted({*names, *ledger.namespaces()}), names)


class _Gathering:
    """Collects the problems of parts that do not answer, each once."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def ask(self, part: str, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except Exception as error:
            self.add(part, error)
            return otherwise

    def add(self, part: str, error: Exception) -> None:
        lines = str(error).splitlines() or [type(error).__name__]
        problem = Problem(part, lines[0])
        if problem not in self.problems:
            self.problems.append(problem)


def _namespace(
    gathering: _Gathering,
    ledger: Ledger | None,
    name: str,
    unsaved: Sequence[Incident],
    since: datetime,
) -> NamespaceStatus:
    """`since` is when the runs ended that are still judged."""
    if ledger is None:
        return NamespaceStatus(name, None, None, None, _incidents([], unsaved), False)
    stored = gathering.ask("ledger", lambda: ledger.incidents(name), None)
    counts = gathering.ask("ledger", lambda: ledger.counts(name), None)
    return NamespaceStatus(
        namespace=name,
        generation=gathering.ask("ledger", lambda: ledger.generation(name), None),
        skills=gathering.ask("ledger", lambda: _members(ledger, name), None),
        trajectories=counts,
        incidents=_incidents(stored or [], unsaved),
        incidents_known=stored is not None,
        support_waiting=None if counts is None else counts.role.get("support", 0),
        drafts_waiting=gathering.ask("ledger", lambda: _drafts(ledger, name), None),
        on_probation=gathering.ask("ledger", lambda: len(ledger.probations(name)), None),
        judging=gathering.ask("ledger", lambda: ledger.judging_counts(name, since=since), None),
        agreement=gathering.ask("ledger", lambda: _agreement(ledger, name), None),
    )


def _members(ledger: Ledger, name: str) -> int:
    return len(ledger.members(name, ledger.generation(name)))


def _drafts(ledger: Ledger, name: str) -> int:
    return len(ledger.drafts(name, state="review", limit=_MOST_DRAFTS))


def _agreement(ledger: Ledger, name: str) -> JudgeAgreement | None:
    pairs = ledger.agreements(name)
    if not pairs:
        return None
    from metaclaw_langgraph.judging.agreement import agreement

    found = agreement(pairs)
    return JudgeAgreement(found.n, found.observed, found.kappa)


def _incidents(
    stored: Sequence[IncidentRecord], unsaved: Sequence[Incident]
) -> tuple[IncidentRecord, ...]:
    """Those of the ledger and those still in memory, added up by part and kind."""
    found = {(one.part, one.kind): one for one in stored}
    for new in unsaved:
        old = found.get((new.part, new.kind))
        found[new.part, new.kind] = IncidentRecord(
            part=new.part,
            kind=new.kind,
            count=new.count + (old.count if old else 0),
            message=new.message,
            first_at=old.first_at if old else new.at,
            last_at=new.at,
        )
    return tuple(sorted(found.values(), key=lambda one: one.last_at, reverse=True))


def _spool(config: MetaClawConfig) -> tuple[int, int]:
    folder = config.home / "spool"
    # Path.glob is silent about a folder that it may not read; iterdir is not.
    names = [path.suffix for path in folder.iterdir()] if folder.exists() else []
    return names.count(".jsonl"), names.count(".bad")
