"""Retrieval, fused into the graph's own `__start__` node.

`__start__` writes the input to the channels; here the same writes also start the look-up of
skills. Because no node, task or superstep is added, checkpoints, history and every stream mode
stay as they were. The look-up is not waited for: the model boundary does that, so that it overlaps
the user's first nodes.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.constants import START
from langgraph.pregel._read import PregelNode
from langgraph.pregel._write import ChannelWrite

from metaclaw_langgraph.wrapping.handler import run_of

__all__ = ["with_retrieval"]


class RetrievingWrite(ChannelWrite):
    """A ChannelWrite that starts the run's look-up before it writes."""

    def _write(self, input: Any, config: RunnableConfig) -> None:
        self._start_lookup(config)
        return super()._write(input, config)

    async def _awrite(self, input: Any, config: RunnableConfig) -> None:
        self._start_lookup(config)
        return await super()._awrite(input, config)

    @staticmethod
    def _start_lookup(config: RunnableConfig) -> None:
        run = run_of(config)
        if run is not None:
            run.start_lookup()


def with_retrieval(nodes: dict[str, PregelNode]) -> dict[str, PregelNode]:
    """The graph's nodes, with retrieval fused into `__start__` where there is one.

    An `@entrypoint` graph starts with the function itself, and a graph resumed from an interrupt
    writes no input: there the model boundary starts the look-up.
    """
    start = nodes.get(START)
    if start is None or not all(type(w) is ChannelWrite for w in start.writers):
        return nodes
    entries = [entry for writer in start.writers for entry in writer.writes]  # type: ignore[attr-defined]
    return {**nodes, START: start.copy({"writers": [RetrievingWrite(entries)]})}
