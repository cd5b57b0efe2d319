"""Alembic's entry: run the migrations on the connection that the ledger hands over.

`python -m alembic revision` needs no database of its own; see CONTRIBUTING for new migrations.
"""

from __future__ import annotations

from alembic import context

from metaclaw_langgraph.ledger.migrate import VERSION_TABLE
from metaclaw_langgraph.ledger.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can roll schema changes back too, once its driver is kept from committing them.
    transactional_ddl=True,
)

with context.begin_transaction():
    context.run_migrations()
