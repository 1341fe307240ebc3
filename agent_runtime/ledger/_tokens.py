"""Tokens that processes share: one row for each account or access token, and whose turn a token request is.

No transaction is open while a request is out. Its worker first takes the row (`hold`), with an end: one that ends
without a word leaves the row held, and the next one that takes it counts a doubt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import delete, select, update

from agent_runtime._model.tokens import TokenHold, TokenRecord
from agent_runtime.ledger import _schema as t
from agent_runtime.ledger._statements import insert
from agent_runtime.ledger._store import begin_write

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from sqlalchemy import Connection, RowMapping

    from agent_runtime.ledger._runner import Runner
    from agent_runtime.ledger._store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taking:
    """A wish to take a row; as `TokenRows.hold_token` has it."""

    ident: str
    name: str
    holder: str
    seconds: float
    expires: bool
    ended: str | None


class TokenRows:
    """The part of a ledger that keeps tokens. Strictly private."""

    _runner: Runner

    def _submit(self, work: Callable[[Connection], T], *, write: bool) -> Future[T]:
        raise NotImplementedError

    def token(self, ident: str) -> Future[TokenRecord | None]:
        """Read a token's row."""
        return self._submit(lambda conn: read_token(conn, ident), write=False)

    def hold_token(
        self,
        ident: str,
        *,
        name: str,
        holder: str,
        seconds: float,
        seed: str | None = None,
        expires: bool = False,
        ended: str | None = None,
    ) -> Future[TokenHold]:
        """Take a token's row for a request of so many seconds, making it if need be; read what stands then.

        Args:
            ident: of the row.
            name: the principal.
            holder: who takes it.
            seconds: for which it is taken.
            seed: digest of the refresh token from outside, which belongs to the row that it was brought for first.
            expires: the row may be forgotten once its token has run out.
            ended: a holder whose time is certainly over, whatever the row says: clocks step back.
        """
        store = self._runner.store
        taken = _Taking(ident=ident, name=name, holder=holder, seconds=seconds, expires=expires, ended=ended)
        return self._submit(lambda conn: _hold(conn, store, taken, seed), write=True)

    def keep_token(
        self,
        ident: str,
        *,
        holder: str,
        version: int,
        sealed: bytes,
        seeds: tuple[str, ...] = (),
        release: bool = True,
        expires_at: float | None = None,
    ) -> Future[int | None]:
        """Keep new tokens in a row that still has this version; return the new one, or None if nothing was written.

        Without ``release`` the holder goes on, and is about to send what it has kept. ``expires_at`` (UTC epoch seconds
        by the database's clock) is when the row is of no use any more; the write forgets the rows for which that moment
        has come.
        """
        store = self._runner.store

        def work(conn: Connection) -> int | None:
            new = {"sealed": sealed, "seeds": json.dumps(seeds).encode(), "expires_at": expires_at}
            return _keep(conn, store, ident=ident, holder=holder, version=version, new=new, release=release)

        return self._submit(work, write=True)

    def free_token(self, ident: str, *, holder: str, doubt: bool = False, problem: str | None = None) -> Future[None]:
        """Give a token's row back without a new token, and say what the refresh left behind."""
        store = self._runner.store

        def work(conn: Connection) -> None:
            _free(conn, store, ident=ident, holder=holder, doubt=doubt, problem=problem)

        return self._submit(work, write=True)


def read_token(conn: Connection, ident: str) -> TokenRecord | None:
    """Read a token's row."""
    row = conn.execute(select(t.tokens).where(t.tokens.c.id == ident)).mappings().first()
    return None if row is None else _record(row)


def _hold(conn: Connection, store: Store, taking: _Taking, seed: str | None) -> TokenHold:
    """Take a row for a token request, making it if it is not there; read what stands once it is taken.

    The row of a holder whose time is over is taken too, and that is counted as a doubt.
    """
    now = begin_write(conn, store)
    ident, ends = taking.ident, now + taking.seconds
    if seed is not None and not _belongs(conn, seed, ident):
        return TokenHold(took=False, record=None, now=now)
    row = _made(conn, {"id": ident, "name": taking.name, "version": 0, "seeds": b"[]", "doubts": 0, "updated_at": now})
    held = row["holder"]
    if held == taking.holder:  # taken by a commit whose answer was lost
        return TokenHold(took=True, record=_record(row), now=now)
    if held not in {None, taking.ended} and row["held_until"] > now:
        return TokenHold(took=False, record=_record(row), now=now)
    doubts = row["doubts"] + (held is not None)
    values = {"holder": taking.holder, "held_until": ends, "doubts": doubts}
    if doubts == 0:  # else it stays as the first refresh has it
        values["tried_at"] = now
    if taking.expires:  # never while it is held
        values["expires_at"] = max(row["expires_at"] or 0.0, ends)
    return TokenHold(took=True, record=_changed(conn, ident, values), now=now)


