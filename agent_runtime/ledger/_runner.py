"""Runs transactions: tries again what fails in passing, settles lost COMMIT answers, renews leases."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from random import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy.exc import StatementError

from agent_runtime._model import EndSession, File, Took
from agent_runtime.errors import AgentRuntimeError, LedgerError, LedgerLost
from agent_runtime.ledger import _words
from agent_runtime.ledger._apply import NotSmooth, apply_batch
from agent_runtime.ledger._claims import release_lease, renew_leases
from agent_runtime.ledger._faults import Fault, fault_of, refusal
from agent_runtime.ledger._leases import LeaseBook, Terms, terms
from agent_runtime.ledger._thread import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from agent_runtime._model import Write, WriteOutcome
    from agent_runtime.ledger._contract import Claim
    from agent_runtime.ledger._host import LedgerClock
    from agent_runtime.ledger._store import Store

T = TypeVar("T")
Renewed = tuple[float, dict[tuple[str, str], int]]

logger: Final = logging.getLogger("agent_runtime")

RENEW_PATIENCE = 2.0
"""Seconds that one renewal may keep the other work waiting while the database is away."""


class AnswerLost(Exception):
    """The COMMIT was sent and what came back was no answer."""


SLACK = 1.0
"""Seconds by which a reading of the database's clock may lag behind what is reckoned, before it is believed instead."""


