"""The embedded model for tests: converted once for the whole test run."""

from __future__ import annotations

import os

import pytest

from metaclaw_langgraph.models.embedded import WEIGHTS_COMMAND, embedded_model_dir, find_weights

needs_weights = pytest.mark.skipif(
    find_weights() is None, reason=f"the embedded model's weights are missing: {WEIGHTS_COMMAND}"
)


def converted_home(factory: pytest.TempPathFactory) -> str:
    """A home with the converted model, the same one for all workers of pytest-xdist."""
    base = factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "embedded-model"
    embedded_model_dir(home)
    return str(home)
