"""Tables of the ledger. The migrations make them; a test holds both to the same database."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""All migrations of this release, oldest first; the last one is what this release needs."""

HEAD = REVISIONS[-1]
WRITER = 1
"""Generation of writers that this release is; a ledger whose ``min_writer`` is higher refuses it."""

PREFIX = "agent_runtime_"
VERSION_TABLE = f"{PREFIX}revision"
APPLICATION_ID = 0x41475254
"""Stands in the header of a SQLite file and tells a ledger from somebody else's database."""

metadata = MetaData()

# No foreign keys: the fence check has read, and on Postgres locked, the session's row already, and nothing is ever
# written below a row that does not stand.

sessions = Table(
    f"{PREFIX}sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("alias", Text),
    Column("tenant", Text, nullable=False),
    Column("actor", Text),
    Column("state", Text, nullable=False),
    Column("input_digest", Text),
    Column("fence", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("owner_token", Text),
    Column("owner_host", Text),
    Column("owner_pid", BigInteger),
    Column("owner_boot_id", Text),
    Column("owner_pid_namespace", Text),
    Column("owner_process_started", Text),
    Column("lease_until", Double),
    UniqueConstraint("tenant", "alias", name=f"{PREFIX}sessions_alias"),
    Index(f"{PREFIX}sessions_listed", "tenant", "created_at"),
    # Not unique: a column of a unique index is a key column, and renewals and releases would then wait for batches.
    Index(f"{PREFIX}sessions_owner", "owner_token"),
)

operations = Table(
    f"{PREFIX}operations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("args", LargeBinary, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("args_hash", Text, nullable=False),
    Column("scheme", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("key_format", Text, nullable=False),
    Column("carrier", Text, nullable=False),
    Column("key_lifetime", Double, nullable=False),
    Column("business_key", Text),
    Column("origin", Text, nullable=False),
    Column("request_method", Text),
    Column("request_url", LargeBinary),
    Column("request_headers", LargeBinary),
    Column("request_body", LargeBinary),
    Column("principal", Text, nullable=False),
    Column("contract_version", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("reason", Text),
    Column("effect", Text),
    Column("result_state", Text),
    Column("partial", Boolean, nullable=False),
    Column("contradicted", Boolean, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("maybe_applied", Boolean, nullable=False),
    Column("no_resend", Boolean, nullable=False),
    Column("server_replayed", Boolean, nullable=False),
    Column("first_sent_at", Double),
    Column("first_maybe_at", Double),
    Column("last_attempt_at", Double),
    Column("last_deadline", Double),
    Column("absences", BigInteger, nullable=False),
    Column("absent_since", Double),
    Column("resume_at", Double),
    Column("expires_at", Double),
    Column("result", LargeBinary),
    Column("result_status", BigInteger),
    Column("error", LargeBinary),
    Column("handle", LargeBinary),
    Column("reissue_of", Text),
    Column("job_id", Text),
    Column("untold", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("session_id", "label", name=f"{PREFIX}operations_label"),
    UniqueConstraint("tenant", "origin", "business_key", name=f"{PREFIX}operations_business_key"),
)

# A business key may stand once per tenant and origin, so only derived keys are unique everywhere.
Index(
    f"{PREFIX}operations_derived_key",
    operations.c.key,
    unique=True,
    sqlite_where=text("business_key IS NULL"),
    postgresql_where=text("business_key IS NULL"),
)
Index(
    f"{PREFIX}operations_unknown",
    operations.c.tenant,
    operations.c.created_at,
    sqlite_where=text("state = 'unknown'"),
    postgresql_where=text("state = 'unknown'"),
)
Index(
    f"{PREFIX}operations_contradicted",
    operations.c.tenant,
    operations.c.created_at,
    sqlite_where=text("contradicted"),
    postgresql_where=text("contradicted"),
)

Index(
    f"{PREFIX}operations_job",
    operations.c.tenant,
    operations.c.job_id,
    sqlite_where=text("job_id IS NOT NULL"),
    postgresql_where=text("job_id IS NOT NULL"),
)
Index(
    f"{PREFIX}operations_accepted",
    operations.c.tenant,
    operations.c.created_at,
    sqlite_where=text("state = 'accepted'"),
    postgresql_where=text("state = 'accepted'"),
)
Index(
    f"{PREFIX}operations_untold",
    operations.c.tenant,
    operations.c.updated_at,
    sqlite_where=text("untold"),
    postgresql_where=text("untold"),
)

steps = Table(
    f"{PREFIX}steps",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("index", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("args_hash", Text, nullable=False),
    Column("operation_id", Text),
    Column("delivered", LargeBinary),
    Column("delivered_seq", BigInteger),
    PrimaryKeyConstraint("session_id", "label", name=f"{PREFIX}steps_label"),
    UniqueConstraint("session_id", "branch", "index", name=f"{PREFIX}steps_index"),
    UniqueConstraint("session_id", "seq", name=f"{PREFIX}steps_seq"),
)

# A step has any number of addresses; each stands once in its session.
claims = Table(
    f"{PREFIX}claims",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("session_id", "address", name=f"{PREFIX}claims_address"),
)

session_values = Table(
    f"{PREFIX}values",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("index", BigInteger, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("session_id", "branch", "name", "index", name=f"{PREFIX}values_name"),
)

attempts = Table(
    f"{PREFIX}attempts",
    metadata,
    Column("operation_id", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("purpose", Text, nullable=False),
    PrimaryKeyConstraint("operation_id", "number", name=f"{PREFIX}attempts_number"),
)

evidence = Table(
    f"{PREFIX}evidence",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("operation_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("status", BigInteger),
    Column("headers", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Column("by", LargeBinary),
    Index(f"{PREFIX}evidence_operation", "operation_id", "id"),
)

# Ids of the writes that took. A row's own column would not do: the next write to the row would overwrite it, and a
# write whose commit's answer was lost could then be told that it did not take.
writes = Table(
    f"{PREFIX}writes",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("write_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    PrimaryKeyConstraint("session_id", "write_id", name=f"{PREFIX}writes_id"),
    sqlite_with_rowid=False,
)

# Rotating refresh tokens, and access tokens that processes share, sealed before they come here; the row says whose turn
# a token request is. Rows that have a time to expire are forgotten then.
tokens = Table(
    f"{PREFIX}tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("sealed", LargeBinary),
    Column("seeds", LargeBinary, nullable=False),
    Column("holder", Text),
    Column("held_until", Double),
    Column("kept_by", Text),
    Column("doubts", BigInteger, nullable=False),
    Column("problem", Text),
    Column("updated_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("tried_at", Double),
    Index(f"{PREFIX}tokens_expire", "expires_at"),
)

# Digests of the refresh tokens that came from outside, and the one row of tokens that each belongs to.
token_seeds = Table(
    f"{PREFIX}token_seeds",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("token_id", Text, nullable=False),
)

meta = Table(
    f"{PREFIX}meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# Callbacks as they came: kept before anything is made of them, each once.
events = Table(
    f"{PREFIX}events",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("job_id", Text),
    Column("key", Text),
    Column("body", LargeBinary, nullable=False),
    Column("received_at", Double, nullable=False),
    Column("applied_at", Double),
    PrimaryKeyConstraint("tenant", "source", "event_id", name=f"{PREFIX}events_id"),
    Index(f"{PREFIX}events_job", "tenant", "job_id"),
    Index(f"{PREFIX}events_key", "tenant", "key"),
)

# Open matters and ends of jobs that somebody has heard of, and ends that somebody hears of right now.
notices = Table(
    f"{PREFIX}notices",
    metadata,
    Column("operation_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("heard_at", Double, nullable=False),
    PrimaryKeyConstraint("operation_id", "kind", name=f"{PREFIX}notices_kind"),
)
