"""What every judge has in common."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from langchain_core.language_models.chat_models import BaseChatModel

from metaclaw_langgraph.errors import ConfigError, MetaClawError
from metaclaw_langgraph.types import Trajectory, Verdict, VerdictSource

__all__ = ["Judge", "JudgeError", "model_name", "require_model"]


class JudgeError(MetaClawError):
    """A judge could not come to a verdict; the run stays unjudged and is tried again later."""


@runtime_checkable
class Judge(Protocol):
    """Says how good a finished run was."""

    @property
    def source(self) -> VerdictSource:
        """In whose name it speaks."""
        ...

    @property
    def name(self) -> str:
        """Which judge it is, for people."""
        ...

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The verdict; None for no opinion, then it is not asked again. An exception means that
        it may be asked again later."""
        ...


def require_model(model: object, whose: str) -> None:
    """ConfigError unless this is a chat model whose own calls are not recorded as runs."""
    if not isinstance(model, BaseChatModel):
        raise ConfigError(
            f"{whose} takes a LangChain chat model, not {type(model).__name__}; "
            "make one with init_chat_model, and pass it before bind or with_structured_output"
        )
    if hasattr(type(model), "metaclaw"):
        raise ConfigError(
            f"{whose} was given a metaclaw_model, whose calls are recorded as runs to be judged; "
            "pass the model that it was made from"
        )


def model_name(model: BaseChatModel) -> str:
    """The name that its provider knows it by, else that of its class."""
    known = (getattr(model, "model_name", None), getattr(model, "model", None))
    return next((name for name in known if isinstance(name, str) and name), type(model).__name__)
