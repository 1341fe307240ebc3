"""The ledger over SQLite or Postgres."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agent_runtime._model import Advance, Deliver, File, PutValue, Reserve
from agent_runtime.config import defaults
from agent_runtime.errors import AgentRuntimeError, ConfigError
from agent_runtime.ledger import _claims, _reads
from agent_runtime.ledger._claims import Claimant, NewSession
from agent_runtime.ledger._events import EventRows
from agent_runtime.ledger._faults import file_error
from agent_runtime.ledger._host import ABANDONED, LedgerClock, MachineClock, MovedClock
from agent_runtime.ledger._leases import terms
from agent_runtime.ledger._migrate import ensure_schema
from agent_runtime.ledger._postgres import PostgresStore
from agent_runtime.ledger._runner import Runner
from agent_runtime.ledger._sqlite import SqliteStore
from agent_runtime.ledger._store import read_clock
from agent_runtime.ledger._thread import Job, LedgerThread
from agent_runtime.ledger._tokens import TokenRows
from agent_runtime.ledger._url import Target, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from sqlalchemy import Connection, Engine

    from agent_runtime._model import (
        AttemptRecord,
        EvidenceRecord,
        Loaded,
        OperationRecord,
        SessionRecord,
        SessionState,
        Write,
        WriteOutcome,
    )
    from agent_runtime.ledger._contract import Claim, Lease, Ledger, Owner
    from agent_runtime.ledger._store import Store

T = TypeVar("T")


def open_ledger(
    url: str,
    *,
    clock: LedgerClock | None = None,
    lease_seconds: float = defaults.LEASE,
    margin: float | None = None,
    migrate: Literal["auto", "check"] = "auto",
    create: bool = True,
    retry_seconds: float = defaults.LEDGER_PATIENCE,
    after_commit: Callable[[], None] | None = None,
) -> SqlLedger:
    """Open a ledger, and make or migrate its tables where that is wanted.

    Args:
        url: ``sqlite:///agent.db``, or ``postgresql://user@host/database``.
        clock: for tests: stands for the database's clock and for the boot-time clock.
        lease_seconds: how long a session stays taken after its worker was last heard of.
        margin: how much sooner the worker itself stops counting on its lease; a tenth of the lease by default.
        migrate: ``auto`` makes and migrates the tables; ``check`` only looks.
        create: make a SQLite file that does not exist.
        retry_seconds: how long passing trouble of the database is ridden out before a call fails.
        after_commit: for tests: called after each COMMIT; what it raises counts as an answer that was lost.

    Raises:
        ConfigError: a URL or setting that cannot work, or a schema that ``migrate="check"`` refuses.
        LedgerError: a database that cannot be used; its class says why.
    """
    if lease_seconds <= 0:
        raise ConfigError("lease_seconds must be greater than 0.")
    margin = lease_seconds * defaults.LEASE_MARGIN_SHARE if margin is None else margin
    if not 0 <= margin < lease_seconds * 2 / 3:
        raise ConfigError("margin must be 0 or more, and less than two thirds of lease_seconds.")
    target = parse(url)
    store = _store(target, clock, create=create, patience=min(1.0, retry_seconds))
    runner = Runner(
        store,
        clock or MachineClock(),
        lease_seconds=lease_seconds,
        margin=margin,
        patience=retry_seconds,
        after_commit=after_commit,
    )
    ledger = SqlLedger(runner, migrate=migrate)
    if isinstance(clock, MovedClock):
        clock.before_moving(ledger.renew_ahead)
    return ledger


def _store(target: Target, clock: LedgerClock | None, *, create: bool, patience: float) -> Store:
    if target.url is not None:
        return PostgresStore(target.url, clock=clock)
    try:
        return SqliteStore(target.path, clock=clock or MachineClock(), create=create, patience=patience)
    except OSError as exc:
        refused = file_error(exc, f"the ledger {target.path}")
    raise refused


class SqlLedger(TokenRows, EventRows):
    """The ledger over SQLAlchemy Core; `open_ledger` makes one.

    Attributes:
        engine: the SQLAlchemy engine, for its events; work on it belongs to the ledger thread.
    """

    def __init__(self, runner: Runner, *, migrate: Literal["auto", "check"]) -> None:
        self._runner = runner
        self._thread = LedgerThread(runner, runner.store.where)
        runner.nudge = self._thread.nudge
        self._closed = weakref.finalize(self, _end_soon, self._thread)
        self._closed.atexit = False
        try:
            ensure_schema(runner, migrate)
            runner.note_time(runner.transact(lambda conn: read_clock(conn, runner.store), write=False))
        except BaseException:
            self._closed.detach()
            runner.finish()
            raise
        _OPEN.add(self)

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for its events."""
        return self._runner.store.engine

    @property
    def in_memory(self) -> bool:
        """Whether it ends with its process."""
        return self._runner.store.in_memory

    def __repr__(self) -> str:
        return f"<SqlLedger {self._runner.store.where}>"

    def describe(self) -> dict[str, str]:
        """Name what is in force: store, versions, journal mode, locks, lease."""
        facts = {"lease_seconds": f"{self._runner.lease_seconds:g}", "lease_margin": f"{self._runner.margin:g}"}
        return self._runner.store.describe() | facts

    def now(self) -> float:
        """Return the database's clock (UTC epoch seconds), reckoned on from the last answer of the database."""
        return self._runner.now()

    def write(self, entries: Sequence[Write]) -> Future[list[WriteOutcome]]:
        """Write entries in one transaction; each takes or not by itself, in order."""
        if not entries:
            return self._submit(lambda conn: [], write=False)  # noqa: ARG005
        return self._thread.submit(Job(write=True, entries=entries, size=sum(map(_size, entries))))

    def start(
        self,
        *,
        session_id: str,
        alias: str | None,
        tenant: str,
        actor: str | None,
        input_digest: str | None,
        owner: Owner,
    ) -> Future[Claim]:
        """Make a session and take its lease: ``taken``, or ``exists`` if the alias stands."""
        new = NewSession(id=session_id, alias=alias, tenant=tenant, actor=actor, input_digest=input_digest)
        return self._claim(owner, None, lambda conn, store, by: _claims.start_session(conn, store, new, by))

    def open(
        self, *, session_id: str, alias: str, tenant: str, actor: str | None, input_digest: str | None, owner: Owner
    ) -> Future[Claim]:
        """Make the session of this alias or claim it, in one transaction."""
        new = NewSession(id=session_id, alias=alias, tenant=tenant, actor=actor, input_digest=input_digest)
        return self._claim(owner, None, lambda conn, store, by: _claims.open_session(conn, store, new, by))

    def claim(self, *, name: str, tenant: str, owner: Owner, replaces: str | None = None) -> Future[Claim]:
        """Claim a session by id or alias: raise the fence, then read everything."""
        return self._claim(
            owner,
            replaces,
            lambda conn, store, by: _claims.claim_session(conn, store, name=name, tenant=tenant, by=by),
        )

    def release(self, lease: Lease) -> Future[None]:
        """Give the lease back; does nothing if another owner has it."""
        self._thread.check()
        lease.lost = True  # at once: its holder begins nothing more
        return self._thread.submit(self._runner.release(terms(lease)))

    def abandon_lease(self, lease: Lease) -> None:
        """For tests: leave a lease as the death of this process would, neither renewed nor given back.

        Who claims the session from this same process finds its holder dead.
        """
        self._runner.leases.forget(terms(lease))
        ABANDONED.add(lease.owner.token)

    def renew(self) -> Future[None]:
        """Renew all leases of this process now; the ledger thread does so by itself three times a lease."""
        return self._thread.submit(self._runner.renewal())

    def renew_ahead(self, seconds: float) -> Future[None] | None:
        """Renew the leases of this process for a clock that is about to move; None = there is nothing to wait for."""
        try:
            renewed = self._thread.submit(self._runner.renewal(seconds))
        except AgentRuntimeError:  # closed, or of a parent process
            return None
        return None if self._thread.is_current() else renewed

    def load(self, *, name: str, tenant: str) -> Future[Loaded | None]:
        """Read a session by id or alias without a lease."""
        store = self._runner.store

        def work(conn: Connection) -> Loaded | None:
            store.snapshot(conn)
            row = _reads.find_session(conn, name=name, tenant=tenant)
            return None if row is None else _reads.read_session(conn, row, read_clock(conn, store))

        return self._submit(work, write=False)

    def sessions(self, *, tenant: str, state: SessionState | None) -> Future[list[SessionRecord]]:
        """List sessions, newest first."""
        return self._submit(lambda conn: _reads.list_sessions(conn, tenant=tenant, state=state), write=False)

    def operation(self, operation_id: str) -> Future[OperationRecord | None]:
        """Read one operation."""
        return self._submit(lambda conn: _reads.operation_by_id(conn, operation_id), write=False)

    def by_business_key(self, *, tenant: str, origin: str, key: str) -> Future[OperationRecord | None]:
        """Read the operation that holds a caller's own key."""
        return self._submit(
            lambda conn: _reads.operation_by_business_key(conn, tenant=tenant, origin=origin, key=key), write=False
        )

    def attention(self, *, tenant: str) -> Future[list[OperationRecord]]:
        """List operations that are unknown or contradicted, oldest first."""
        return self._submit(lambda conn: _reads.list_attention(conn, tenant=tenant), write=False)

    def attempts(self, operation_id: str) -> Future[list[AttemptRecord]]:
        """List the attempts of an operation."""
        return self._submit(lambda conn: _reads.list_attempts(conn, operation_id), write=False)

    def evidence(self, operation_id: str) -> Future[list[EvidenceRecord]]:
        """List what was seen about an operation, in the order of filing."""
        return self._submit(lambda conn: _reads.list_evidence(conn, operation_id), write=False)

    def close(self) -> None:
        """Release all leases, end the ledger thread and close the connections. Safe to call twice."""
        self._closed.detach()
        if not self._thread.close(timeout=self._runner.patience):
            self._runner.hurry.set()  # the database is away: what is queued gets one more try each
            self._thread.close()

    def end_at_exit(self) -> None:
        """Close in a hurry: the end of the interpreter must not hang on a database that is away."""
        self._runner.hurry.set()
        self._thread.close(timeout=EXIT_SECONDS)

    def abandon(self) -> None:
        """In a forked child: leave the parent's connection alone for good."""
        self._runner.store.abandon()

    def _submit(self, work: Callable[[Connection], T], *, write: bool) -> Future[T]:
        return self._thread.submit(Job(work, write=write))

    def _claim(
        self, owner: Owner, replaces: str | None, work: Callable[[Connection, Store, Claimant], Claim]
    ) -> Future[Claim]:
        runner = self._runner

        def claim(conn: Connection) -> Claim:
            by = Claimant(
                owner=owner,
                asked_at=runner.clock.boottime(),
                lease=runner.lease_seconds,
                margin=runner.margin,
                replaces=replaces,
            )
            return work(conn, runner.store, by)

        return self._thread.submit(Job(claim, write=True, then=runner.note_claim))


