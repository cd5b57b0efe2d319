"""What `metaclaw doctor` checks. Each check uses its part for real and says how to mend it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, TypeVar

from metaclaw_langgraph._settings import hide_secrets
from metaclaw_langgraph.cli._common import opened_ledger
from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import MetaClawError, StoreError
from metaclaw_langgraph.skills.block import TooBig, too_big

__all__ = ["Finding", "State", "checks"]

T = TypeVar("T")

State: TypeAlias = Literal["ok", "optional", "warning", "broken"]
"""optional: not there, and nothing that is configured needs it; warning: works, but not for all."""

SECONDS = 60.0
"""How long one part may take: MLflow and Chroma build their databases on first use."""
_HTTP_SECONDS = 5.0
_LEAST_FREE = 200 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `fix` is what to do about it."""

    part: str
    state: State
    detail: str
    fix: str = ""


def checks(config: MetaClawConfig) -> Iterator[Finding]:
    """Check every part, one after the other."""
    yield _checked("home", lambda: _home(config), "set METACLAW_HOME to a folder with room")
    ledger = _checked("ledger", lambda: _ledger(config), "correct ledger_url, or its server")
    yield ledger
    if ledger.state == "ok":
        yield _skills(config)
    yield _checked("embedding", lambda: _embedding(config), "correct retrieval.embedder")
    yield _checked("skill index", lambda: _chroma(config), "correct chroma_url, or its server")
    yield _mlflow(config)
    yield _weights()
    yield _model("judging.model", config.judging.model, "people and verifiers judge")
    yield _model("evolving.model", config.evolving.model, "corrections in words become skills")
    yield from _extras(config)


def _checked(part: str, check: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(part, "ok", _within(SECONDS, check))
    except MetaClawError as error:
        return Finding(part, "broken", _line(error))  # Its message has the fix in it.
    except Exception as error:
        return Finding(part, "broken", f"{type(error).__name__}: {_line(error)}", fix)


def _home(config: MetaClawConfig) -> str:
    config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=config.home) as probe:
        probe.write(b"metaclaw")
        probe.flush()
        os.fsync(probe.fileno())
    free = shutil.disk_usage(config.home).free
    if free < _LEAST_FREE:
        raise StoreError(
            f"{config.home} has only {free // 2**20} MB left; free some, or set METACLAW_HOME"
        )
    return f"{config.home}, {free / 2**30:.1f} GB free"


def _ledger(config: MetaClawConfig) -> str:
    with opened_ledger(config) as ledger:
        ledger.check()
        return f"{ledger.url}, {len(ledger.namespaces())} namespaces"


def _skills(config: MetaClawConfig) -> Finding:
    found: list[TooBig] = []

    def count() -> str:
        with opened_ledger(config) as ledger:
            generation = ledger.generation(config.namespace)
            active = ledger.active_skills(config.namespace)
        found.extend(too_big(active, generation, config.retrieval.token_budget))
        return f"{len(active)} active in namespace {config.namespace}"

    finding = _checked("skills", count, "metaclaw skills list")
    if finding.state != "ok" or not found:
        return finding
    names = ", ".join(f"{one.name} ({one.tokens})" for one in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    budget = config.retrieval.token_budget
    detail = f"{finding.detail}, never injected over {budget} tokens: {names}{more}"
    return Finding("skills", "warning", detail, "shorten them or raise retrieval.token_budget")


def _embedding(config: MetaClawConfig) -> str:
    import numpy as np

    from metaclaw_langgraph.skills.embedding import load_embedder

    embedder = load_embedder(config.retrieval.embedder)
    vector = embedder.embed_query("does it work?")
    if vector.shape != (embedder.dim,) or abs(float(np.linalg.norm(vector)) - 1) > 0.01:
        raise StoreError(
            f"{embedder.id} gives a vector of shape {vector.shape} and length "
            f"{float(np.linalg.norm(vector)):.2f}; it must be ({embedder.dim},) and 1"
        )
    return f"{embedder.id}, {embedder.dim} dimensions"


def _chroma(config: MetaClawConfig) -> str:
    from metaclaw_langgraph.skills import chroma

    if config.chroma_url:
        chroma.connect(config.chroma_url).close()
        return f"Chroma server at {config.chroma_url}"
    client = chroma.open_folder(config.home)
    if client is None:
        return "embedded Chroma, held by a running process; this one searches in memory"
    client.close()
    return f"embedded Chroma in {chroma.chroma_folder(config.home)}"


def _mlflow(config: MetaClawConfig) -> Finding:
    if not config.tracing:
        return Finding("mlflow", "optional", "tracing = false: no traces are written")
    fix = "correct mlflow_uri or start its server; without MLflow, set tracing = false"
    return _checked("mlflow", lambda: _mlflow_store(config), fix)


def _mlflow_store(config: MetaClawConfig) -> str:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = config.resolved_mlflow_uri
    if uri.startswith(("http://", "https://")):
        _ask_server(uri)
    elif uri.startswith("databricks"):
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    else:
        _read_database(uri, str(config.home / "mlartifacts"))
    return hide_secrets(uri)


def _ask_server(uri: str) -> None:
    # MLflow's own client retries a dead server for minutes.
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_HTTP_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code >= 500:
            raise


def _read_database(uri: str, artifacts: str) -> None:
    # Not MlflowClient: it makes a folder mlruns in the working directory.
    from mlflow.store.tracking import sqlalchemy_store

    logging.getLogger("mlflow").setLevel(logging.WARNING)  # It tells of each migration.
    new_store: Any = sqlalchemy_store.SqlAlchemyStore
    new_store(uri, artifacts).search_experiments(max_results=1)


def _weights() -> Finding:
    from metaclaw_langgraph.models.embedded import MODEL_NAME, WEIGHTS_COMMAND, find_weights

    path = find_weights()
    if path is None:
        return Finding("embedded model", "optional", "weights not installed", WEIGHTS_COMMAND)
    return Finding("embedded model", "ok", f"{MODEL_NAME}, {path.stat().st_size // 2**20} MB")


def _model(option: str, name: str | None, without: str) -> Finding:
    if name is None:
        return Finding(option, "optional", f"not set: {without}")

    def made() -> str:
        from metaclaw_langgraph.learning.parts import chat_model

        chat_model(name, option)  # not called: that may cost money
        return f"{name}, not called"

    return _checked(option, made, f"correct {option}")


def _extras(config: MetaClawConfig) -> Iterator[Finding]:
    needs_postgres = config.resolved_ledger_url.startswith("postgresql")
    for extra, modules, needed in (
        ("local", ("torch", "transformers", "gguf", "safetensors"), False),
        ("postgres", ("psycopg",), needs_postgres),
    ):
        missing = [module for module in modules if find_spec(module) is None]
        if not missing:
            yield Finding(f"extra {extra}", "ok", "installed")
        else:
            state: State = "broken" if needed else "optional"
            fix = f"pip install 'metaclaw-langgraph[{extra}]'"
            yield Finding(f"extra {extra}", state, f"not installed: {', '.join(missing)}", fix)


def _within(seconds: float, work: Callable[[], T]) -> T:
    """The result of the work, or TimeoutError; a part that hangs is left behind."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    return results[0]


def _line(error: BaseException) -> str:
    return hide_secrets((str(error).splitlines() or [type(error).__name__])[0])
