"""The smallest agent that learns: a graph of one node on the embedded model, wrapped in one line.

Skills that you import with `metaclaw skills import DIR` reach the model from the next run on, and
`metaclaw trajectories list` shows the run.
"""

import sys

from langgraph.graph import START, MessagesState, StateGraph

from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.models import LocalChatModel

model = LocalChatModel(max_new_tokens=64)


def answer(state: MessagesState) -> MessagesState:
    return {"messages": [model.invoke(state["messages"])]}


graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
agent = with_metaclaw(graph)

if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or "What is the capital of France?"
    print(agent.invoke({"messages": [("user", question)]})["messages"][-1].text)
