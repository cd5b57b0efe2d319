"""One holder at a time, until it gives up or its time is up."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from metaclaw_langgraph.ledger import Ledger

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def test_a_lease_has_one_holder_until_it_expires(ledger: Ledger) -> None:
    assert ledger.acquire_lease("agent", "evolve", "one", 60, now=at(0))
    assert not ledger.acquire_lease("agent", "evolve", "two", 60, now=at(59.9))
    assert ledger.acquire_lease("agent", "evolve", "one", 60, now=at(30))
    assert not ledger.acquire_lease("agent", "evolve", "two", 60, now=at(89.9))
    assert ledger.acquire_lease("agent", "evolve", "two", 60, now=at(90))
    assert not ledger.acquire_lease("agent", "evolve", "one", 60, now=at(91))


def test_leases_of_other_names_and_namespaces_are_others(ledger: Ledger) -> None:
    assert ledger.acquire_lease("agent", "evolve", "one", 60, now=at(0))
    assert ledger.acquire_lease("agent", "judge", "two", 60, now=at(0))
    assert ledger.acquire_lease("other", "evolve", "two", 60, now=at(0))


def test_only_the_holder_gives_a_lease_back(ledger: Ledger) -> None:
    ledger.acquire_lease("agent", "evolve", "one", 60)
    ledger.release_lease("agent", "evolve", "two")
    assert not ledger.acquire_lease("agent", "evolve", "two", 60)
    ledger.release_lease("agent", "evolve", "one")
    ledger.release_lease("agent", "evolve", "one")
    assert ledger.acquire_lease("agent", "evolve", "two", 60)


def test_of_many_that_ask_at_once_one_gets_it(ledger: Ledger) -> None:
    got: list[str] = []
    together = threading.Barrier(8)

    def ask(holder: str) -> None:
        together.wait()
        if ledger.acquire_lease("agent", "evolve", holder, 60, now=NOON):
            got.append(holder)

    threads = [threading.Thread(target=ask, args=(f"h{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
