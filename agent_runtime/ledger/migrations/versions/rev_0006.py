"""Refresh tokens that rotate: since when a token may have been used up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_runtime_tokens", sa.Column("tried_at", sa.Double()))
