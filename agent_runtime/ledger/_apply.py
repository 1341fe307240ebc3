"""A batch of writes in one transaction: fences first, then each entry by itself."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, assert_never

from sqlalchemy import and_, bindparam, delete, select
from sqlalchemy.exc import IntegrityError

from agent_runtime._model import Advance, Deliver, EndSession, File, PutValue, Reserve, Took, Write, WriteOutcome
from agent_runtime._model.naming import is_storable
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._faults import refusal
from agent_runtime.ledger._operations import advance, explain_clash, file_evidence, reserve
from agent_runtime.ledger._reads import operation_by_id, operations_by_ids
from agent_runtime.ledger._sessions import deliver, end_session, put_value
from agent_runtime.ledger._statements import NotTaken, SessionSeen, insert
from agent_runtime.ledger._store import begin_write

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from sqlalchemy import Connection
    from sqlalchemy.sql.dml import ReturningInsert

    from agent_runtime._model import OperationRecord
    from agent_runtime.ledger._store import Store

Ident = tuple[str, str]

# Statements of every batch are built once: building one takes SQLAlchemy longer than running it takes SQLite.
_FENCES = (
    select(t.sessions.c.id, t.sessions.c.fence, t.sessions.c.state, t.sessions.c.tenant)
    .where(t.sessions.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(t.sessions.c.id)
)
_LOCKED_FENCES = _FENCES.with_for_update(read=True, key_share=True)
"""FOR KEY SHARE: keeps take-overs out until the commit, and no renewal."""


@cache
def _take_statement(dialect: str) -> ReturningInsert[Any]:
    return insert(dialect, t.writes).on_conflict_do_nothing().returning(t.writes.c.session_id, t.writes.c.write_id)


class NotSmooth(Exception):
    """An entry of a batch did not take smoothly: the batch is to be applied with a savepoint for each entry."""


def apply_batch(conn: Connection, store: Store, entries: Sequence[Write], *, careful: bool) -> list[WriteOutcome]:
    """Apply entries in order; each takes or not by itself, and says which.

    ``careful`` gives each entry a savepoint. Without it two statements an entry are saved, and `NotSmooth` is raised
    where one would have been needed.
    """
    sound = {_ident(entry): entry for entry in entries if all(map(is_storable, _ident(entry)))}
    sessions = _read_fences(conn, store, sound.values())
    now = begin_write(conn, store)  # after the locks: a deadline that counts from here must not be early
    admitted = {ident for ident, entry in sound.items() if _holds_fence(entry, sessions)}
    fresh = _take_ids(conn, admitted, now)
    done: dict[Ident, WriteOutcome] = {}
    for entry in entries:
        ident = _ident(entry)
        if ident in done:
            continue
        if ident not in sound:
            done[ident] = _refused(entry, now, "an id of it cannot be stored")
        elif ident in fresh:
            done[ident] = _apply_alone(conn, entry, sessions[entry.session_id], now, careful=careful)
        elif ident in admitted or _stands(conn, ident):
            done[ident] = _took_before(conn, entry, now)
        else:
            done[ident] = WriteOutcome(
                write_id=entry.write_id, took=Took.FENCE_LOST, now=now, operation=_operation_of(conn, entry)
            )
    _give_back(conn, [ident for ident in fresh if done[ident].took is not Took.TOOK])
    return [done[_ident(entry)] for entry in entries]


def _ident(entry: Write) -> Ident:
    return entry.session_id, entry.write_id


def _fence(entry: Write) -> int | None:
    return None if isinstance(entry, File) else entry.fence


def _read_fences(conn: Connection, store: Store, entries: Iterable[Write]) -> dict[str, SessionSeen]:
    ids = sorted({entry.session_id for entry in entries})
    rows = conn.execute(_LOCKED_FENCES if store.row_locks else _FENCES, {"ids": ids})
    return {row.id: SessionSeen(fence=row.fence, state=row.state, tenant=row.tenant) for row in rows}


def _holds_fence(entry: Write, sessions: dict[str, SessionSeen]) -> bool:
    fence = _fence(entry)
    session = sessions.get(entry.session_id)
    return session is not None and fence in {None, session.fence}


def _take_ids(conn: Connection, idents: Collection[Ident], now: float) -> set[Ident]:
    """Store the ids of entries and return those that did not stand yet.

    On Postgres this waits for a transaction of ours whose COMMIT may still be under way, and sees what became of it.
    """
    if not idents:
        return set()
    rows = [{"session_id": session, "write_id": write, "at": now} for session, write in sorted(idents)]
    found = conn.execute(_take_statement(conn.dialect.name), rows)
    return {(row.session_id, row.write_id) for row in found}


def _stands(conn: Connection, ident: Ident) -> bool:
    where = and_(t.writes.c.session_id == ident[0], t.writes.c.write_id == ident[1])
    return conn.execute(select(t.writes.c.at).where(where)).first() is not None


def _give_back(conn: Connection, idents: Sequence[Ident]) -> None:
    """Forget the ids of entries that did not take, so that such an entry may be tried again."""
    for session, write in sorted(idents):
        conn.execute(delete(t.writes).where(t.writes.c.session_id == session, t.writes.c.write_id == write))


def _apply_alone(conn: Connection, entry: Write, session: SessionSeen, now: float, *, careful: bool) -> WriteOutcome:
    why: str | None
    try:
        with conn.begin_nested() if careful else nullcontext():
            return _apply(conn, entry, session, now)
    except NotTaken as exc:
        if not careful:
            raise NotSmooth from None
        return exc.outcome
    except IntegrityError as exc:
        if not careful:
            raise NotSmooth from None
        why = refusal(exc)
        clash = explain_clash(conn, entry, session, now) if isinstance(entry, Reserve) else None
        if clash is not None:
            return clash
    except Exception as exc:
        why = refusal(exc)
        if why is None:
            raise
        if not careful:
            raise NotSmooth from None
    return _refused(entry, now, why or "a rule of the database forbids it")


def _apply(conn: Connection, entry: Write, session: SessionSeen, now: float) -> WriteOutcome:
    match entry:
        case Reserve():
            return reserve(conn, entry, session, now)
        case Advance():
            return advance(conn, entry, now)
        case Deliver():
            return deliver(conn, entry, now)
        case PutValue():
            return put_value(conn, entry, session, now)
        case File():
            return file_evidence(conn, entry, now)
        case EndSession():
            return end_session(conn, entry, session, now)
        case _:
            assert_never(entry)


def _operation_of(conn: Connection, entry: Write) -> OperationRecord | None:
    if isinstance(entry, Advance | File) and is_storable(entry.operation_id):
        return operation_by_id(conn, entry.operation_id)
    return None


def _took_before(conn: Connection, entry: Write, now: float) -> WriteOutcome:
    """Answer for a write whose id stands: it took, whatever was written over it since."""
    made = operations_by_ids(conn, [new.id for new in entry.operations]) if isinstance(entry, Reserve) else ()
    return WriteOutcome(
        write_id=entry.write_id, took=Took.TOOK, now=now, operation=_operation_of(conn, entry), operations=made
    )


def _refused(entry: Write, now: float, why: str) -> WriteOutcome:
    return WriteOutcome(write_id=entry.write_id, took=Took.REFUSED, now=now, error=why)
