"""A trajectory as text, and the quoting of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from metaclaw_langgraph.judging.transcript import DATA_RULE, cut, quoted, transcript
from metaclaw_langgraph.types import SkillHit, Trajectory
from tests.wrapping.conftest import Wrap
from tests.wrapping.graphs import GRAPHS, scripted
from tests.wrapping.support import ask, conversation, only, stored, talk


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(" ")]


def test_an_agent_with_a_tool(tooled: Trajectory) -> None:
    text = transcript(tooled)
    assert headings(text) == [
        "Task",
        "Instructions that the assistant had",
        "Step 1 (assistant)",
        "Tool stock",
        "Step 2 (assistant)",
        "How the run ended",
    ]
    assert 'calls stock {"item": "lamps"}' in text
    assert text.count("7 lamps in the shop") == 1
    assert text.count("How many lamps are there?") == 1
    assert text.count("There are 8 lamps.") == 1
    # The tool's own "Step 9" is no heading.
    assert "    Step 9 (assistant)" in text
    assert len(tooled.calls) == 2


def test_without_numbers(tooled: Trajectory) -> None:
    found = headings(transcript(tooled, step_marks=False))
    assert found.count("Assistant") == 2
    assert not any("Step" in heading for heading in found)


def test_skills_are_named_and_not_repeated(wrap: Wrap) -> None:
    agent = wrap(talk())
    agent.invoke(ask("hello"))
    one = only(agent)
    block = (
        '<metaclaw_skills generation="1">\nAdvice\n\n<skill name="a">x</skill>\n</metaclaw_skills>'
    )
    system: Any = {"type": "system", "data": {"content": f"Be kind.\n\n{block}"}}
    (call,) = one.calls
    at = len(one.messages)
    hits = (SkillHit("a@1", 0.9, True), SkillHit("b@1", 0.8, False, withheld=True))
    skilled = replace(one, messages=(*one.messages, system), skills=hits)
    text = transcript(replace(skilled, calls=(replace(call, prompt=(at, 0)),)))
    assert "Instructions that the assistant had\n    Be kind.\n\n" in text
    assert "Skills that the assistant was given\n    a@1\n\n" in text
    assert "<skill" not in text


def test_how_runs_end(wrap: Wrap) -> None:
    def broken(state: MessagesState) -> Any:
        raise ValueError("no such order")

    agent = wrap(conversation(broken))
    with pytest.raises(ValueError, match="no such order"):
        agent.invoke(ask("Where is my parcel?"))
    text = transcript(only(agent))
    assert text.startswith("Task\n    Where is my parcel?")
    assert text.endswith("How the run ended\n    It failed.\n    ValueError: no such order")


def test_a_model_that_raised(wrap: Wrap) -> None:
    agent = wrap(talk(scripted()))
    with pytest.raises(RuntimeError):
        agent.invoke(ask("hello"))
    assert "Step 1 (assistant)\n    [no answer: StopIteration" in transcript(only(agent))


def test_earlier_turns_of_the_thread(wrap: Wrap) -> None:
    agent = wrap(talk(saver=InMemorySaver()))
    thread: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke(ask("first"), thread)
    agent.invoke(ask("second"), thread)
    text = transcript(stored(agent)[1])
    assert headings(text)[:4] == ["Task", "User", "Assistant, earlier", "Step 1 (assistant)"]
    assert text.startswith("Task\n    second\n\nUser\n    first\n\nAssistant, earlier\n    echo f")


def test_a_message_that_no_model_made(wrap: Wrap) -> None:
    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("I looked it up: Paris.")]}

    agent = wrap(conversation(answer))
    agent.invoke({"messages": [HumanMessage("The capital of France?")]})
    assert "Last message of the run\n    I looked it up: Paris." in transcript(only(agent))


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_every_kind_of_graph(name: str, wrap: Wrap) -> None:
    case = GRAPHS[name]
    agent = wrap(case.build(InMemorySaver()))
    thread: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke(case.input, thread, **({"context": case.context} if case.context else {}))
    for one in stored(agent):
        found = headings(transcript(one))
        assert found[0] == "Task"
        assert found[-1] == "How the run ended"
        steps = [f"Step {number} (assistant)" for number in range(1, len(one.calls) + 1)]
        assert [heading for heading in found if heading.startswith("Step")] == steps


def test_long_parts_are_cut_in_the_middle(tooled: Trajectory) -> None:
    (tool,) = tooled.tools
    long = replace(tooled, tools=(replace(tool, output="a" * 50_000 + "b" * 50_000),))
    text = transcript(long, limit=4_000)
    assert len(text) <= 4_000
    assert re.search(r"a … \[\d+ characters left out\] … b", text)
    assert len(headings(text)) == 6
    assert "There are 8 lamps." in text


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(0, 200))
def test_cut(text: str, limit: int) -> None:
    found = cut(text, limit)
    assert len(found) <= limit
    if len(text) <= limit:
        assert found == text


def test_cut_counts_what_is_left_out() -> None:
    text = "x" * 1000
    found = cut(text, 100)
    match = re.fullmatch(r"(x+) … \[(\d+) characters left out\] … (x+)", found)
    assert match is not None
    assert len(match[1]) + int(match[2]) + len(match[3]) == 1000


@settings(deadline=None)
@given(st.text())
def test_quoted_text_cannot_end_the_quotation(text: str) -> None:
    found = quoted(text)
    match = re.fullmatch(r"<(data-[0-9a-f]{12})>\n(.*)\n</\1>", found, re.DOTALL)
    assert match is not None
    assert match[2] == text
    assert match[1] not in text


def test_marks_are_not_foreseen() -> None:
    assert len({quoted("x") for _ in range(50)}) == 50
    assert quoted("x") != quoted(quoted("x"))
    assert "<data-...>" in DATA_RULE
