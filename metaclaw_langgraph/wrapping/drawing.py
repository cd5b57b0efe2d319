"""The picture of the whole loop around the user's nodes.

`metaclaw_retrieve` runs inside `__start__`; `metaclaw_judge` and `metaclaw_evolver` are nodes of
the learning graph, which runs in the background after the answer. All edges that do not hold up
the answer are dotted.
"""

from __future__ import annotations

from langchain_core.runnables.graph import Edge, Graph
from langgraph.constants import END, START

__all__ = ["EVOLVER", "JUDGE", "KEEP", "RETRIEVE", "draw_loop"]

RETRIEVE = "metaclaw_retrieve"
JUDGE = "metaclaw_judge"
KEEP = "metaclaw_keep"
EVOLVER = "metaclaw_evolver"


def draw_loop(graph: Graph) -> Graph:
    """The graph with retrieve after its start, and judge and evolver after its end."""
    if START not in graph.nodes or RETRIEVE in graph.nodes:
        return graph
    for name in (RETRIEVE, JUDGE, EVOLVER):
        graph.add_node(None, id=name)
    edges = [_from_retrieve(edge) if edge.source == START else edge for edge in graph.edges]
    last = END if END in graph.nodes else _sink(graph)
    graph.edges = [
        Edge(START, RETRIEVE),
        *edges,
        Edge(last, JUDGE, data="trajectory", conditional=True),
        Edge(JUDGE, EVOLVER, data="failure", conditional=True),
        Edge(EVOLVER, RETRIEVE, data="skills", conditional=True),
    ]
    return graph


def _from_retrieve(edge: Edge) -> Edge:
    return edge.copy(source=RETRIEVE)


def _sink(graph: Graph) -> str:
    """The node that the run ends in, for a graph without `__end__`."""
    sources = {edge.source for edge in graph.edges}
    user_nodes = [n for n in graph.nodes if n not in (START, RETRIEVE, JUDGE, EVOLVER)]
    return next((n for n in user_nodes if n not in sources), user_nodes[-1])
