"""Leases: which of several processes does a piece of work, until it says so no more.

A holder that dies loses its lease when the time is up. Times are those of the processes: a lease
must be long against the difference of their clocks.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_

from metaclaw_langgraph.ledger import store
from metaclaw_langgraph.ledger.schema_learning import leases
from metaclaw_langgraph.ledger.store import Store, require_namespace

__all__ = ["LeaseStore"]

_ROW = leases.c


class LeaseStore(Store):
    """The part of the ledger that holds leases."""

    def acquire_lease(
        self,
        namespace: str,
        name: str,
        holder: str,
        seconds: float,
        *,
        now: datetime | None = None,
    ) -> bool:
        """Take or renew the lease for so long; False while another holder has it."""
        at = now or store.now()
        row = {
            "namespace": require_namespace(namespace),
            "name": name,
            "holder": holder,
            "until": at + timedelta(seconds=seconds),
        }
        insert = self._insert(leases)
        new = insert.excluded
        taken = insert.on_conflict_do_update(
            index_elements=["namespace", "name"],
            set_={"holder": new.holder, "until": new.until},
            where=or_(_ROW.holder == new.holder, _ROW.until <= at),
        )
        with self._write() as connection:
            return connection.execute(taken.returning(_ROW.holder), row).first() is not None

    def release_lease(self, namespace: str, name: str, holder: str) -> None:
        """Give the lease back; nothing happens when `holder` does not have it."""
        mine = leases.delete().where(
            _ROW.namespace == require_namespace(namespace),
            _ROW.name == name,
            _ROW.holder == holder,
        )
        with self._write() as connection:
            connection.execute(mine)
