"""`MetaClawMiddleware`: skills for agents made with `create_agent`, without a process-wide hook.

It only wraps the model call, so the agent's graph keeps its nodes and checkpoints. It reaches the
agent that it is given to, not agents that its tools call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse

from metaclaw_langgraph.runtime import Runtime, runtime_for
from metaclaw_langgraph.wrapping.model import skilled

if TYPE_CHECKING:
    from metaclaw_langgraph.config import MetaClawConfig

__all__ = ["MetaClawMiddleware"]


class MetaClawMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives the agent's model calls the skills of their task.

    Wrap the agent as well, with `with_metaclaw(agent, hook=False)`, to have one trajectory for
    each run of the agent; without it every model call is a trajectory.
    """

    def __init__(self, config: MetaClawConfig | None = None, **settings: Any) -> None:
        super().__init__()
        self.metaclaw: Runtime = runtime_for(config, **settings)

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        return handler(request.override(model=skilled(request.model, self.metaclaw)))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        return await handler(request.override(model=skilled(request.model, self.metaclaw)))
