"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _attempts()
    _claims()
    _evidence()
    _meta()
    _operations()
    _sessions()
    _steps()
    _values()
    _writes()
    if op.get_bind().dialect.name == "sqlite":
        op.execute("PRAGMA application_id = 1095193172")
    op.execute("INSERT INTO agent_runtime_meta (name, value) VALUES ('min_writer', 1)")


def _attempts() -> None:
    op.create_table(
        "agent_runtime_attempts",
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation_id", "number", name="agent_runtime_attempts_number"),
    )


def _claims() -> None:
    op.create_table(
        "agent_runtime_claims",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "address", name="agent_runtime_claims_address"),
    )


def _evidence() -> None:
    op.create_table(
        "agent_runtime_evidence",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=True),
        sa.Column("headers", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("detail", sa.LargeBinary(), nullable=False),
        sa.Column("by", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("agent_runtime_evidence_operation", "agent_runtime_evidence", ["operation_id", "id"], unique=False)


def _meta() -> None:
    op.create_table(
        "agent_runtime_meta",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _operations() -> None:
    op.create_table(
        "agent_runtime_operations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("args", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("args_hash", sa.Text(), nullable=False),
        sa.Column("scheme", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("key_format", sa.Text(), nullable=False),
        sa.Column("carrier", sa.Text(), nullable=False),
        sa.Column("key_lifetime", sa.Double(), nullable=False),
        sa.Column("business_key", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("request_method", sa.Text(), nullable=True),
        sa.Column("request_url", sa.LargeBinary(), nullable=True),
        sa.Column("request_headers", sa.LargeBinary(), nullable=True),
        sa.Column("request_body", sa.LargeBinary(), nullable=True),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("contract_version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("effect", sa.Text(), nullable=True),
        sa.Column("result_state", sa.Text(), nullable=True),
        sa.Column("partial", sa.Boolean(), nullable=False),
        sa.Column("contradicted", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("maybe_applied", sa.Boolean(), nullable=False),
        sa.Column("no_resend", sa.Boolean(), nullable=False),
        sa.Column("server_replayed", sa.Boolean(), nullable=False),
        sa.Column("first_sent_at", sa.Double(), nullable=True),
        sa.Column("first_maybe_at", sa.Double(), nullable=True),
        sa.Column("last_attempt_at", sa.Double(), nullable=True),
        sa.Column("last_deadline", sa.Double(), nullable=True),
        sa.Column("absences", sa.BigInteger(), nullable=False),
        sa.Column("absent_since", sa.Double(), nullable=True),
        sa.Column("resume_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.Column("result_status", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.LargeBinary(), nullable=True),
        sa.Column("handle", sa.LargeBinary(), nullable=True),
        sa.Column("reissue_of", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("session_id", "label", name="agent_runtime_operations_label"),
        sa.UniqueConstraint("tenant", "origin", "business_key", name="agent_runtime_operations_business_key"),
    )
    _indexes_of_operations()


def _indexes_of_operations() -> None:
    op.create_index(
        "agent_runtime_operations_contradicted",
        "agent_runtime_operations",
        ["tenant", "created_at"],
        unique=False,
        sqlite_where=sa.text("contradicted"),
        postgresql_where=sa.text("contradicted"),
    )
    op.create_index(
        "agent_runtime_operations_derived_key",
        "agent_runtime_operations",
        ["key"],
        unique=True,
        sqlite_where=sa.text("business_key IS NULL"),
        postgresql_where=sa.text("business_key IS NULL"),
    )
    op.create_index(
        "agent_runtime_operations_unknown",
        "agent_runtime_operations",
        ["tenant", "created_at"],
        unique=False,
        sqlite_where=sa.text("state = 'unknown'"),
        postgresql_where=sa.text("state = 'unknown'"),
    )


def _sessions() -> None:
    op.create_table(
        "agent_runtime_sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("input_digest", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("owner_token", sa.Text(), nullable=True),
        sa.Column("owner_host", sa.Text(), nullable=True),
        sa.Column("owner_pid", sa.BigInteger(), nullable=True),
        sa.Column("owner_boot_id", sa.Text(), nullable=True),
        sa.Column("owner_pid_namespace", sa.Text(), nullable=True),
        sa.Column("owner_process_started", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("tenant", "alias", name="agent_runtime_sessions_alias"),
    )
    op.create_index("agent_runtime_sessions_listed", "agent_runtime_sessions", ["tenant", "created_at"], unique=False)
    op.create_index("agent_runtime_sessions_owner", "agent_runtime_sessions", ["owner_token"], unique=False)


def _steps() -> None:
    op.create_table(
        "agent_runtime_steps",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("args_hash", sa.Text(), nullable=False),
        sa.Column("operation_id", sa.Text(), nullable=True),
        sa.Column("delivered", sa.LargeBinary(), nullable=True),
        sa.Column("delivered_seq", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("session_id", "label", name="agent_runtime_steps_label"),
        sa.UniqueConstraint("session_id", "branch", "index", name="agent_runtime_steps_index"),
        sa.UniqueConstraint("session_id", "seq", name="agent_runtime_steps_seq"),
    )


def _values() -> None:
    op.create_table(
        "agent_runtime_values",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "branch", "name", "index", name="agent_runtime_values_name"),
    )


def _writes() -> None:
    op.create_table(
        "agent_runtime_writes",
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("write_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "write_id", name="agent_runtime_writes_id"),
        sqlite_with_rowid=False,
    )
