"""Rotating refresh tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent_runtime_tokens",
        sa.Column("id", sa.Text(), primary_key=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary()),
        sa.Column("seeds", sa.LargeBinary(), nullable=False),
        sa.Column("holder", sa.Text()),
        sa.Column("held_until", sa.Double()),
        sa.Column("kept_by", sa.Text()),
        sa.Column("doubts", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.Text()),
        sa.Column("updated_at", sa.Double(), nullable=False),
    )
