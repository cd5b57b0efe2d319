"""`FeedbackJudge`: what people say about a run, in MLflow or in their next message.

A person speaks after the run, so `judge` has no opinion; the two readings are for the parts that
hear of it later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from pydantic import BaseModel, Field

from metaclaw_langgraph._messages import message_text
from metaclaw_langgraph.judging.answers import answer_of, read_answer
from metaclaw_langgraph.judging.base import JudgeError, model_name, require_model
from metaclaw_langgraph.judging.structured import reply
from metaclaw_langgraph.judging.transcript import DATA_RULE, cut, quoted, transcript
from metaclaw_langgraph.judging.turns import score_of_turn
from metaclaw_langgraph.judging.words import score_of_word
from metaclaw_langgraph.types import Trajectory, Verdict, VerdictSource

__all__ = ["NEXT_TURN", "FeedbackJudge"]

NEXT_TURN = "next turn"
"""The author, and the origin, of a verdict that was read from the user's next message. Its reason
is that message, word for word, so it is no more to be trusted than any other user message."""

# True under such a name is no praise, and 1 may be the lowest of five stars.
_OTHERWISE = re.compile(
    r"toxi|halluc|harm|unsafe|refus|bias|offens|abus|error|mistake|bug|bad|wrong|incorrect|fail|"
    r"issue|problem|spam|leak|violat|irrelevant|rating|stars?\b|likert|nps|rank",
    re.IGNORECASE,
)

_SYSTEM = f"""\
You read what a user wrote after an AI assistant had answered. Say whether the user's message \
shows that the assistant's work was good or bad.

{DATA_RULE}

 1  the user is satisfied with that work
-1  the user corrects it, complains, or asks for the same again because it was not done right
 0  neither: a new request, an answer to a question, small talk, or you cannot tell

Answer with JSON and nothing else: {{"reason": "a few words", "outcome": 0}}"""


class _Reading(BaseModel):
    """What the user's message says about the work."""

    reason: str = Field(description="a few words")
    outcome: int = Field(description="-1, 0 or 1")


class FeedbackJudge:
    """Reads a person's verdict.

    model: reads the next message; without one, only clear English phrases count.
    names: the MLflow assessments that count; None for all whose name does not turn them round
        (the setting `judging.feedback_names`).
    """

    source: VerdictSource = "human"
    name = "feedback"

    def __init__(
        self, model: BaseChatModel | None = None, *, names: Collection[str] | None = None
    ) -> None:
        if model is not None:
            require_model(model, "FeedbackJudge")
        self._model = model
        self._names = None if names is None else frozenset(names)

    def judge(self, trajectory: Trajectory) -> None:
        """None: when a run has just ended, no person has said anything yet."""
        return

    def of_assessments(self, assessments: Sequence[Mapping[str, Any]]) -> list[Verdict]:
        """The verdicts in MLflow assessments, as `Assessment.to_dictionary()` writes them.

        People's feedback on the whole trace counts: thumbs and yes/no, which MLflow stores as
        booleans, numbers from -1 to 1, and a few words like "pass". Feedback on an inner span
        says nothing about the outcome. The name is free in MLflow (its thumbs write "User
        feedback"), so all names count but those where True means bad ("hallucinated") or 1 is
        the low end of a scale ("rating"). Oldest first, so that the latest is stored last.
        """
        valid = [one for one in assessments if self._counts(one)]
        overridden = [one["overrides"] for one in assessments if one.get("overrides")]
        verdicts = [_verdict(one) for one in valid if one.get("assessment_id") not in overridden]
        found = [verdict for verdict in verdicts if verdict is not None]
        return sorted(found, key=lambda verdict: verdict.at or datetime.min.replace(tzinfo=UTC))

    def of_next_turn(self, trajectory: Trajectory, turn: str) -> Verdict | None:
        """What the user's next message in the thread says about this run; None for nothing.

        JudgeError when the model's answer cannot be read.
        """
        if not turn.strip():
            return None
        if self._model is None:
            score = score_of_turn(turn)
            # "Perfect" may be the answer to a question.
            score = None if score == 1 and _asked_back(trajectory) else score
        else:
            score = self._asked(self._model, trajectory, turn)
        if not score:
            return None
        return Verdict(float(score), self.source, turn, author=NEXT_TURN, origin=NEXT_TURN)

    def _asked(self, model: BaseChatModel, trajectory: Trajectory, turn: str) -> int:
        question = (
            f"The record of the work:\n{quoted(transcript(trajectory))}\n\n"
            f"What the user wrote next:\n{quoted(cut(turn, 4_000))}"
        )
        given = reply(model, [SystemMessage(_SYSTEM), HumanMessage(question)], _Reading)
        parsed = None if given.parsed is None else answer_of(given.parsed.model_dump())
        answer = parsed or read_answer(given.text)
        if answer is None:
            said = cut(" ".join(given.text.split()), 200)
            raise JudgeError(f"{model_name(model)} gave no clear score: {said!r}")
        return answer.outcome

    def _counts(self, assessment: Mapping[str, Any]) -> bool:
        source = assessment.get("source")
        human = isinstance(source, Mapping) and source.get("source_type") == "HUMAN"
        about_all = not assessment.get("span_id") and assessment.get("valid", True) is not False
        return human and about_all and self._named(str(assessment.get("assessment_name") or ""))

    def _named(self, name: str) -> bool:
        if self._names is not None:
            return name in self._names
        # MLflow's own, such as the notes beside a trace, are no feedback.
        return not name.startswith("mlflow.") and not _OTHERWISE.search(name)


def _asked_back(trajectory: Trajectory) -> bool:
    """Whether the assistant's last words were a question."""
    last = next((call.response for call in reversed(trajectory.calls)), None)
    return last is not None and message_text(trajectory.messages[last]).rstrip().endswith("?")


def _verdict(assessment: Mapping[str, Any]) -> Verdict | None:
    feedback, source = assessment.get("feedback"), assessment["source"]
    if not isinstance(feedback, Mapping) or feedback.get("error"):
        return None
    reward = _reward(feedback.get("value"))
    if reward is None:
        return None
    updated = assessment.get("last_update_time")
    return Verdict(
        reward=reward,
        source="human",
        reason=str(assessment.get("rationale") or ""),
        author=source.get("source_id") or None,
        at=_time(updated),
        origin=f"mlflow:{assessment.get('assessment_id')}:{updated}",
    )


def _reward(value: object) -> float | None:
    if isinstance(value, bool):
        return 1.0 if value else -1.0
    if isinstance(value, int | float):
        return float(value) if -1 <= value <= 1 else None
    score = score_of_word(value) if isinstance(value, str) else None
    return None if score is None else float(score)


def _time(text: object) -> datetime | None:
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
