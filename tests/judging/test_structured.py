"""Asking for an answer of a given form."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from metaclaw_langgraph.judging.structured import ask
from tests.judging.support import ProseModel, RefusingModel, ToolModel, called

PROMPT = [HumanMessage("Which colours?")]


class Colours(BaseModel):
    """Some colours."""

    colours: list[str]


@pytest.mark.parametrize(
    "model",
    [
        ProseModel(answers=['Of course: {"colours": ["red"]}']),
        ProseModel(answers=["```json\n['red',]\n```"]),
        ProseModel(answers=['Not [1] but {"colours": ["red"]}, see {"x": 1}.']),
        ToolModel(answers=[called("Colours", colours=["red"])]),
        ToolModel(answers=['{"colours": ["red"]}']),
        ToolModel(answers=[called("Other", colours=["red"])]),
        RefusingModel(answers=['{"colours": ["red"]}']),
    ],
    ids=["prose", "bare list", "among others", "tool call", "text", "other tool", "refused"],
)
def test_stand_ins_are_read(model: ProseModel) -> None:
    assert ask(model, PROMPT, Colours) == Colours(colours=["red"])


@pytest.mark.parametrize("said", ["", "I like red.", '{"colours": 3}', '{"colours": ["r'])
def test_unreadable_answers_of_a_stand_in(said: str) -> None:
    assert ask(ProseModel(answers=[said]), PROMPT, Colours) is None
    assert ask(ToolModel(answers=[AIMessage(said)]), PROMPT, Colours) is None


def test_what_a_stand_in_raises_is_raised() -> None:
    for model in (ProseModel, ToolModel):
        with pytest.raises(OSError, match="no route"):
            ask(model(answers=[OSError("no route")]), PROMPT, Colours)
