"""The one configuration object, and where its values come from.

Sources, later wins: defaults, `./metaclaw.toml` (or `[tool.metaclaw]` in `./pyproject.toml` when
there is no metaclaw.toml), the environment (`METACLAW_HOME`, nested with `__` as in
`METACLAW_RETRIEVAL__TOP_K`; an empty variable counts as unset), keyword arguments. A key that is
not listed here is refused from every source: a misspelt option must not be silently ignored.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.config import JsonDict
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from metaclaw_langgraph import _settings
from metaclaw_langgraph.errors import ConfigError

__all__ = [
    "EvolvingConfig",
    "JudgingConfig",
    "LearningConfig",
    "MetaClawConfig",
    "RedactConfig",
    "RetrievalConfig",
]

_TRACKING_URI = "MLFLOW_TRACKING_URI"


def _option(default: object, allowed: str, **limits: Any) -> Any:
    """A field whose allowed form is quoted in the error when a value breaks it."""
    extra: JsonDict = {"allowed": allowed}
    return Field(default=default, json_schema_extra=extra, validate_default=True, **limits)


def _not_bool(value: object) -> object:
    # pydantic reads True as 1, and `top_k = true` is a mistake, not a one.
    if isinstance(value, bool):
        raise ValueError("not a number")
    return value


def _expand_home(value: object) -> object:
    if isinstance(value, str | Path):
        text = str(value)
        # Both would end the path inside the sqlite:/// URLs built from it.
        if not text.strip() or "?" in text or "#" in text:
            raise ValueError("empty, or holds ? or #")
        try:
            return Path(text).expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(str(error)) from error
    return value


def _check_url(value: str | None, schemes: tuple[str, ...]) -> str | None:
    if value is None:
        return None
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018  # raises for a port that is not a number
    except ValueError:  # Its message quotes a part of the URL, perhaps the password.
        raise ValueError("not a URL, or its port is no number") from None
    if parts.scheme not in schemes:
        raise ValueError(f"scheme {parts.scheme or 'missing'!r}")
    _check_location(value, parts.scheme)
    return value


def _check_location(url: str, scheme: str) -> None:
    """A SQLite URL needs a file, every other one a host."""
    if scheme == "sqlite":
        path = url.removeprefix("sqlite:///")
        if path in (url, "", ":memory:"):
            raise ValueError("names no file")
        return
    if not urlsplit(url).hostname:
        raise ValueError("names no host")


def _ledger_url(value: str | None) -> str | None:
    return _check_url(value, ("sqlite", "postgresql+psycopg"))


def _chroma_url(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[a-z]+://[^/?#@]*/?", value):
        raise ValueError("only a host and a port are used")
    return _check_url(value, ("http", "https"))


def _mlflow_uri(value: str | None) -> str | None:
    if value is not None and value.split(":", 1)[0] == "databricks":
        return value
    databases = ("sqlite", "postgresql", "postgresql+psycopg", "postgresql+psycopg2")
    return _check_url(value, (*databases, "mysql+pymysql", "mssql+pymssql", "http", "https"))


def _pattern(value: str) -> str:
    try:
        matches_nothing = re.compile(value).search("")
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if matches_nothing:
        raise ValueError("matches the empty text, so it would redact everything")
    return value


_Int = Annotated[int, BeforeValidator(_not_bool)]
_Float = Annotated[float, BeforeValidator(_not_bool), Field(allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RetrievalConfig(_Section):
    """Which skills are injected, and how long a run may wait for them."""

    top_k: _Int = _option(5, "a whole number from 1 to 50", ge=1, le=50)
    """The most skills injected into one run."""
    min_score: _Float = _option(0.25, "a number from -1 to 1", ge=-1, le=1)
    """The least cosine similarity of a skill to the task."""
    token_budget: _Int = _option(1500, "a whole number above 0", gt=0)
    """The most tokens (estimated, four characters each) that injected skills may take."""
    deadline: _Float = _option(0.25, "seconds above 0", gt=0)
    """How long a run may wait for its skills before it goes on without them."""
    warmup: _Float = _option(10.0, "seconds, 0 or more", ge=0)
    """How long `with_metaclaw` may wait for the embedding model and the index to load."""
    embedder: str = _option(
        "minilm-int8",
        "'minilm-int8' or 'module:attribute'",
        pattern=r"^(minilm-int8|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
    )
    """The embedding model, or where to import another one from."""


class LearningConfig(_Section):
    """The background queue that stores finished runs."""

    queue_size: _Int = _option(1000, "a whole number of 1 or more", ge=1)
    """How many finished runs may wait in memory to be stored."""
    flush_interval: _Float = _option(0.05, "seconds above 0", gt=0)
    """How long the writer collects runs before it stores them in one transaction."""


_MODEL = r"^[A-Za-z_][\w-]*:[^\s:][^\s]*$"
_MODEL_FORM = "'PROVIDER:MODEL' as LangChain's init_chat_model takes it, e.g. 'openai:gpt-5-mini'"


class JudgingConfig(_Section):
    """Who judges finished runs, beside people and what `with_metaclaw(judge=...)` was given."""

    model: str | None = _option(None, _MODEL_FORM, pattern=_MODEL)
    """The chat model that judges each run; by default none is asked."""
    votes: _Int = _option(3, "a whole number from 1 to 15", ge=1, le=15)
    """How often the model is asked about one run; the majority counts."""
    timeout: _Float = _option(60.0, "seconds above 0", gt=0)
    """How long a judge may take for one run."""
    window: _Float = _option(24.0, "hours above 0", gt=0)
    """Runs that ended longer ago are not judged any more."""
    audit: _Float = _option(0.1, "a number from 0 to 1", ge=0, le=1)
    """The share of the runs with a verifier's verdict that the model judges too, to compare."""
    sample: _Float = _option(1.0, "a number from 0 to 1", ge=0, le=1)
    """The share of the runs that the model judges; each costs as many calls as it has votes."""
    next_turn: bool = _option(False, "true or false")
    """Read the user's next message in a thread as a verdict ("no, I meant ...")."""
    feedback_every: _Float = _option(300.0, "seconds, 0 or more", ge=0)
    """How often feedback on traces is fetched from MLflow while the app runs; 0 for never."""
    feedback_names: tuple[str, ...] = _option((), "a list of names")
    """The MLflow assessments that count as verdicts; by default all by people, but those whose
    name turns them round (hallucinated) or that are scales (rating)."""