def _size(entry: Write) -> int:
    """Return about how many bytes an entry brings."""
    match entry:
        case Reserve():
            bodies = (len(new.args) + (len(new.request.body) if new.request else 0) for new in entry.operations)
            return 1000 * (len(entry.operations) + len(entry.steps)) + sum(bodies)
        case Advance():
            change: tuple[Any, ...] = (entry.change.result, entry.change.error, entry.change.handle)
            payload = sum(len(value) for value in change if isinstance(value, bytes))
            return 500 + payload + sum(len(seen.body) for seen in entry.evidence)
        case Deliver():
            return 300 + len(entry.delivered or b"")
        case PutValue():
            return 300 + len(entry.value)
        case File():
            return 300 + len(entry.evidence.body)
        case _:
            return 300


if TYPE_CHECKING:
    _conforms: type[Ledger] = SqlLedger

_OPEN: weakref.WeakSet[SqlLedger] = weakref.WeakSet()
EXIT_SECONDS = 2.0
"""How long the end of the interpreter waits for a ledger that was not closed."""


def _end_soon(thread: LedgerThread) -> None:
    thread.close(timeout=0)


@atexit.register
def _end_all() -> None:
    for ledger in list(_OPEN):
        ledger.end_at_exit()


def _after_fork() -> None:
    for ledger in list(_OPEN):
        ledger.abandon()


os.register_at_fork(after_in_child=_after_fork)
