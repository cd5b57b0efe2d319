"""The shipped skills and tasks: they are sound, and retrieval finds what it should in them."""

from __future__ import annotations

import numpy as np

from benchmarks import quality
from metaclaw_langgraph.skills.embedding import MiniLMInt8, skill_text

MIN_SCORE = 0.25


def test_each_skill_has_paraphrased_tasks_and_some_tasks_have_no_skill() -> None:
    skills, tasks = quality.load()
    assert len(skills) >= 60
    for skill in skills:
        assert sum(task.skill == skill.name for task in tasks) >= 2
    assert sum(task.skill is None for task in tasks) >= 30
    assert len({task.task for task in tasks}) == len(tasks)
    assert quality.word_overlap(skills, tasks) < 0.1


def test_tasks_find_their_skills_and_unrelated_ones_find_nothing(minilm: MiniLMInt8) -> None:
    """Floors well below what benchmarks/results/quality.md shows, to catch a broken model."""
    skills, tasks = quality.load()
    texts = minilm.embed_documents([skill_text(skill) for skill in skills])
    scores = np.stack([minilm.embed_query(task.task) for task in tasks]) @ texts.T
    column = {skill.name: number for number, skill in enumerate(skills)}
    fitting = [row for row, task in enumerate(tasks) if task.skill]
    places = quality.ranks(scores[fitting], [column[str(tasks[row].skill)] for row in fitting])
    assert (places <= 5).mean() > 0.8
    assert (places <= 1).mean() > 0.5
    unrelated = [row for row, task in enumerate(tasks) if not task.skill]
    assert (scores[unrelated].max(axis=1) < MIN_SCORE).mean() > 0.8