class EvolvingConfig(_Section):
    """How failures become skills, and what a skill has to prove."""

    enabled: bool = _option(True, "true or false")
    """Whether skills are written at all; people can always import theirs."""
    model: str | None = _option(None, _MODEL_FORM, pattern=_MODEL)
    """The chat model that writes skills; without one, only corrections in words become skills."""
    support_size: _Int = _option(4, "a whole number of 1 or more", ge=1)
    """How many failures are gathered for one evolution."""
    support_wait: _Float = _option(10.0, "seconds, 0 or more", ge=0)
    """How long the first of them waits for the others."""
    thread_debounce: _Float = _option(3.0, "seconds, 0 or more", ge=0)
    """How long a thread must have been quiet before its failures count."""
    max_drafts: _Int = _option(3, "a whole number from 1 to 20", ge=1, le=20)
    """The most skills that one evolution may propose."""
    timeout: _Float = _option(120.0, "seconds above 0", gt=0)
    """How long the model, or one replay of a run, may take."""
    review: Literal["auto", "untrusted", "always"] = _option(
        "untrusted", "'auto', 'untrusted' or 'always'"
    )
    """Which drafts wait for a person: those that may say what a tool result or a user's message
    told them to (`untrusted`), all (`always`), or only those that the guard stops (`auto`)."""
    gate_repeats: _Int = _option(4, "a whole number from 1 to 100", ge=1, le=100)
    """How often each task is replayed, with the draft and without it."""
    gate_successes: _Int = _option(4, "a whole number, 0 or more", ge=0)
    """How many past successes a draft must not spoil."""
    holdout: _Float = _option(0.2, "a number above 0 and below 1", gt=0, lt=1)
    """The share of the runs that a skill on probation is withheld from."""
    probation_runs: _Int = _option(500, "a whole number of 1 or more", ge=1)
    """After so many judged runs without proof that it helps, a skill on probation is retired."""
    duplicate_score: _Float = _option(0.85, "a number from 0 to 1", ge=0, le=1)
    """From this similarity on, a draft is a version of the skill that is there."""
    library_limit: _Int = _option(1000, "a whole number of 1 or more", ge=1)
    """The most live skills; the least useful ones that the evolver wrote are retired first."""


class RedactConfig(_Section):
    """What is removed from trajectories before they are stored."""

    env: bool = _option(True, "true or false")
    """Remove the values of environment variables whose names look like secrets."""
    patterns: tuple[Annotated[str, AfterValidator(_pattern)], ...] = _option(
        (), "a list of regular expressions"
    )
    """More texts to remove, as regular expressions."""


