"""Reading a model's answer: what is clear is read, what is not is None."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from metaclaw_langgraph.judging.answers import Answer, answer_of, find_json, read_answer
from metaclaw_langgraph.judging.words import score_of

SCORES = st.sampled_from([-1, 0, 1])
STEPS = st.dictionaries(st.integers(1, 30), SCORES, max_size=6)
REASONS = st.text(max_size=80).map(str.strip)
# Talk around an answer; whatever states an outcome of its own is another answer.
NOISE = st.text(st.sampled_from("abc xyz,.!?\n-*#()'0123456789"), max_size=60)


@pytest.mark.parametrize(
    ("text", "outcome", "steps"),
    [
        ('{"outcome": -1, "steps": [{"step": 1, "score": 0}]}', -1, {1: 0}),
        ('```json\n{"outcome": 1}\n```', 1, {}),
        ('Here it is:\n```\n{"outcome": 1, "steps": [1, -1],}\n```\nDone.', 1, {1: 1, 2: -1}),
        ("I say {'outcome': -1, 'reason': 'it\\'s wrong'} and no more", -1, {}),
        ("{outcome: +1, steps: {1: 0}}", 1, {}),
        ('{"Final score": "+1", "step_1": "good", "Step 2": "bad"}', 1, {1: 1, 2: -1}),
        ('{"verdict": {"score": -1, "why": "late"}}', -1, {}),
        ('{"judgement": {"outcome": 0, "steps": {"step 3": {"score": 1}}}}', 0, {3: 1}),
        ('[{"outcome": false}]', -1, {}),
        ('{"outcome": "not correct"}', -1, {}),
        ('<think>{"outcome": 1} or so? Outcome: 1</think>{"outcome": -1}', -1, {}),
        ('{"reason": "it broke off", "outcome": -1, "steps": [{"step": 1, "sc', -1, {}),
        ('{"outcome": -1, "reason": "line one\nline two"}', -1, {}),
        ('{"id": 7, "outcome": -1}', -1, {}),
        ('{"outcome": 1, "steps": [{"step": 1, "score": 1}, {"step": 1, "score": -1}]}', 1, {}),
        ('{"outcome": 1, "steps": [{"step": 0, "score": 1}, {"step": 1, "score": -1}]}', 1, {}),
        ("Outcome: -1", -1, {}),
        ("**Outcome:** \u22121", -1, {}),
        ("Final score: +1", 1, {}),
        ("final_score = 0", 0, {}),
        ("The outcome is -1, because the tool said 7.", -1, {}),
        ("Step 1: +1\nStep 2: 0 because it waited\nOverall: -1", -1, {1: 1, 2: 0}),
        ("Step 1 (search): 1. Step 2 score: bad.\nVerdict: good", 1, {1: 1, 2: -1}),
        ("Step 1: 1\nStep 1: -1\nOutcome: 1", 1, {}),
        ("Verdict: fail", -1, {}),
        ("- Score: 1", 1, {}),
        ("The count is wrong.", -1, {}),
        ("The answer is correct.", 1, {}),
        ("The assistant failed.", -1, {}),
        ("-1", -1, {}),
        ("Good.", 1, {}),
        ("It called the tool and then made up a number.\n-1", -1, {}),
    ],
)
def test_clear_answers(text: str, outcome: int, steps: dict[int, int]) -> None:
    answer = read_answer(text)
    assert answer is not None
    assert (answer.outcome, dict(answer.steps)) == (outcome, steps)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "I cannot judge this.",
        "{}",
        "[1, 2, 3]",
        '{"step": 1, "score": 1}',
        '{"outcome": 5}',
        '{"outcome": 0.5}',
        '{"outcome": null}',
        '{"outcome": 1, "verdict": "bad"}',
        '{"outcome": 1} or rather {"outcome": -1}',
        'Outcome: -1\n```json\n{"outcome": 1}\n```',
        "<think>Outcome: 1",
        "Outcome: 1 or -1",
        "Outcome: -1, 0 or 1",
        "Outcome: good or bad",
        "Score: 1/5",
        "Score: 1 out of 5",
        "Score: 10",
        "Score: 1.5",
        "Score: 0.8",
        "Outcome: 1 if all went well",
        "Outcome: 1 apple",
        "Outcome: -1. On reflection, the outcome: 1.",
        "Step 1: -1\nStep 2: 1",
        "The tool's result was 0.",
        "Step 2 result: 1",
        "The outcome is not bad.",
        "It is hard to say whether the answer is correct.",
        "The tool failed. The answer is correct.",
        "It is not good.",
        "There is no error.",
        "No",
        "Is it good?",
        "If it is correct, then good.",
        "1\n2\n1",
    ],
)
def test_nothing_is_guessed(text: str) -> None:
    assert read_answer(text) is None


def test_the_reason_is_read_too() -> None:
    answer = read_answer('{"outcome": 1, "rationale": " it is right "}')
    assert answer == Answer(1, {}, "it is right")
    spoken = read_answer("Outcome: 1. It was quick.")
    assert spoken is not None
    assert spoken.reason == "Outcome: 1. It was quick."


@settings(deadline=None)
@given(st.text() | st.text(st.sampled_from("{}[]\"':,01+-outcmesp \n`_\\"), max_size=200))
@example("[" * 5000)
@example('{"a":' * 5000)
@example('{"outcome": ' + "9" * 6000 + "}")
@example('{"outcome": 1e999}')
@example('{"outcome": NaN}')
@example("{'outcome': '\\ud800'}")
@example("{" + "'a\\" * 30_000)
@example('{"a\\')
@example("[{" * 30_000)
@example("{" + "a" * 60_000 + "}")
@example("step " * 20_000 + "1: 1")
@example("outcome" + " " * 50_000 + "is")
def test_any_text_is_read_without_an_error(text: str) -> None:
    answer = read_answer(text)
    find_json(text)
    if answer is not None:
        assert answer.outcome in (-1, 0, 1)
        assert all(n > 0 and score in (-1, 0, 1) for n, score in answer.steps.items())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("outcome"), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_read_without_an_error(value: Any) -> None:
    answer = answer_of(value)
    assert answer is None or answer.outcome in (-1, 0, 1)
    assert score_of(value) in (None, -1, 0, 1)


@settings(deadline=None)
@given(JSON.filter(lambda value: isinstance(value, dict | list)), NOISE, NOISE)
def test_json_is_found_inside_prose(value: Any, before: str, after: str) -> None:
    text = f"{before}{json.dumps(value)}{after}"
    assert find_json(text) == value
    assert find_json(f"{before}\n```json\n{json.dumps(value, indent=2)}\n```\n{after}") == value


@settings(deadline=None)
@given(SCORES, STEPS, REASONS, NOISE, NOISE, st.booleans(), st.booleans())
def test_json_answers_come_back(
    outcome: int,
    steps: dict[int, int],
    reason: str,
    before: str,
    after: str,
    listed: bool,
    fenced: bool,
) -> None:
    scored: Any = [{"step": n, "score": s} for n, s in steps.items()] if listed else steps
    text = json.dumps({"reason": reason, "steps": scored, "outcome": outcome})
    text = f"```json\n{text}\n```" if fenced else text
    assert read_answer(f"{before}\n{text}\n{after}") == Answer(outcome, steps, reason)


@settings(deadline=None)
@given(SCORES, STEPS, st.sampled_from(["Outcome", "Final score", "**Verdict**", "overall"]))
def test_prose_answers_come_back(outcome: int, steps: dict[int, int], label: str) -> None:
    lines = [f"Step {n}: {score:+d} because of this and that." for n, score in steps.items()]
    answer = read_answer("\n".join(["I looked at it.", *lines, f"{label}: {outcome}"]))
    assert answer is not None
    assert (answer.outcome, dict(answer.steps)) == (outcome, steps)


@settings(deadline=None)
@given(SCORES, st.sampled_from([",", "", "  ,\n"]))
def test_faulty_json_comes_back(outcome: int, comma: str) -> None:
    text = f"{{'reason': 'a \"b\" c', 'done': True, 'none': None, 'outcome': {outcome:+d}{comma}}}"
    assert read_answer(text) == Answer(outcome, {}, 'a "b" c')


def test_the_longest_json_is_found() -> None:
    assert find_json('see [1]: {"skills": [{"name": "a"}]} {x}') == {"skills": [{"name": "a"}]}
    assert find_json("nothing here {or here") is None
    assert find_json("[" * 30 + '{"a": 1}') == {"a": 1}
