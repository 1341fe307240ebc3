"""Writes that make and change operations."""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    Double,
    and_,
    bindparam,
    case,
    delete,
    false,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy import insert as plain_insert

from agent_runtime._model import (
    ENDS_OF_JOBS,
    SETTLED,
    UNSET,
    Advance,
    Change,
    File,
    NewStep,
    Reserve,
    Took,
    WriteOutcome,
)
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._events import forget_told_end, job_id_of
from agent_runtime.ledger._reads import operation_by_id
from agent_runtime.ledger._rows import evidence_row, operation_record, operation_row, step_row
from agent_runtime.ledger._statements import NotTaken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.sql.dml import ReturningUpdate

    from agent_runtime._model import NewEvidence
    from agent_runtime.ledger._statements import SessionSeen

_ENDS = tuple(sorted(SETTLED))
_PLAIN = (
    *("state", "reason", "effect", "result_state", "partial", "contradicted", "no_resend", "server_replayed"),
    *("resume_at", "result", "result_status", "error", "handle"),
)


def reserve(conn: Connection, entry: Reserve, session: SessionSeen, now: float) -> WriteOutcome:
    """Make operations and take positions, all or nothing."""
    if session.state != "open":
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now)
    rows = [operation_row(new, session_id=entry.session_id, tenant=session.tenant, now=now) for new in entry.operations]
    if rows:
        conn.execute(plain_insert(t.operations), rows)
    fresh = [step for step in entry.steps if not step.takes_over]
    for step in entry.steps:
        if step.takes_over and not _replace(conn, entry, step):
            raise NotTaken(WriteOutcome(write_id=entry.write_id, took=Took.POSITION_TAKEN, now=now))
    if fresh:
        conn.execute(plain_insert(t.steps), [step_row(step, session_id=entry.session_id) for step in fresh])
    claimed = [
        {"session_id": entry.session_id, "address": step.address, "label": step.label, "created_at": now}
        for step in entry.steps
        if step.address is not None
    ]
    if claimed:
        conn.execute(plain_insert(t.claims), claimed)
    made = tuple(operation_record(row) for row in rows)
    return WriteOutcome(write_id=entry.write_id, took=Took.TOOK, now=now, operations=made)


def _replace(conn: Connection, entry: Reserve, step: NewStep) -> bool:
    ident = entry.session_id
    here = and_(t.steps.c.session_id == ident, t.steps.c.branch == step.branch, t.steps.c.index == step.index)
    stood = conn.execute(select(t.steps.c.label).where(here, _gives_way(entry))).scalar()
    if stood is None:
        return False
    conn.execute(delete(t.claims).where(t.claims.c.session_id == ident, t.claims.c.label == stood))
    conn.execute(update(t.steps).where(here).values(step_row(step, session_id=ident)))
    return True


def _gives_way(entry: Reserve) -> ColumnElement[bool]:
    """A refused step can be taken over, and so can one whose operation is issued again by this very entry."""
    reissued = [new.reissue_of for new in entry.operations if new.reissue_of is not None]
    same = t.steps.c.operation_id.in_(reissued) if reissued else false()
    return or_(t.steps.c.kind == "refused", func.coalesce(same, false()))


def explain_clash(conn: Connection, entry: Reserve, session: SessionSeen, now: float) -> WriteOutcome | None:
    """Tell what a refused `Reserve` met, by reading back; None if nothing that stands explains it."""
    if _position_stands(conn, entry):
        return WriteOutcome(write_id=entry.write_id, took=Took.POSITION_TAKEN, now=now)
    for new in entry.operations:
        if new.business_key is None:
            same_key = and_(t.operations.c.key == new.key, t.operations.c.business_key.is_(None))
        else:
            same_key = and_(
                t.operations.c.tenant == session.tenant,
                t.operations.c.origin == new.origin,
                t.operations.c.business_key == new.business_key,
            )
        holder = conn.execute(select(t.operations).where(same_key)).mappings().first()
        if holder is not None:
            return WriteOutcome(
                write_id=entry.write_id, took=Took.KEY_IN_USE, now=now, operation=operation_record(holder)
            )
    ids = [new.id for new in entry.operations]
    if conn.execute(select(t.operations.c.id).where(t.operations.c.id.in_(ids))).first():
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now)
    return None


def _position_stands(conn: Connection, entry: Reserve) -> bool:
    steps, claims, operations = t.steps.c, t.claims.c, t.operations.c
    for step in entry.steps:
        here = and_(steps.branch == step.branch, steps.index == step.index)
        taken: ColumnElement[bool] = or_(steps.label == step.label, steps.seq == step.seq, here)
        if step.takes_over:  # the step that it replaces is no obstacle
            taken = and_(taken, not_(and_(here, _gives_way(entry))))
        if conn.execute(select(steps.label).where(steps.session_id == entry.session_id, taken)).first():
            return True
        if step.address is None:
            continue
        claimed = and_(claims.session_id == entry.session_id, claims.address == step.address)
        if conn.execute(select(claims.label).where(claimed, claims.label != step.label)).first():
            return True
    labels = [new.label for new in entry.operations]
    known = and_(operations.session_id == entry.session_id, operations.label.in_(labels))
    return conn.execute(select(operations.id).where(known)).first() is not None


