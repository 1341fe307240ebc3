"""Who may write to a session: making one, claiming, renewing, releasing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._contract import Claim, Lease, Owner
from agent_runtime.ledger._host import is_dead, same_process
from agent_runtime.ledger._reads import find_session, read_session
from agent_runtime.ledger._rows import owner_columns, owner_of, session_record
from agent_runtime.ledger._statements import insert
from agent_runtime.ledger._store import begin_write, read_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, RowMapping

    from agent_runtime.ledger._store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who claims, and for how long.

    Attributes:
        asked_at: boot-time clock before the transaction began.
        lease, margin: seconds.
        replaces: owner token whose lease may be taken over at once within this process.
    """

    owner: Owner
    asked_at: float
    lease: float
    margin: float
    replaces: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to be made if its alias does not stand."""

    id: str
    alias: str | None
    tenant: str
    actor: str | None
    input_digest: str | None


def start_session(conn: Connection, store: Store, new: NewSession, by: Claimant) -> Claim:
    """Make a session and take its lease, or say that the alias stands."""
    made = _make(conn, store, new)
    if made is not None:
        return _claim_row(conn, store, made, by, created=True)
    row = find_session(conn, name=new.id, tenant=new.tenant, lock=store.row_locks)
    if row is not None and row["owner_token"] == by.owner.token:  # made by a commit whose answer was lost
        return _claim_row(conn, store, row, by, created=True)
    stands = row or (find_session(conn, name=new.alias, tenant=new.tenant) if new.alias is not None else None)
    record = None if stands is None else session_record(stands)
    return Claim(status="exists", now=read_clock(conn, store), session=record)


def open_session(conn: Connection, store: Store, new: NewSession, by: Claimant) -> Claim:
    """Make the session of an alias, or claim it."""
    assert new.alias is not None
    row = find_session(conn, name=new.alias, tenant=new.tenant, lock=store.row_locks)
    if row is None:
        made = _make(conn, store, new)
        if made is not None:
            return _claim_row(conn, store, made, by, created=True)
        row = find_session(conn, name=new.alias, tenant=new.tenant, lock=store.row_locks)
    if row is None:
        return Claim(status="missing", now=read_clock(conn, store))
    if new.input_digest is not None and row["input_digest"] != new.input_digest:
        return Claim(status="input_changed", now=read_clock(conn, store), session=session_record(row))
    return _claim_row(conn, store, row, by)


def claim_session(conn: Connection, store: Store, *, name: str, tenant: str, by: Claimant) -> Claim:
    """Claim a session by id or alias."""
    row = find_session(conn, name=name, tenant=tenant, lock=store.row_locks)
    if row is None:
        return Claim(status="missing", now=read_clock(conn, store))
    return _claim_row(conn, store, row, by)


def _make(conn: Connection, store: Store, new: NewSession) -> RowMapping | None:
    now = begin_write(conn, store)
    row = {
        "id": new.id,
        "alias": new.alias,
        "tenant": new.tenant,
        "actor": new.actor,
        "state": "open",
        "input_digest": new.input_digest,
        "fence": 0,
        "created_at": now,
    }
    # Without a target: whichever constraint stands in the way.
    statement = insert(conn.dialect.name, t.sessions).values(row).on_conflict_do_nothing().returning(t.sessions)
    return conn.execute(statement).mappings().first()


def _claim_row(conn: Connection, store: Store, row: RowMapping, by: Claimant, *, created: bool = False) -> Claim:
    """Claim the session of a row that is locked: raise the fence, and only then read what stands."""
    now = begin_write(conn, store)
    if row["state"] != "open":
        loaded = read_session(conn, row, now)
        return Claim(status="taken", now=now, loaded=loaded, session=loaded.session)
    holder = owner_of(row)
    if holder is not None and not _may_take(holder, row["lease_until"], now, by):
        return Claim(status="busy", now=now, session=session_record(row), lease_until=row["lease_until"], holder=holder)
    here = t.sessions.c.id == row["id"]
    values = {"fence": row["fence"] + 1, "lease_until": now + by.lease, **owner_columns(by.owner)}
    taken = conn.execute(update(t.sessions).where(here).values(values).returning(t.sessions)).mappings().one()
    loaded = read_session(conn, taken, now)
    lease = Lease(
        session_id=row["id"],
        fence=taken["fence"],
        owner=by.owner,
        good_until=by.asked_at + by.lease - by.margin,
    )
    return Claim(status="taken", now=now, lease=lease, loaded=loaded, session=loaded.session, created=created)


def _may_take(holder: Owner, lease_until: float | None, now: float, by: Claimant) -> bool:
    if lease_until is None or lease_until <= now or holder.token == by.owner.token:
        return True
    if by.replaces is not None and by.replaces == holder.token and same_process(holder, by.owner):
        return True
    return is_dead(holder, by.owner)


def renew_leases(
    conn: Connection, store: Store, tokens: Sequence[str], lease: float
) -> tuple[float, dict[tuple[str, str], int]]:
    """Move the ends of leases; return the time and the fence of each session that an owner token still holds.

    Touches no key column, so that on Postgres it does not wait for batches that hold the row for key share.
    """
    now = read_clock(conn, store)
    row = t.sessions.c
    held = row.owner_token.in_(sorted(tokens))
    # Locked in order first: an UPDATE of many rows locks them in whatever order it meets them.
    if store.row_locks:
        conn.execute(select(row.id).where(held).order_by(row.id).with_for_update(key_share=True)).all()
    statement = update(t.sessions).where(held).values(lease_until=now + lease)
    found = conn.execute(statement.returning(row.id, row.owner_token, row.fence))
    return now, {(one.id, one.owner_token): one.fence for one in found}


def release_lease(conn: Connection, *, session_id: str, fence: int, token: str) -> None:
    """Give a lease back, unless another owner has the session."""
    row = t.sessions.c
    mine = (row.id == session_id, row.fence == fence, row.owner_token == token)
    conn.execute(update(t.sessions).where(*mine).values(lease_until=None, **owner_columns(None)))
