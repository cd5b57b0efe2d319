"""People's verdicts, from MLflow and from what they write next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaclaw_langgraph import ConfigError
from metaclaw_langgraph.judging import FeedbackJudge, Judge, JudgeError
from metaclaw_langgraph.judging.turns import score_of_turn
from metaclaw_langgraph.types import Trajectory, Verdict
from tests.judging.support import ProseModel, ToolModel, called
from tests.wrapping.conftest import Wrap
from tests.wrapping.graphs import scripted
from tests.wrapping.support import ask, only, talk

TIME = 1_750_000_000_123


def assessment(value: Any, /, **fields: Any) -> dict[str, Any]:
    """As MLflow itself writes it."""
    from mlflow.entities import AssessmentSource, Feedback

    source = AssessmentSource(fields.pop("by", "HUMAN"), fields.pop("who", "ada"))
    given = {"name": "User feedback", "create_time_ms": TIME, "last_update_time_ms": TIME}
    id = fields.pop("id", "a-1")
    made = Feedback(value=value, source=source, **{**given, **fields})
    made.assessment_id = id
    found: dict[str, Any] = made.to_dictionary()  # type: ignore[no-untyped-call]
    return found


def rewards(*assessments: dict[str, Any], **options: Any) -> list[float]:
    return [one.reward for one in FeedbackJudge(**options).of_assessments(assessments)]


def test_a_thumb_in_mlflow() -> None:
    given = assessment(False, rationale="it forgot the date", trace_id="tr-1")
    assert FeedbackJudge().of_assessments([given]) == [
        Verdict(
            -1.0,
            "human",
            "it forgot the date",
            author="ada",
            at=datetime.fromtimestamp(TIME / 1000, UTC),
            origin="mlflow:a-1:2025-06-15T15:06:40.123Z",
        )
    ]


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        (True, 1.0),
        (False, -1.0),
        (1, 1.0),
        (0.25, 0.25),
        (-1.0, -1.0),
        ("yes", 1.0),
        ("No", -1.0),
        ("thumbs up", 1.0),
        ("THUMBS_DOWN", -1.0),
        ("thumbs-down", -1.0),
        ("👍", 1.0),
        ("positive", 1.0),
        ("negative", -1.0),
        ("pass", 1.0),
    ],
)
def test_values_that_count(value: Any, reward: float) -> None:
    assert rewards(assessment(value)) == [reward]


@pytest.mark.parametrize(
    "value", [5, -2, "a long remark on the answer", "", ["yes"], {"ok": True}, None]
)
def test_values_that_do_not_count(value: Any) -> None:
    assert rewards(assessment(value)) == []


def test_only_people_count() -> None:
    assert rewards(assessment(True, by="LLM_JUDGE"), assessment(True, by="CODE")) == []


def test_feedback_on_an_inner_span_does_not_count() -> None:
    assert rewards(assessment(False, span_id="0123456789abcdef")) == []


def test_overridden_feedback_does_not_count() -> None:
    assert rewards(assessment(True, valid=False), assessment(False, overrides="a-1", id="a-2")) == [
        -1.0
    ]
    # Also where the store has not marked it.
    assert rewards(assessment(True), assessment(False, overrides="a-1", id="a-2")) == [-1.0]


def test_other_assessments_do_not_count() -> None:
    from mlflow.entities import AssessmentSource, Expectation

    source = AssessmentSource("HUMAN", "ada")
    made = Expectation(name="expected", value=True, source=source)
    expected = made.to_dictionary()  # type: ignore[no-untyped-call]
    failed = assessment(None, error=ValueError("no"))
    assert (
        rewards(expected, failed, {}, {"source": None}, {"source": {"source_type": "HUMAN"}}) == []
    )


@pytest.mark.parametrize("name", ["hallucinated", "is_toxic", "Rating", "mlflow.notes", "stars"])
def test_names_that_turn_the_meaning_round(name: str) -> None:
    assert rewards(assessment(True, name=name)) == []
    assert rewards(assessment(True, name=name), names=[name]) == [1.0]


@pytest.mark.parametrize("name", ["User feedback", "feedback", "correctness", "helpful", "safe"])
def test_names_that_count(name: str) -> None:
    assert rewards(assessment(True, name=name)) == [1.0]
    assert rewards(assessment(True, name=name), names=["other"]) == []


def test_the_latest_comes_last_and_an_update_is_a_new_verdict() -> None:
    later = assessment(False, last_update_time_ms=TIME + 5_000)
    first, second = FeedbackJudge().of_assessments([later, assessment(True, who="")])
    assert (first.reward, first.author) == (1.0, None)
    assert second.reward == -1.0
    assert first.origin != second.origin


KEYS = st.sampled_from(
    ["source", "feedback", "overrides", "valid", "span_id", "assessment_id", "last_update_time"]
)
VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
TABLES = st.dictionaries(KEYS, VALUES | st.fixed_dictionaries({"value": VALUES}))


@settings(deadline=None)
@given(st.lists(TABLES))
def test_any_table_is_read_without_an_error(tables: list[dict[str, Any]]) -> None:
    human = {"source_type": "HUMAN", "source_id": "ada"}
    for verdict in FeedbackJudge().of_assessments([{**t, "source": human} for t in tables]):
        assert -1 <= verdict.reward <= 1


# ---------------------------------------------------------------- the next turn


@pytest.mark.parametrize(
    "turn",
    [
        "No, I meant the one in Texas.",
        "no i meant Paris, Texas",
        "That's wrong.",
        "That\u2019s wrong, the capital is Bern.",
        "that is not correct",
        "Sorry, but that's not what I asked for",
        "It isn't right. Look again.",
        "You forgot the second part",
        "Thanks, but you forgot the date.",
        "you missed the point",
        "Hmm, you misunderstood me",
        "You didn't answer my question.",
        "I asked for five, not three",
        "It still doesn't work",
        "wrong!",
        "Not what I wanted.",
        "Okay. Your answer is wrong.",
        "No, it should be in euros",
    ],
)
def test_corrections(turn: str, talked: Trajectory) -> None:
    found = FeedbackJudge().of_next_turn(talked, turn)
    assert found == Verdict(-1.0, "human", turn, author="next turn", origin="next turn")


@pytest.mark.parametrize(
    "turn",
    [
        "Thanks, perfect!",
        "Perfect, thank you very much",
        "perfect. Now book the hotel",
        "That's exactly what I needed",
        "Great job!",
        "It works now, thanks",
        "Excellent!",
    ],
)
def test_praise(turn: str, talked: Trajectory) -> None:
    found = FeedbackJudge().of_next_turn(talked, turn)
    assert found == Verdict(1.0, "human", turn, author="next turn", origin="next turn")


@pytest.mark.parametrize(
    "turn",
    [
        "",
        "  ",
        "thanks",
        "No",
        "No, thanks",
        "No, that's all for today",
        "no problem",
        "yes",
        "And the capital of Spain?",
        "Is that wrong?",
        "That's wrong?",
        "Tell me if that's wrong",
        "It's wrong to steal. Write an essay on that.",
        'He said "you forgot the keys"',
        "Great, another error",
        "Perfect, but it fails on Mondays",
        "Is it perfect?",
        "Great question",
        "excellent restaurants in Rome",
        "I meant to thank you",
        "You forgot nothing, well",
        "Write a poem about a wrong turn",
        "What did I get wrong?",
        "the right answer is 42, I think",
        "correct",
    ],
)
def test_turns_that_say_nothing(turn: str, talked: Trajectory) -> None:
    assert FeedbackJudge().of_next_turn(talked, turn) is None


def test_praise_that_answers_a_question(wrap: Wrap) -> None:
    agent = wrap(talk(scripted("Shall I book it for eight?")))
    agent.invoke(ask("Book a table"))
    one = only(agent)
    assert FeedbackJudge().of_next_turn(one, "Perfect!") is None
    assert FeedbackJudge().of_next_turn(one, "No, I meant nine") is not None


@settings(deadline=None)
@given(st.text(max_size=500))
def test_any_turn_is_read_without_an_error(turn: str) -> None:
    assert score_of_turn(turn) in (None, 1, -1)


@pytest.mark.parametrize(("said", "reward"), [("-1", -1.0), ('{"outcome": 1}', 1.0), ("0", None)])
def test_a_stand_in_reads_the_next_turn(
    said: str, reward: float | None, talked: Trajectory
) -> None:
    model = ProseModel(answers=[said])
    found = FeedbackJudge(model).of_next_turn(talked, "Hm, and in summer?")
    assert (None if found is None else found.reward) == reward
    assert found is None or found.reason == "Hm, and in summer?"
    shown = str(model.prompts[0][-1].content)
    assert "echo Name the capital of France." in shown
    assert shown.count("</data-") == 2


def test_a_stand_in_with_structured_output_reads_the_next_turn(talked: Trajectory) -> None:
    model = ToolModel(answers=[called("_Reading", reason="a complaint", outcome=-1)])
    found = FeedbackJudge(model).of_next_turn(talked, "Seriously?")
    assert found is not None
    assert (found.reward, found.reason) == (-1.0, "Seriously?")


def test_an_unreadable_answer_of_a_stand_in(talked: Trajectory) -> None:
    with pytest.raises(JudgeError, match=r"ProseModel gave no clear score: 'Well\.'"):
        FeedbackJudge(ProseModel(answers=["Well."])).of_next_turn(talked, "So?")


def test_it_is_a_judge_without_an_opinion(talked: Trajectory) -> None:
    judge: Judge = FeedbackJudge()
    assert isinstance(judge, Judge)
    assert (judge.source, judge.name) == ("human", "feedback")
    assert judge.judge(talked) is None
    wrong: Any = object()
    with pytest.raises(ConfigError, match="FeedbackJudge takes a LangChain chat model"):
        FeedbackJudge(wrong)
