"""Writes that concern a session itself: steps delivered, values kept, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select, update

from agent_runtime._model import SETTLED, Deliver, EndSession, PutValue, Took, WriteOutcome
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._rows import owner_columns
from agent_runtime.ledger._statements import insert

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from agent_runtime.ledger._statements import SessionSeen

KEEP_WRITE_IDS = 3600.0
"""Seconds for which the write ids of an ended session are kept: far longer than anybody tries a commit again."""


def deliver(conn: Connection, entry: Deliver, now: float) -> WriteOutcome:
    """Note on a step what the code was given."""
    here = (t.steps.c.session_id == entry.session_id, t.steps.c.label == entry.label)
    given = {"delivered": entry.delivered, "delivered_seq": entry.delivered_seq}
    found = conn.execute(update(t.steps).where(*here).values(given).returning(t.steps.c.label)).first()
    took = Took.STATE_CONFLICT if found is None else Took.TOOK
    return WriteOutcome(write_id=entry.write_id, took=took, now=now)


def put_value(conn: Connection, entry: PutValue, session: SessionSeen, now: float) -> WriteOutcome:
    """Keep a value; where another one stands it stays, and the write does not take."""
    if session.state != "open":
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now)
    name = {"session_id": entry.session_id, "branch": entry.branch, "name": entry.name, "index": entry.index}
    row = name | {"value": entry.value, "created_at": now}
    conn.execute(insert(conn.dialect.name, t.session_values).values(row).on_conflict_do_nothing())
    same = [t.session_values.c[column] == value for column, value in name.items()]
    stands = conn.execute(select(t.session_values.c.value).where(*same)).scalar_one()
    took = Took.TOOK if bytes(stands) == entry.value else Took.STATE_CONFLICT
    return WriteOutcome(write_id=entry.write_id, took=took, now=now)


def end_session(conn: Connection, entry: EndSession, session: SessionSeen, now: float) -> WriteOutcome:
    """Finish or cancel a session in which nothing is left open; its lease ends with it."""
    row = t.operations.c
    left = select(row.id).where(row.session_id == entry.session_id, row.state.not_in(tuple(sorted(SETTLED)))).limit(1)
    if session.state != "open" or conn.execute(left).first() is not None:
        return WriteOutcome(write_id=entry.write_id, took=Took.STATE_CONFLICT, now=now)
    ended = {"state": entry.state.value, "ended_at": now, "lease_until": None, **owner_columns(None)}
    conn.execute(update(t.sessions).where(t.sessions.c.id == entry.session_id).values(ended))
    old = (t.writes.c.session_id == entry.session_id, t.writes.c.at < now - KEEP_WRITE_IDS)
    conn.execute(delete(t.writes).where(*old))
    return WriteOutcome(write_id=entry.write_id, took=Took.TOOK, now=now)
