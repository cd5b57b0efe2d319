"""Incidents: what went wrong where no user sees it, added up for `metaclaw status`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Insert, case, select

from metaclaw_langgraph.ledger.schema import incidents
from metaclaw_langgraph.ledger.store import Store, clean, require_namespace
from metaclaw_langgraph.ledger.values import Incident, IncidentRecord

__all__ = ["IncidentStore"]

_KEY = ["namespace", "part", "kind"]
_MESSAGE_LIMIT = 500


class IncidentStore(Store):
    """The part of the ledger that counts incidents."""

    def add_incidents(self, namespace: str, new: Sequence[Incident]) -> None:
        """Add to the counts of (part, kind); the latest message is kept."""
        require_namespace(namespace)
        rows = [self._incident_row(namespace, one) for one in _sorted(new)]
        if not rows:
            return
        with self._write() as connection:
            self._know(connection, [namespace])
            connection.execute(self._incident_upsert(), rows)

    def incidents(self, namespace: str) -> list[IncidentRecord]:
        """All incidents, the latest first."""
        row = incidents.c
        query = (
            select(row.part, row.kind, row.count, row.message, row.first_at, row.last_at)
            .where(row.namespace == require_namespace(namespace))
            .order_by(row.last_at.desc(), row.part, row.kind)
        )
        with self._read() as connection:
            return [IncidentRecord(*found) for found in connection.execute(query)]

    def _incident_row(self, namespace: str, one: Incident) -> dict[str, object]:
        return {
            "namespace": namespace,
            "part": clean(one.part),
            "kind": clean(one.kind),
            "count": one.count,
            "message": clean(self._redactor.text(one.message))[:_MESSAGE_LIMIT],
            "first_at": one.at,
            "last_at": one.at,
        }

    def _incident_upsert(self) -> Insert:
        insert = self._insert(incidents)
        old, new = incidents.c, insert.excluded
        newer = new.last_at >= old.last_at
        return insert.on_conflict_do_update(
            index_elements=_KEY,
            set_={
                "count": old.count + new.count,
                "message": case((newer, new.message), else_=old.message),
                "last_at": case((newer, new.last_at), else_=old.last_at),
                "first_at": case((new.first_at < old.first_at, new.first_at), else_=old.first_at),
            },
        )


def _sorted(new: Sequence[Incident]) -> list[Incident]:
    # One order for all writers: they wait for one another instead of deadlocking.
    return sorted(new, key=lambda one: (one.part, one.kind))
