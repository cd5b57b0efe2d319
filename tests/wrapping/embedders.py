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
    """`topic-7` is one direction, `topic-8` another; text without a topic is a third."""

    id = "topics"
    dim = 256

    def embed_documents(self, texts: Sequence[str]) -> Vector:
        return np.stack([self._vector(text) for text in texts])

    def embed_query(self, text: str) -> Vector:
        return self._vector(text)

    def _vector(self, text: str) -> Vector:
        found = re.search(r"topic[- ](\d+)", text)
        vector = np.zeros(self.dim, dtype=np.float32)
        vector[int(found[1]) if found else -1] = 1.0
        return vector


class Raising(Topics):
    """Reads skills but not tasks."""

    def embed_query(self, text: str) -> Vector:
        raise RuntimeError("no vector for you")


class Hanging(Topics):
    """Never answers a task."""

    def embed_query(self, text: str) -> Vector:
        released.wait()
        raise RuntimeError("too late")
