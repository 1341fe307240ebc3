"""Jobs by their ids, callbacks as they came, and what was said of open matters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_runtime_operations", sa.Column("job_id", sa.Text()))
    op.create_index(
        "agent_runtime_operations_job",
        "agent_runtime_operations",
        ["tenant", "job_id"],
        sqlite_where=sa.text("job_id IS NOT NULL"),
        postgresql_where=sa.text("job_id IS NOT NULL"),
    )
    op.create_index(
        "agent_runtime_operations_accepted",
        "agent_runtime_operations",
        ["tenant", "created_at"],
        sqlite_where=sa.text("state = 'accepted'"),
        postgresql_where=sa.text("state = 'accepted'"),
    )
    op.create_table(
        "agent_runtime_events",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text()),
        sa.Column("key", sa.Text()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("applied_at", sa.Double()),
        sa.PrimaryKeyConstraint("tenant", "source", "event_id", name="agent_runtime_events_id"),
    )
    op.create_index("agent_runtime_events_job", "agent_runtime_events", ["tenant", "job_id"])
    op.create_index("agent_runtime_events_key", "agent_runtime_events", ["tenant", "key"])
    op.create_table(
        "agent_runtime_notices",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("heard_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "kind", name="agent_runtime_notices_kind"),
    )
