"""The task of a run: the user's request, out of any input, without its envelope, in linear time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.types import Command
from pydantic import BaseModel

from metaclaw_langgraph.wrapping.task import strip_envelope, task_of_input


class Form(BaseModel):
    request: str
    notes: str = "none"


@dataclass(slots=True)
class Slotted:
    question: str


@pytest.mark.parametrize(
    ("value", "task"),
    [
        ({"messages": [("user", "Fix it")]}, "Fix it"),
        ({"messages": {"role": "user", "content": "One dict"}}, "One dict"),
        ({"messages": [{"role": "user", "content": "Fix it"}]}, "Fix it"),
        ({"messages": [{"type": "human", "content": "Fix it"}]}, "Fix it"),
        ({"messages": "Fix it"}, "Fix it"),
        ({"messages": [HumanMessage("First"), AIMessage("ok"), HumanMessage("Second")]}, "Second"),
        ({"messages": [SystemMessage("Be kind"), HumanMessage("Hi")]}, "Hi"),
        (
            {
                "messages": [
                    HumanMessage(
                        [
                            {"type": "text", "text": "What is this?"},
                            {"type": "image_url", "image_url": {"url": "data:…"}},
                            {"type": "input_text", "text": "Tell me"},
                        ]
                    )
                ]
            },
            "What is this?\nTell me",
        ),
        ({"question": "Why?", "history": "long"}, "Why?"),
        ({"anything": "The only text", "n": 3}, "The only text"),
        ({"a": "two", "b": "texts"}, None),
        (Form(request="Fill it in"), "Fill it in"),
        (Slotted("Where?"), "Where?"),
        ([HumanMessage("In a list")], "In a list"),
        (HumanMessage("Alone"), "Alone"),
        ("Just text", "Just text"),
        (None, None),
        (Command(resume="yes"), None),
        (3.5, None),
    ],
)
def test_where_the_task_is_found(value: Any, task: str | None) -> None:
    assert task_of_input(value) == task


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("[Tue 2026-03-03 09:12 UTC] Fix it", "Fix it"),
        ("[Chat +49 170 2026-03-03 09:12] [09:13] Fix it", "Fix it"),
        ("[2026-03-03] Fix it", "Fix it"),
        ("[see ticket 2026-03-03] printer broken", "[see ticket 2026-03-03] printer broken"),
        ("[urgent] Fix it", "[urgent] Fix it"),
        ("<system-reminder>Be brief</system-reminder>Fix it", "Fix it"),
        ("Fix <metadata a='b'>x</metadata>it", "Fix it"),
        ("Fix <metadata>it", "Fix <metadata>it"),
        ('Sender (untrusted metadata):\n```json\n{"id": 7}\n```\n\nFix it', "Fix it"),
        ("About (untrusted metadata): what is it?", "About (untrusted metadata): what is it?"),
        ("<system-reminder>only this</system-reminder>", ""),
    ],
)
def test_what_counts_as_envelope(text: str, bare: str) -> None:
    assert strip_envelope(text) == bare


def test_a_message_that_is_all_envelope_is_passed_over() -> None:
    reminder = HumanMessage("<system-reminder>Be brief</system-reminder>")
    assert task_of_input({"messages": [HumanMessage("Fix it"), reminder]}) == "Fix it"


@given(st.text(alphabet="<>/[]metadata-system:`(untrusted) \n0123456789") | st.text())
def test_any_text_gives_a_text_no_longer_than_it_was(text: str) -> None:
    assert len(strip_envelope(text)) <= max(len(text), 0) + 1


@pytest.mark.parametrize(
    "piece",
    ["<metadata>", "<metadata ", "</metadata>", "[2026-03-03 ", "(untrusted metadata):```", "[1:1"],
)
def test_hostile_text_takes_no_time(piece: str) -> None:
    start = time.perf_counter()
    strip_envelope(piece * 100_000)
    # Far above what it needs, far below what a backtracking pattern would take.
    assert time.perf_counter() - start < 1.0
