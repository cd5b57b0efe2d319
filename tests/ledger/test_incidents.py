"""Incidents add up, and say when and what was last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from metaclaw_langgraph.ledger import Incident, IncidentRecord, Ledger

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def minute(n: int) -> datetime:
    return NOON + timedelta(minutes=n)


def test_incidents_of_a_kind_add_up(ledger: Ledger) -> None:
    ledger.add_incidents("agent", [Incident("chroma", "timeout", 2, "slow", minute(5))])
    ledger.add_incidents(
        "agent",
        [
            Incident("chroma", "timeout", 1, "slower", minute(7)),
            Incident("chroma", "timeout", 1, "older news", minute(1)),
            Incident("queue", "overflow", 9, "full", minute(6)),
        ],
    )
    ledger.add_incidents("agent", [])
    assert ledger.incidents("agent") == [
        IncidentRecord("chroma", "timeout", 4, "slower", minute(1), minute(7)),
        IncidentRecord("queue", "overflow", 9, "full", minute(6), minute(6)),
    ]
    assert ledger.incidents("other") == []
    assert ledger.namespaces() == ["agent"]


def test_messages_are_redacted(ledger: Ledger) -> None:
    word = "tr0ub4dor"
    message = f"cannot reach postgresql://me:{word}@db/x"
    ledger.add_incidents("agent", [Incident("ledger", "down", 1, message, NOON)])
    assert word not in ledger.incidents("agent")[0].message
