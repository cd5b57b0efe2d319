"""Who judges, who writes skills, how runs are replayed: from what the user gave or configured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.language_models.chat_models import BaseChatModel

from metaclaw_langgraph.errors import ConfigError, MissingExtraError
from metaclaw_langgraph.judging.base import Judge, require_model
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.judging.llm import LLMJudge
from metaclaw_langgraph.judging.verifier import VerifierJudge

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig
    from metaclaw_langgraph.evolving.base import Evolver
    from metaclaw_langgraph.evolving.replay import Replay
    from metaclaw_langgraph.wrapping.task import TaskFunction

__all__ = ["EvolverLike", "JudgeLike", "Parts", "parts_for"]

JudgeLike: TypeAlias = "Judge | BaseChatModel | Callable[..., Any] | Sequence[Any]"
EvolverLike: TypeAlias = "Evolver | BaseChatModel"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a namespace learns with, beside the stores."""

    judges: tuple[Judge, ...]
    """Of the highest rank first."""
    evolver: Evolver
    feedback: FeedbackJudge
    replay: Replay | None = None
    find_task: TaskFunction | None = None


def parts_for(
    config: MetaClawConfig,
    *,
    judge: JudgeLike | None = None,
    evolver: EvolverLike | None = None,
    replay: Replay | None = None,
    find_task: TaskFunction | None = None,
) -> Parts:
    """What was given, else what the configuration names, else what needs no model.

    ConfigError or MissingExtraError when it cannot be used.
    """
    judges = _judges(config, judge)
    readers = [one for one in judges if isinstance(one, FeedbackJudge)]
    return Parts(
        judges=tuple(one for one in judges if one not in readers),
        evolver=_evolver(config, evolver),
        feedback=readers[0] if readers else _reader(config),
        replay=replay,
        find_task=find_task,
    )


def _judges(config: MetaClawConfig, given: JudgeLike | None) -> tuple[Judge, ...]:
    several = given if isinstance(given, Sequence) else () if given is None else (given,)
    judges = [_judge(one, config.judging.votes) for one in several]
    model = chat_model(config.judging.model, "judging.model")
    if model is not None and not any(one.source == "judge" for one in judges):
        judges.append(LLMJudge(model, votes=config.judging.votes))
    return tuple(sorted(judges, key=lambda one: one.source == "judge"))


def _reader(config: MetaClawConfig) -> FeedbackJudge:
    model = chat_model(config.judging.model, "judging.model") if config.judging.next_turn else None
    return FeedbackJudge(model)


def _judge(given: Any, votes: int) -> Judge:
    if isinstance(given, BaseChatModel):
        return LLMJudge(given, votes=votes)
    if isinstance(given, type):
        raise ConfigError(f"judge= was given the class {given.__name__}: pass an object of it")
    if isinstance(given, Judge):
        return given
    if callable(given):
        return VerifierJudge(given)
    raise ConfigError(
        f"judge= takes a function, a chat model or a Judge, not {type(given).__name__}: "
        "for instance judge=lambda trajectory: 'EUR' in str(trajectory.output)"
    )


def _evolver(config: MetaClawConfig, given: EvolverLike | None) -> Evolver:
    from metaclaw_langgraph.evolving.base import Evolver
    from metaclaw_langgraph.evolving.llm import LLMEvolver
    from metaclaw_langgraph.evolving.offline import OfflineEvolver

    model = given or chat_model(config.evolving.model, "evolving.model")
    if model is None:
        return OfflineEvolver()
    if isinstance(model, BaseChatModel):
        require_model(model, "evolver=")
        return LLMEvolver(model, max_drafts=config.evolving.max_drafts)
    if isinstance(model, Evolver) and not isinstance(model, type):
        return model
    raise ConfigError(f"evolver= takes a chat model or an Evolver, not {type(model).__name__}")


def chat_model(name: str | None, option: str) -> BaseChatModel | None:
    """The chat model that an option names."""
    if name is None:
        return None
    from langchain.chat_models import init_chat_model

    try:
        model: Any = init_chat_model(name)
    except ImportError as error:
        raise MissingExtraError(f"{option} = {name!r} needs another package: {error}") from error
    except Exception as error:
        raise ConfigError(f"{option} = {name!r} cannot be used: {error}") from error
    if not isinstance(model, BaseChatModel):
        raise ConfigError(f"{option} = {name!r} is no chat model: give PROVIDER:MODEL")
    return model