def _made(conn: Connection, fresh: dict[str, Any]) -> RowMapping:
    """Return a row, locked; in one statement, or another worker could forget it between two."""
    made = insert(conn.dialect.name, t.tokens).values(fresh)
    made = made.on_conflict_do_update(index_elements=[t.tokens.c.id], set_={"name": fresh["name"]})
    return conn.execute(made.returning(t.tokens)).mappings().one()


def _belongs(conn: Connection, seed: str, ident: str) -> bool:
    """Give a token from outside to a row, once and for all; False = it belongs to another one.

    Of two rows that want it at once, the second insert waits for the first one's commit.
    """
    row = {"digest": seed, "token_id": ident}
    conn.execute(insert(conn.dialect.name, t.token_seeds).values(row).on_conflict_do_nothing())
    owner = conn.execute(select(t.token_seeds.c.token_id).where(t.token_seeds.c.digest == seed)).scalar_one()
    return bool(owner == ident)


def _keep(
    conn: Connection, store: Store, *, ident: str, holder: str, version: int, new: dict[str, Any], release: bool
) -> int | None:
    """Write new tokens over the version that they were made from: an older token never overwrites a newer one.

    Not asked is whose turn it is: a worker that slept through its turn and has the newest token must not lose it.
    """
    now = begin_write(conn, store)
    row = _locked(conn, store, ident)
    if row is None:  # forgotten by another worker: this one came very late
        return None
    if row["version"] != version:
        mine = row["kept_by"] == holder and row["version"] == version + 1  # kept by a commit whose answer was lost
        return version + 1 if mine else None
    values = new | {"version": version + 1, "doubts": 0, "problem": None, "kept_by": holder, "updated_at": now}
    values["tried_at"] = None if release else now
    if release:
        values |= {"holder": None, "held_until": None}
    kept = _changed(conn, ident, values).version
    if values["expires_at"] is not None:
        _forget(conn, now)
    return kept


def _forget(conn: Connection, now: float) -> None:
    """Delete the rows of tokens that have run out; those that somebody is at are left for the next time."""
    expired = select(t.tokens.c.id).where(t.tokens.c.expires_at < now).with_for_update(skip_locked=True)
    conn.execute(delete(t.tokens).where(t.tokens.c.id.in_(expired)))


def _free(conn: Connection, store: Store, *, ident: str, holder: str, doubt: bool, problem: str | None) -> None:
    """Give the row back without a new token; does nothing if it is not this holder's any more."""
    now = begin_write(conn, store)
    row = _locked(conn, store, ident)
    if row is None or row["holder"] != holder:
        return
    if row["sealed"] is None and row["expires_at"] is not None:  # nothing came of it
        conn.execute(delete(t.tokens).where(t.tokens.c.id == ident))
        return
    doubts = row["doubts"] + doubt
    values: dict[str, Any] = {"holder": None, "held_until": None, "doubts": doubts, "updated_at": now}
    if doubts == 0:
        values["tried_at"] = None
    if problem is not None:
        values["problem"] = problem
    _changed(conn, ident, values)


def _locked(conn: Connection, store: Store, ident: str) -> RowMapping | None:
    statement = select(t.tokens).where(t.tokens.c.id == ident)
    if store.row_locks:
        statement = statement.with_for_update()
    return conn.execute(statement).mappings().first()


def _changed(conn: Connection, ident: str, values: dict[str, Any]) -> TokenRecord:
    statement = update(t.tokens).where(t.tokens.c.id == ident).values(values).returning(t.tokens)
    return _record(conn.execute(statement).mappings().one())


def _record(row: RowMapping) -> TokenRecord:
    sealed = row["sealed"]
    return TokenRecord(
        id=row["id"],
        name=row["name"],
        version=row["version"],
        sealed=None if sealed is None else bytes(sealed),
        seeds=tuple(json.loads(bytes(row["seeds"]))),
        holder=row["holder"],
        held_until=row["held_until"],
        doubts=row["doubts"],
        problem=row["problem"],
        tried_at=row["tried_at"],
    )
