"""Runs the migrations over the connection that the ledger hands in, inside its transaction."""

from alembic import context

from agent_runtime.ledger._schema import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
