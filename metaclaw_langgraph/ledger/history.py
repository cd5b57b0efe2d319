"""What the generations of a namespace were, and the MLflow runs that show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    bindparam,
    or_,
    select,
    union,
)

from metaclaw_langgraph.errors import NotFoundError
from metaclaw_langgraph.ledger.schema import generations, membership
from metaclaw_langgraph.ledger.store import Store, require_namespace
from metaclaw_langgraph.ledger.values import GenerationRecord, Interval

__all__ = ["HistoryStore", "read_members"]

_ROW, _MEMBER = generations.c, membership.c


class HistoryStore(Store):
    """The part of the ledger that tells what was live when, and why."""

    def members(self, namespace: str, generation: int) -> list[str]:
        """The ids of the skills of a generation, sorted."""
        require_namespace(namespace)
        with self._read() as connection:
            return read_members(connection, namespace, generation)

    def membership_changes(self, namespace: str, after: int, upto: int) -> list[Interval]:
        """Every interval that begins or ends in a generation g with `after < g <= upto`."""
        require_namespace(namespace)
        with self._read() as connection:
            return _changes(connection, namespace, after + 1, upto)

    def generations(self, namespace: str, limit: int = 50) -> list[GenerationRecord]:
        """The generations and what each changed, newest first."""
        query = select(generations).where(_ROW.namespace == require_namespace(namespace))
        with self._read() as connection:
            rows = connection.execute(query.order_by(_ROW.generation.desc()).limit(limit))
            return _records(connection, namespace, rows.mappings().all())

    def generation_record(self, namespace: str, generation: int) -> GenerationRecord | None:
        """One generation and what it changed; None when there is none of this number."""
        query = select(generations).where(
            _ROW.namespace == require_namespace(namespace), _ROW.generation == generation
        )
        with self._read() as connection:
            rows = connection.execute(query).mappings().all()
            return next(iter(_records(connection, namespace, rows)), None)

    def unexported_generations(self, namespace: str, limit: int) -> list[GenerationRecord]:
        """The generations that no MLflow run shows yet, oldest first."""
        query = select(generations).where(
            _ROW.namespace == require_namespace(namespace), _ROW.export_state == "pending"
        )
        with self._read() as connection:
            rows = connection.execute(query.order_by(_ROW.generation).limit(limit))
            return _records(connection, namespace, rows.mappings().all())

    def set_generation_run(
        self,
        namespace: str,
        generation: int,
        run_id: str | None,
        state: Literal["done", "failed"] = "done",
    ) -> None:
        """Link a generation to the MLflow run that shows it, or record that it gets none."""
        update = generations.update().where(
            _ROW.namespace == require_namespace(namespace), _ROW.generation == generation
        )
        with self._write() as connection:
            changed = connection.execute(update.values(run_id=run_id, export_state=state))
            if changed.rowcount == 0:
                raise NotFoundError(f"no generation {generation} in namespace {namespace!r}")


def read_members(connection: Connection, namespace: str, generation: int) -> list[str]:
    """The ids of the skills of a generation, sorted."""
    query = select(_MEMBER.skill_id).where(
        _MEMBER.namespace == namespace,
        _MEMBER.since <= generation,
        or_(_MEMBER.until.is_(None), _MEMBER.until > generation),
    )
    return sorted(connection.execute(query).scalars())


def _where(column: ColumnElement[Any]) -> Select[Any]:
    return select(_MEMBER.skill_id, _MEMBER.since, _MEMBER.until).where(
        _MEMBER.namespace == bindparam("of"), column.between(bindparam("first"), bindparam("last"))
    )


# Built once, since every process asks when a generation is new. Two queries, each on its index:
# with OR and an order, SQLite reads all members.
_CHANGES = union(_where(_MEMBER.since), _where(_MEMBER.until))


def _changes(connection: Connection, namespace: str, first: int, last: int) -> list[Interval]:
    """The intervals that begin or end in one of these generations."""
    given = {"of": namespace, "first": first, "last": last}
    found = [Interval(*row) for row in connection.execute(_CHANGES, given)]
    return sorted(found, key=lambda one: (one.since, one.skill_id))


def _records(
    connection: Connection, namespace: str, rows: Sequence[RowMapping]
) -> list[GenerationRecord]:
    added: dict[int, list[str]] = {}
    removed: dict[int, list[str]] = {}
    if rows:
        numbers = [row["generation"] for row in rows]
        for change in _changes(connection, namespace, min(numbers), max(numbers)):
            added.setdefault(change.since, []).append(change.skill_id)
            if change.until is not None:
                removed.setdefault(change.until, []).append(change.skill_id)
    return [
        GenerationRecord(
            generation=row["generation"],
            at=row["at"],
            reason=row["reason"],
            added=tuple(sorted(added.get(row["generation"], ()))),
            removed=tuple(sorted(removed.get(row["generation"], ()))),
            details=json.loads(row["details"]),
            run_id=row["run_id"],
        )
        for row in rows
    ]
