"""The same home and wrapper as in the tests of wrapping; a ledger, and things to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaclaw_langgraph.ledger import Ledger
from tests.learning.support import ALWAYS, RETRIEVAL, Held, Passes
from tests.wrapping.conftest import _no_settings_from_outside, home, wrap

__all__ = ["_no_settings_from_outside", "home", "wrap"]

Learn = Callable[..., Any]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(monkeypatch)


@pytest.fixture
def held() -> Iterator[Held]:
    call = Held()
    yield call
    call.free.set()


@pytest.fixture
def learning(wrap: Learn) -> Learn:
    """`with_metaclaw` with vectors of words; a skill on probation is never withheld."""

    def wrapped(graph: Any, **settings: Any) -> Any:
        evolving = {**ALWAYS, **settings.pop("evolving", {})}
        return wrap(graph, **{"retrieval": RETRIEVAL, "evolving": evolving, **settings})

    return wrapped
