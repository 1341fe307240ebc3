"""To which account each refresh token from outside belongs."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    seeds = op.create_table(
        "agent_runtime_token_seeds",
        sa.Column("digest", sa.Text(), primary_key=True, nullable=False),
        sa.Column("token_id", sa.Text(), nullable=False),
    )
    # The last of these owns what several have: a sound row that was refreshed most has the chain that the server still
    # takes. A row is written last also where its first refresh was refused.
    rows = op.get_bind().execute(
        sa.text(
            "SELECT id, seeds FROM agent_runtime_tokens "
            "ORDER BY CASE WHEN problem IS NULL AND doubts = 0 THEN 1 ELSE 0 END, version, updated_at"
        )
    )
    owners = {digest: row.id for row in rows for digest in json.loads(bytes(row.seeds))}
    op.bulk_insert(seeds, [{"digest": digest, "token_id": ident} for digest, ident in owners.items()])
