"""Embedders for tests, named in settings as `tests.wrapping.embedders:Topics`."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import numpy as np

from metaclaw_langgraph.skills.embedding import Vector

TOPICS = "tests.wrapping.embedders:Topics"
RAISING = "tests.wrapping.embedders:Raising"
HANGING = "tests.wrapping.embedders:Hanging"

released = threading.Event()
"""Set at the end of a test to let the hanging threads go."""


class Topics:
    """`topic-7` is one direction, `topic-8` another; text without a topic is a third.

    Directions are random, not orthogonal: with vectors all equally far from each other, Chroma's
    approximate index can lose sight of some.
    """

    id = "topics"
    dim = 64

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    def _vector(self, text: str) -> Vector:
        found = re.search(r"topic[- ](\d+)", text)
        seed = int(found[1]) + 1 if found else 0
        vector = np.random.default_rng(seed).standard_normal(self.dim)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


class Raising(Topics):
    """Reads skills but not tasks."""

    def embed_query(self, text: str) -> Vector:
        raise RuntimeError("no vector for you")


class Hanging(Topics):
    """Never answers a task."""

    def embed_query(self, text: str) -> Vector:
        released.wait()
        raise RuntimeError("too late")
