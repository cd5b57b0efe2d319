"""The kinds of graphs that people wrap, each small, deterministic, and made anew for every use.

`GRAPHS` maps a name to a Case: how to build the graph, what to feed it, and what it supports.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.func import task as graph_task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

Saver = BaseCheckpointSaver[Any] | None


class ScriptedModel(GenericFakeChatModel):
    """Answers from a script and streams word by word; accepts tools."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


def scripted(*answers: AIMessage | str) -> ScriptedModel:
    return ScriptedModel(messages=iter(answers))


def calling(name: str, args: dict[str, Any], id: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": id}], id=f"ai-{id}")


@dataclass(frozen=True)
class Case:
    build: Callable[[Saver], Any]
    input: Any
    resume: Any = None
    context: Any = None
    ordered: bool = True
    """False when parallel nodes end in any order."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def react(saver: Saver) -> Any:
    """A closure over the model, a tool node, a loop."""
    model = scripted(calling("add", {"a": 2, "b": 3}, "c1"), AIMessage("It is five.", id="ai-end"))

    def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def route(state: MessagesState) -> Literal["tools", "__end__"]:
        return "tools" if state["messages"][-1].tool_calls else END  # type: ignore[union-attr]

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([add]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


class Counter(TypedDict):
    question: str
    steps: Annotated[list[str], operator.add]


def command(saver: Saver) -> Any:
    """No messages in the state; nodes say where to go."""

    def first(state: Counter) -> Command[Literal["second"]]:
        get_stream_writer()({"progress": "half"})
        return Command(goto="second", update={"steps": ["first"]})

    def second(state: Counter) -> Command[Literal["__end__"]]:
        model = scripted("Made inside a node.")
        return Command(goto=END, update={"steps": [str(model.invoke(state["question"]).content)]})

    builder = StateGraph(Counter)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    return builder.compile(checkpointer=saver)


def human(saver: Saver) -> Any:
    """Asks a person in the middle."""
    model = scripted(AIMessage("Shall I?", id="ai-1"), AIMessage("Done.", id="ai-2"))

    def plan(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def approve(state: MessagesState) -> Command[Literal["act", "__end__"]]:
        answer = interrupt({"question": state["messages"][-1].content})
        return Command(goto="act" if answer == "yes" else END)

    def act(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_sequence([plan, approve])
    builder.add_node("act", act)
    builder.add_edge(START, "plan")
    return builder.compile(checkpointer=saver)


def nested(saver: Saver) -> Any:
    """A subgraph, a fan-out with Send, and a deferred join."""

    class Inner(TypedDict):
        steps: Annotated[list[str], operator.add]

    def inner_a(state: Inner) -> dict[str, Any]:
        return {"steps": ["inner a"]}

    def inner_b(state: Inner) -> dict[str, Any]:
        return {"steps": [str(scripted("inner b").invoke("go").content)]}

    inner = StateGraph(Inner)
    inner.add_sequence([inner_a, inner_b])
    inner.add_edge(START, "inner_a")

    def spread(state: Counter) -> list[Send]:
        return [Send("worker", {"question": f"part {n}", "steps": []}) for n in range(3)]

    def worker(state: Counter) -> dict[str, Any]:
        return {"steps": [state["question"]]}

    def join(state: Counter) -> dict[str, Any]:
        return {"steps": [f"joined {len(state['steps'])}"]}

    builder = StateGraph(Counter)
    builder.add_node("inner", inner.compile())
    builder.add_node("worker", worker)
    builder.add_node("join", join, defer=True)
    builder.add_edge(START, "inner")
    builder.add_conditional_edges("inner", spread, ["worker"])
    builder.add_edge("worker", "join")
    return builder.compile(checkpointer=saver)


class Form(BaseModel):
    request: str
    answer: str = ""
    seen: int = 0


@dataclass
class Settings:
    tone: str = "plain"


def typed(saver: Saver) -> Any:
    """A pydantic state, a context and a store."""

    def answer(state: Form, runtime: Runtime[Settings]) -> dict[str, Any]:
        assert runtime.store is not None
        runtime.store.put(("seen",), "count", {"n": state.seen + 1})
        text = scripted(f"In a {runtime.context.tone} tone.").invoke(state.request).content
        return {"answer": text}

    def count(state: Form, runtime: Runtime[Settings]) -> dict[str, Any]:
        assert runtime.store is not None
        found = runtime.store.get(("seen",), "count")
        return {"seen": found.value["n"] if found else 0}

    builder = StateGraph(Form, context_schema=Settings)
    builder.add_sequence([answer, count])
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver, store=InMemoryStore())


def functional(saver: Saver) -> Any:
    """The functional API."""

    @graph_task
    def shout(text: str) -> str:
        return str(scripted(text.upper()).invoke([("user", text)]).content)

    @entrypoint(checkpointer=saver)
    def workflow(words: list[str], *, previous: Any = None) -> Any:
        get_stream_writer()("working")
        loud = [shout(word).result() for word in words]
        return entrypoint.final(value=" ".join(loud), save=[*(previous or []), *loud])

    return workflow


class Weather(BaseModel):
    """The weather somewhere."""

    place: str
    degrees: int


def agent(saver: Saver) -> Any:
    """`create_agent` with a tool call and structured output."""
    model = scripted(
        calling("add", {"a": 10, "b": 8}, "c1"),
        calling("Weather", {"place": "Oslo", "degrees": 18}, "c2"),
    )
    return create_agent(
        model,
        [add],
        system_prompt="You report the weather.",
        response_format=ToolStrategy(Weather),
        checkpointer=saver,
    )


def deep(saver: Saver) -> Any:
    """deepagents: planning, files and a subagent of its own."""
    from deepagents import create_deep_agent

    model = scripted(
        calling("write_file", {"file_path": "/notes.md", "content": "remember"}, "c1"),
        AIMessage("Written.", id="ai-end"),
    )
    return create_deep_agent(model=model, tools=[add], system_prompt="Work.", checkpointer=saver)


ASK = {"messages": [{"role": "user", "content": "What is two and three?", "id": "u1"}]}

GRAPHS: dict[str, Case] = {
    "react": Case(react, ASK),
    "command": Case(command, {"question": "Where to?", "steps": []}),
    "human": Case(human, ASK, resume="yes"),
    "nested": Case(nested, {"question": "Split it", "steps": []}, ordered=False),
    "typed": Case(typed, {"request": "Hello"}, context=Settings(tone="warm")),
    "functional": Case(functional, ["one", "two"], ordered=False),
    "agent": Case(agent, ASK),
    "deep": Case(deep, ASK),
}


def last_text(messages: Sequence[BaseMessage]) -> str:
    """What the agent said last, tools left out."""
    return next(str(m.content) for m in reversed(messages) if not isinstance(m, ToolMessage))
