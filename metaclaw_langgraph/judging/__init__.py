"""Judging: who says whether a run was good, and how that is read.

VerifierJudge   the user's own check
LLMJudge        a chat model that scores each step and the outcome
FeedbackJudge   a person: feedback in MLflow, or the next turn of the conversation
"""

from __future__ import annotations

from metaclaw_langgraph.judging.base import Judge, JudgeError
from metaclaw_langgraph.judging.feedback import FeedbackJudge
from metaclaw_langgraph.judging.llm import LLMJudge
from metaclaw_langgraph.judging.verifier import VerifierJudge

__all__ = ["FeedbackJudge", "Judge", "JudgeError", "LLMJudge", "VerifierJudge"]
