"""Reading sessions and operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, bindparam, literal_column, or_, select, union

from agent_runtime._model import Loaded
from agent_runtime._model.naming import is_storable
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._rows import (
    attempt_record,
    evidence_record,
    operation_record,
    session_record,
    step_record,
    value_record,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from agent_runtime._model import (
        AttemptRecord,
        EvidenceRecord,
        OperationRecord,
        SessionRecord,
        SessionState,
    )


_BY_ID = select(t.operations).where(t.operations.c.id == bindparam("wanted"))


def find_session(conn: Connection, *, name: str, tenant: str, lock: bool = False) -> RowMapping | None:
    """Read the row of a session by id or alias; ``lock`` keeps writers, renewals and other claims out."""
    if not is_storable(name) or not is_storable(tenant):
        return None
    row = t.sessions.c
    statement = select(t.sessions).where(row.tenant == tenant, or_(row.id == name, row.alias == name)).limit(2)
    if lock:
        statement = statement.with_for_update()
    found = conn.execute(statement).mappings().all()
    return next((one for one in found if one["id"] == name), found[0] if found else None)


def read_session(conn: Connection, row: RowMapping, now: float) -> Loaded:
    """Read everything of a session whose row was read before."""
    ident = row["id"]
    claimed: dict[str, str] = {}
    of_session = select(t.claims.c.label, t.claims.c.address).where(t.claims.c.session_id == ident)
    for label, address in conn.execute(of_session.order_by(t.claims.c.created_at, t.claims.c.address)):
        claimed.setdefault(label, address)
    steps = conn.execute(select(t.steps).where(t.steps.c.session_id == ident).order_by(t.steps.c.seq)).mappings()
    steps_read = tuple(step_record(step, claimed.get(step["label"])) for step in steps)
    made = select(t.operations).where(t.operations.c.session_id == ident)
    made = made.order_by(t.operations.c.created_at, t.operations.c.label)
    operations = conn.execute(made).mappings()
    kept = select(t.session_values).where(t.session_values.c.session_id == ident)
    kept = kept.order_by(t.session_values.c.branch, t.session_values.c.name, t.session_values.c.index)
    return Loaded(
        session=session_record(row),
        steps=steps_read,
        operations=tuple(map(operation_record, operations)),
        values=tuple(map(value_record, conn.execute(kept).mappings())),
        now=now,
    )


def list_sessions(conn: Connection, *, tenant: str, state: SessionState | None) -> list[SessionRecord]:
    """Read the rows of sessions, newest first."""
    statement = select(t.sessions).where(t.sessions.c.tenant == tenant)
    if state is not None:
        statement = statement.where(t.sessions.c.state == state.value)
    statement = statement.order_by(t.sessions.c.created_at.desc(), t.sessions.c.id)
    return list(map(session_record, conn.execute(statement).mappings()))


def operation_by_id(conn: Connection, operation_id: str) -> OperationRecord | None:
    """Read one operation."""
    row = conn.execute(_BY_ID, {"wanted": operation_id}).mappings().first()
    return None if row is None else operation_record(row)


def operations_by_ids(conn: Connection, ids: Sequence[str]) -> tuple[OperationRecord, ...]:
    """Read operations in the order of their ids given."""
    rows = conn.execute(select(t.operations).where(t.operations.c.id.in_(ids))).mappings()
    found = {row["id"]: operation_record(row) for row in rows}
    return tuple(found[ident] for ident in ids if ident in found)


def operation_by_business_key(conn: Connection, *, tenant: str, origin: str, key: str) -> OperationRecord | None:
    """Read the operation that holds a caller's own key."""
    row = t.operations.c
    where = and_(row.tenant == tenant, row.origin == origin, row.business_key == key)
    found = conn.execute(select(t.operations).where(where)).mappings().first()
    return None if found is None else operation_record(found)


def list_attention(conn: Connection, *, tenant: str) -> list[OperationRecord]:
    """Read operations that are unknown or contradicted, oldest first."""
    # The conditions are literal text, word for word those of the two partial indexes: a bound value could not use them.
    of_tenant = select(t.operations.c.id).where(t.operations.c.tenant == tenant)
    unknown = of_tenant.where(literal_column("state = 'unknown'"))
    contradicted = of_tenant.where(literal_column("contradicted"))
    wanted = union(unknown, contradicted).subquery()
    statement = select(t.operations).join(wanted, wanted.c.id == t.operations.c.id)
    statement = statement.order_by(t.operations.c.created_at, t.operations.c.id)
    return list(map(operation_record, conn.execute(statement).mappings()))


def list_attempts(conn: Connection, operation_id: str) -> list[AttemptRecord]:
    """Read the attempts of an operation in order."""
    statement = select(t.attempts).where(t.attempts.c.operation_id == operation_id).order_by(t.attempts.c.number)
    return list(map(attempt_record, conn.execute(statement).mappings()))


def list_evidence(conn: Connection, operation_id: str) -> list[EvidenceRecord]:
    """Read what was seen about an operation in the order of filing."""
    statement = select(t.evidence).where(t.evidence.c.operation_id == operation_id).order_by(t.evidence.c.id)
    return list(map(evidence_record, conn.execute(statement).mappings()))
