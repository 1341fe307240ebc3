"""Access tokens that processes share: rows of tokens that are forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_runtime_tokens", sa.Column("expires_at", sa.Double()))
    op.create_index("agent_runtime_tokens_expire", "agent_runtime_tokens", ["expires_at"])