class MetaClawConfig(BaseSettings):
    """Every setting of MetaClaw. Use `MetaClawConfig.load()` to build one."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=_settings.ENV_PREFIX,
        env_nested_delimiter=_settings.ENV_DELIMITER,
        env_ignore_empty=True,
    )

    namespace: str = _option(
        "default",
        "1 to 63 of a-z, 0-9, dot, underscore and hyphen, beginning with a letter or digit",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
    )
    """The agent that skills and trajectories belong to."""
    home: Annotated[Path, BeforeValidator(_expand_home)] = _option(
        "~/.metaclaw", "the path of a folder, without ? and #"
    )
    """Where the embedded stores live."""
    draw: bool = _option(True, "true or false")
    """Draw the learning loop in `get_graph()`; false draws the user's graph alone."""
    tracing: bool = _option(True, "true or false")
    """Show trajectories as MLflow traces too."""
    hook: bool = _option(True, "true or false")
    """Reach every chat model by a hook on LangChain's base class; false leaves it untouched, and
    skills reach only models given to `metaclaw_model` and agents with `MetaClawMiddleware`."""
    ledger_url: Annotated[str | None, AfterValidator(_ledger_url)] = _option(
        None, "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    )
    """Where trajectories and skills are kept; by default a SQLite file in `home`."""
    chroma_url: Annotated[str | None, AfterValidator(_chroma_url)] = _option(
        None, "http://HOST:PORT or https://HOST:PORT"
    )
    """A Chroma server; by default Chroma is embedded in `home`."""
    mlflow_uri: Annotated[str | None, AfterValidator(_mlflow_uri)] = _option(
        None, "sqlite:///FILE, postgresql://…, http(s)://HOST:PORT or databricks"
    )
    """The MLflow store; by default $MLFLOW_TRACKING_URI, else a SQLite file in `home`."""
    retrieval: RetrievalConfig = _option(RetrievalConfig(), "a table of settings")
    learning: LearningConfig = _option(LearningConfig(), "a table of settings")
    judging: JudgingConfig = _option(JudgingConfig(), "a table of settings")
    evolving: EvolvingConfig = _option(EvolvingConfig(), "a table of settings")
    redact: RedactConfig = _option(RedactConfig(), "a table of settings")

    def __init__(self, **settings: Any) -> None:
        """As `load`, which is the documented way."""
        arguments = {key: _as_table(value) for key, value in settings.items()}
        cls = type(self)
        sources = _settings.read_sources(cls, arguments)
        problems = _settings.unknown_keys(cls, sources)
        undecodable = _settings.undecodable(cls, sources)
        if undecodable:
            raise ConfigError("\n".join(problems + undecodable))
        known = {key: value for key, value in arguments.items() if key in cls.model_fields}
        try:
            super().__init__(**known)
        except ValidationError as error:
            problems += _settings.bad_values(cls, error, sources)
        if problems:  # Not inside the handler: pydantic's error shows the values, passwords too.
            raise ConfigError("\n".join(problems))
        if self.tracing:
            self.check_tracking_uri()

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Read all sources; raise ConfigError with one line for each problem."""
        return cls(**overrides)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of the sources, first wins; no .env file and no secrets folder."""
        found = _settings.settings_file()
        if found is None:
            return init_settings, env_settings
        path, table = found
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls, toml_file=path, toml_table_header=table),
        )

    @property
    def resolved_ledger_url(self) -> str:
        """The ledger's SQLAlchemy URL."""
        return self.ledger_url or f"sqlite:///{(self.home / 'ledger.db').as_posix()}"

    @property
    def resolved_mlflow_uri(self) -> str:
        """The MLflow tracking URI: ours, else the one that MLflow itself would use, else ours."""
        default = f"sqlite:///{(self.home / 'mlflow.db').as_posix()}"
        return self.mlflow_uri or os.environ.get(_TRACKING_URI) or default

    @property
    def learns_with_models(self) -> bool:
        """Whether a chat model is configured: one that cannot be had is told at once."""
        return bool(self.judging.model or self.evolving.model)

    def check_tracking_uri(self) -> None:
        """Raise ConfigError when the URI would come from MLflow's variable and cannot be used.

        Without tracing nobody needs it, and the variable may be there for another program.
        """
        uri = os.environ.get(_TRACKING_URI)
        if self.mlflow_uri or not uri:
            return
        try:
            _mlflow_uri(uri)
        except ValueError as error:
            allowed = _settings.allowed(type(self), ("mlflow_uri",))
            raise ConfigError(
                f"bad setting {_TRACKING_URI} = {_settings.shown(uri)} in the environment: "
                f"give {allowed} ({error}), or set mlflow_uri, or tracing = false"
            ) from error


def _as_table(value: object) -> Any:
    # Only what was set on purpose: the rest may still come from the environment or a file.
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
