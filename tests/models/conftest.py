from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from metaclaw_langgraph.models import LocalChatModel
from tests.models.support import converted_home


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes tens of seconds")


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the converted model."""
    return Path(converted_home(tmp_path_factory))


@pytest.fixture(scope="session")
def model(home: Path) -> LocalChatModel:
    """The embedded model, greedy, with short answers."""
    return LocalChatModel(home=home, max_new_tokens=14)


QUESTION = "What is the capital of France?"


@pytest.fixture(scope="session")
def answer(model: LocalChatModel) -> AIMessage:
    """The model's answer to the question."""
    return model.invoke(QUESTION)