def advance(conn: Connection, entry: Advance, now: float) -> WriteOutcome:
    """Change an operation that still has the version that was seen."""
    change, attempt = entry.change, entry.attempt
    given = {name: value for name in _PLAIN if (value := getattr(change, name)) is not UNSET}
    marks = Marks(
        attempt=attempt is not None,
        sent=change.mark_sent,
        maybe=change.mark_maybe,
        absent=change.mark_absent,
        clear_absent=change.clear_absent,
        clear_maybe=change.clear_maybe,
        taken_over=change.mark_taken_over,
    )
    if isinstance(change.handle, bytes):
        given["job_id"] = job_id_of(change.handle)
    if change.reason in ENDS_OF_JOBS:
        given["untold"] = True
    values = {f"new_{name}": value.value if isinstance(value, Enum) else value for name, value in given.items()} | {
        "wanted": entry.operation_id,
        "of_session": entry.session_id,
        "seen": entry.expect_version,
        "now": now,
    }
    if attempt is not None:
        values |= {"number": attempt.number, "until": now + attempt.deadline}
    statement = _update(tuple(given), marks, settled_too=_only_contradicts(entry))
    found = conn.execute(statement, values).mappings().first()
    if found is None:
        stands = operation_by_id(conn, entry.operation_id)
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now, operation=stands)
    if attempt is not None:
        row = {"operation_id": entry.operation_id, "number": attempt.number, "fence": entry.fence or 0}
        conn.execute(plain_insert(t.attempts), row | {"started_at": now, "purpose": attempt.purpose})
    if change.reason in ENDS_OF_JOBS:
        forget_told_end(conn, entry.operation_id)
    _add_evidence(conn, entry.operation_id, entry.evidence, now)
    return WriteOutcome(write_id=entry.write_id, took=Took.TOOK, now=now, operation=operation_record(found))


class Marks(NamedTuple):
    """Which changes an `Advance` makes that depend on what stands in the row."""

    attempt: bool
    sent: bool
    maybe: bool
    absent: bool
    clear_absent: bool
    clear_maybe: bool
    taken_over: bool


def _only_contradicts(entry: Advance) -> bool:
    return entry.attempt is None and entry.change == Change(contradicted=entry.change.contradicted)


@cache
def _update(names: tuple[str, ...], marks: Marks, *, settled_too: bool) -> ReturningUpdate[Any]:
    """Return the UPDATE of these columns; there are as many as there are ways in which operations change."""
    row = t.operations.c
    where = [row.id == bindparam("wanted"), row.session_id == bindparam("of_session")]
    where.append(row.version == bindparam("seen"))
    if not settled_too:
        where.append(row.state.not_in(_ENDS))
    values: dict[str, Any] = {name: bindparam(f"new_{name}", type_=row[name].type) for name in names}
    values |= {"version": row.version + 1, "updated_at": bindparam("now", type_=Double)} | _marked(marks)
    return update(t.operations).where(*where).values(values).returning(t.operations)


def _marked(marks: Marks) -> dict[str, Any]:
    row = t.operations.c
    now, until = bindparam("now", type_=Double), bindparam("until", type_=Double)
    values: dict[str, Any] = {}
    if marks.attempt:
        # An earlier attempt with a longer deadline may still be arriving.
        later = case((row.last_deadline > until, row.last_deadline), else_=until)
        values |= {"attempts": bindparam("number"), "last_attempt_at": now, "last_deadline": later}
    if marks.sent:
        values["first_sent_at"] = func.coalesce(row.first_sent_at, now)
    if marks.maybe:
        began = now if marks.attempt else func.coalesce(row.last_attempt_at, now)
        values |= {"maybe_applied": true(), "first_maybe_at": func.coalesce(row.first_maybe_at, began)}
    if marks.taken_over:
        values["last_deadline"] = case((row.last_deadline > now, row.last_deadline), else_=now)
    if marks.clear_maybe:
        values |= {"maybe_applied": false(), "first_maybe_at": null()}
    if marks.clear_absent or marks.clear_maybe:
        values |= {"absences": 0, "absent_since": null()}
    if marks.absent:
        counted = literal(1) if marks.clear_absent else row.absences + 1
        since = now if marks.clear_absent else func.coalesce(row.absent_since, now)
        values |= {"absences": counted, "absent_since": since}
    return values


def file_evidence(conn: Connection, entry: File, now: float) -> WriteOutcome:
    """File evidence whoever owns the session; mark a settled operation that it contradicts."""
    row = t.operations.c
    where = [row.id == entry.operation_id, row.session_id == entry.session_id]
    if conn.execute(select(row.id).where(*where)).first() is None:
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now)
    _add_evidence(conn, entry.operation_id, (entry.evidence,), now)
    if entry.contradicts:
        marked = {"contradicted": True, "version": row.version + 1, "updated_at": now}
        conn.execute(update(t.operations).where(*where, row.state.in_(_ENDS)).values(marked))
    stands = operation_by_id(conn, entry.operation_id)
    return WriteOutcome(write_id=entry.write_id, took=Took.TOOK, now=now, operation=stands)


def _add_evidence(conn: Connection, operation_id: str, evidence: Sequence[NewEvidence], now: float) -> None:
    if evidence:
        rows = [evidence_row(new, operation_id=operation_id, now=now) for new in evidence]
        conn.execute(plain_insert(t.evidence), rows)