class Runner:
    """What the ledger thread runs.

    Args:
        clock: the boot-time clock that leases are measured by.
        patience: seconds for which passing trouble is ridden out.
        after_commit: called after each COMMIT of a transaction that wrote; what it raises counts as a lost answer.
    """

    def __init__(
        self,
        store: Store,
        clock: LedgerClock,
        *,
        lease_seconds: float,
        margin: float,
        patience: float,
        after_commit: Callable[[], None] | None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.lease_seconds = lease_seconds
        self.margin = margin
        self.patience = patience
        self.after_commit = after_commit
        self.hurry = threading.Event()
        self.nudge: Callable[[Job[Any]], None] = lambda job: None  # noqa: ARG005  the ledger sets it
        self.leases = LeaseBook(self._orphaned)
        self._renew_at: float | None = None
        self._lost: LedgerLost | None = None
        self._seen: tuple[float, float] | None = None

    def now(self) -> float:
        """Return the database's clock, reckoned on from its last answer."""
        seen = self._seen
        return self.clock.wall() if seen is None else seen[0] + (self.clock.boottime() - seen[1])

    def note_time(self, now: float) -> None:
        """Keep what the database's clock read a moment ago, unless what is reckoned from before is as good or better.

        A reading is always a little old: taken for now, it would put the clock back by as much.
        """
        if self._seen is None or not 0 <= self.now() - now < SLACK:
            self._seen = (now, self.clock.boottime())

    def perform(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        """Do jobs in one transaction; return a value or an exception for each."""
        try:
            if jobs[0].entries:
                return self._write(jobs)
            (job,) = jobs
            assert job.work is not None
            value = self.transact(job.work, write=job.write)
            if job.then is not None:
                job.then(value)
        except Exception as exc:  # noqa: BLE001  it belongs to the callers, who are all waiting for it
            return [exc] * len(jobs)
        return [value]

    def _write(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        entries: list[Write] = [entry for job in jobs for entry in job.entries]
        try:
            outcomes = self.transact(lambda conn: apply_batch(conn, self.store, entries, careful=False), write=True)
        except NotSmooth:
            outcomes = self.transact(lambda conn: apply_batch(conn, self.store, entries, careful=True), write=True)
        self._note(entries, outcomes)
        answers = []
        for job in jobs:
            answers.append(outcomes[: len(job.entries)])
            outcomes = outcomes[len(job.entries) :]
        return answers

    def _note(self, entries: Sequence[Write], outcomes: Sequence[WriteOutcome]) -> None:
        self.note_time(outcomes[-1].now)
        for entry, outcome in zip(entries, outcomes, strict=True):
            fence = None if isinstance(entry, File) else entry.fence
            ended = isinstance(entry, EndSession) and outcome.took is Took.TOOK
            if fence is not None and (ended or outcome.took is Took.FENCE_LOST):
                self.leases.lose(entry.session_id, below=fence + 1)

    def transact(self, work: Callable[[Connection], T], *, write: bool, patience: float | None = None) -> T:
        """Run work in one transaction and commit it; try again as a whole what fails in passing."""
        end = time.monotonic() + (self.patience if patience is None else patience)
        pause = 0.005
        doubtful = False
        while True:
            if self._lost is not None:
                raise self._lost
            committing = [False]
            try:
                return self._once(work, write, committing)
            except Exception as exc:
                fault = self._judge(exc)
                if fault is None:
                    raise
            doubtful |= committing[0] and fault.doubtful
            if fault.reconnect:
                self._reconnect()
            if not (fault.again or doubtful) or time.monotonic() >= end or self.hurry.is_set():
                break
            self.hurry.wait(pause * (0.5 + random()))  # noqa: S311  spreads the writers, hides nothing
            pause = min(pause * 2, 0.25)
        if isinstance(fault.error, LedgerLost):
            self._lost = fault.error
        raise _words.in_doubt(self.store.where, fault.error) if doubtful else fault.error

    def _once(self, work: Callable[[Connection], T], write: bool, committing: list[bool]) -> T:
        with self.store.connect(write=write) as conn:
            try:
                value = work(conn)
                committing[0] = write
                conn.commit()
            except BaseException:
                _end_transaction(conn)
                raise
        self.store.committed()
        if write and self.after_commit is not None:
            try:
                self.after_commit()
            except Exception as exc:
                raise AnswerLost from exc
        return value

    def _judge(self, exc: Exception) -> Fault | None:
        if isinstance(exc, AnswerLost):
            return Fault(
                LedgerError(f"{self.store.where}: the answer to a COMMIT was lost."), again=True, doubtful=True
            )
        if isinstance(exc, AgentRuntimeError) and not isinstance(exc, LedgerError):
            return None
        fault = fault_of(exc, self.store.where, self.store.secrets)
        if fault is None and isinstance(exc, StatementError | UnicodeError | OverflowError) and (why := refusal(exc)):
            return Fault(_words.refused(self.store.where, why))
        return fault

    def _reconnect(self) -> None:
        try:
            self.store.drop_connections()
        except Exception as exc:
            if self._judge(exc) is None:
                raise

    def tick(self) -> float | None:
        """Renew the leases if that is due; return the seconds until it is due, or None without leases."""
        if not self.leases:
            self._renew_at = None
            return None
        before = self.clock.boottime()
        every = self.lease_seconds / 3
        if self._renew_at is None:
            self._renew_at = before + every
        if before >= self._renew_at:
            try:
                self.renew()
                self._renew_at = before + every
            except Exception as exc:  # noqa: BLE001  the leases' own deadlines tell their holders; the thread goes on
                logger.warning("%s: leases could not be renewed (%s)", self.store.where, type(exc).__name__)
                self._renew_at = before + min(every, 1.0)
        return max(0.001, self._renew_at - self.clock.boottime())

    def renew(self, ahead: float = 0.0) -> None:
        """Renew all living leases now, or as if it were so many seconds later."""
        living = self.leases.living()
        for some in (living[at : at + 500] for at in range(0, len(living), 500)):
            tokens = [lease.owner.token for lease in some]
            before = self.clock.boottime()

            def work(conn: Connection, tokens: Sequence[str] = tokens) -> Renewed:
                return renew_leases(conn, self.store, tokens, self.lease_seconds + ahead)

            now, held = self.transact(work, write=True, patience=min(self.patience, RENEW_PATIENCE))
            self.note_time(now)
            for lease in some:
                session_id, fence, token = terms(lease)
                if held.get((session_id, token)) != fence:
                    self.leases.drop(lease)
                elif not lease.lost:
                    lease.good_until = before + ahead + self.lease_seconds - self.margin

    def renewal(self, ahead: float = 0.0) -> Job[None]:
        """Return a job that renews all living leases; its own transaction only reads."""
        return Job(lambda conn: None, write=False, then=lambda _: self.renew(ahead))  # noqa: ARG005

    def note_claim(self, claim: Claim) -> None:
        """Keep a lease that was given, and mark what it was taken from."""
        self.note_time(claim.now)
        if claim.lease is not None:
            self.leases.lose(claim.lease.session_id, below=claim.lease.fence)
            self.leases.add(claim.lease)

    def release(self, key: Terms) -> Job[None]:
        """Return a job that gives a lease back."""
        session_id, fence, token = key

        def work(conn: Connection) -> None:
            release_lease(conn, session_id=session_id, fence=fence, token=token)

        return Job(work, write=True, then=lambda _: self._forget(key))

    def _forget(self, key: Terms) -> None:
        self.leases.forget(key)

    def _orphaned(self, key: Terms) -> None:
        self.nudge(self.release(key))

    def finish(self) -> None:
        """Release what is held and close the connections."""
        held = self.leases.living()
        for lease in held:
            self.leases.drop(lease)

        def work(conn: Connection) -> None:
            for session_id, fence, token in map(terms, held):
                release_lease(conn, session_id=session_id, fence=fence, token=token)

        if held:
            with suppress(LedgerError):  # they end by themselves
                self.transact(work, write=True, patience=min(self.patience, RENEW_PATIENCE))
        self._close()

    def _close(self) -> None:
        try:
            self.store.close()
        except Exception as exc:
            if self._judge(exc) is None:
                raise


def _end_transaction(conn: Connection) -> None:
    """Roll back on the driver's connection.

    A COMMIT that raised ends the transaction for SQLAlchemy, which then gives the connection back to the pool as it is;
    on a busy SQLite file the transaction still stands.
    """
    try:
        conn.connection.rollback()
    except Exception:  # noqa: BLE001  a connection that cannot even do that is not used again
        conn.invalidate()
