"""Jobs that have ended and whose code was not told so yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "agent_runtime_operations", sa.Column("untold", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.create_index(
        "agent_runtime_operations_untold",
        "agent_runtime_operations",
        ["tenant", "updated_at"],
        sqlite_where=sa.text("untold"),
        postgresql_where=sa.text("untold"),
    )
