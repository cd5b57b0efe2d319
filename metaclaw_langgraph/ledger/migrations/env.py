"""Alembic's entry: run the migrations on the connection that the ledger hands over.

A new migration is a file in `versions/` beside the others, and its number the new `HEAD` in
`migrate.py`; tests/ledger/test_migrations.py tells whether it leads to the tables of `schema.py`.
"""

from __future__ import annotations

from alembic import context

from metaclaw_langgraph.ledger.migrate import VERSION_TABLE
from metaclaw_langgraph.ledger.schema_learning import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can roll schema changes back too, once its driver is kept from committing them.
    transactional_ddl=True,
)

with context.begin_transaction():
    context.run_migrations()
