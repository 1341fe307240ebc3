"""The ledger thread outlives its callers, and its callers outlive it."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from agent_runtime._model import State, Took
from agent_runtime.errors import CommitUnknown, LedgerUnavailable
from agent_runtime.ledger._thread import Job, LedgerThread
from tests.ledger.build import TENANT, WAIT, Holder, claim, start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent_runtime.ledger import SqlLedger
    from tests.conftest import Backend

ROOT = Path(__file__).parents[2]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False
    )


class Held:
    """Keeps the ledger thread inside its next commit."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.entered, self.go = threading.Event(), threading.Event()
        event.listen(ledger.engine, "commit", self._hold)

    def _hold(self, _: object) -> None:
        self.entered.set()
        self.go.wait(WAIT)


def test_a_waiter_that_gives_up_tears_nothing(session: Holder) -> None:
    """A future cannot be cancelled: what was handed in is done though nobody waits any more."""
    held = Held(session.ledger)
    future = session.ledger.write([session.reserve_entry(1)])
    assert held.entered.wait(WAIT)
    queued = session.ledger.write([session.reserve_entry(2)])
    assert not future.cancel()
    assert not queued.cancel()
    held.go.set()
    assert queued.result(WAIT)[0].took is Took.TOOK
    assert len(session.loaded().operations) == 2


def test_a_cancelled_task_tears_nothing(session: Holder) -> None:
    """An async caller that is cancelled leaves its write to be done."""
    held = Held(session.ledger)

    async def scenario() -> None:
        task = asyncio.ensure_future(asyncio.wrap_future(session.ledger.write([session.reserve_entry(1)])))
        await asyncio.get_running_loop().run_in_executor(None, held.entered.wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    held.go.set()
    assert len(session.loaded().operations) == 1


def test_a_loop_that_is_closed_hurts_nobody(session: Holder) -> None:
    """The answer to a caller whose event loop is gone does not harm the thread."""
    held = Held(session.ledger)
    loop = asyncio.new_event_loop()
    kept = asyncio.wrap_future(session.ledger.write([session.reserve_entry(1)]), loop=loop)
    assert held.entered.wait(WAIT)
    loop.close()
    held.go.set()
    assert session.reserve(2).state is State.READY
    assert not kept.done()


def test_one_ledger_serves_loops_one_after_the_other(session: Holder) -> None:
    """Three event loops in a row, and callers from a running loop's thread, use the same ledger (A44)."""

    async def step(number: int) -> Took:
        (outcome,) = await asyncio.wrap_future(session.ledger.write([session.reserve_entry(number)]))
        return outcome.took

    assert [asyncio.run(step(number)) for number in (1, 2, 3)] == ["took", "took", "took"]

    async def blocking() -> State:
        return session.reserve(4).state

    assert asyncio.run(blocking()) is State.READY


def test_a_dying_thread_fails_its_waiters_and_is_replaced(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """Who waits for a thread that dies learns that nothing is known; the next thread does what was queued."""
    fatal: list[BaseException] = []

    def after_commit() -> None:
        if fatal:
            raise fatal.pop()

    ledger = opener(backend.url, after_commit=after_commit)
    session = start(ledger)
    entry = session.reserve_entry(1)
    held = Held(ledger)
    fatal.append(SystemExit())
    future = ledger.write([entry])
    assert held.entered.wait(WAIT)
    queued = ledger.operation(entry.operations[0].id)
    held.go.set()
    with pytest.raises(CommitUnknown, match="same write id"):
        future.result(WAIT)
    assert queued.result(WAIT) is not None
    assert session.one(entry).took is Took.TOOK
    assert len(session.loaded().operations) == 1


def test_a_closed_ledger_says_so(ledger: SqlLedger) -> None:
    """Work handed in after `close` is refused with a typed error."""
    ledger.close()
    with pytest.raises(LedgerUnavailable, match="closed"):
        ledger.sessions(tenant=TENANT, state=None)


def test_what_was_queued_before_a_close_is_done(session: Holder, rival: SqlLedger) -> None:
    """`close` lets the queue run empty."""
    futures = [session.ledger.write([session.reserve_entry(number)]) for number in range(1, 20)]
    session.ledger.close()
    assert {future.result(0)[0].took for future in futures} == {Took.TOOK}
    loaded = rival.load(name=session.id, tenant=TENANT).result(WAIT)
    assert loaded is not None
    assert len(loaded.operations) == 19


def test_what_is_read_are_plain_values(session: Holder, ledger: SqlLedger) -> None:
    """Records stay readable, equal and picklable after later commits, rollbacks and the close (A43)."""
    made = session.reserve(1)
    refused = session.one(session.reserve_entry(1))
    loaded = session.loaded()
    ledger.close()
    assert refused.took is Took.POSITION_TAKEN
    assert pickle.loads(pickle.dumps(loaded)) == loaded
    assert loaded.operations == (made,)


FORK = """
import os, sys
from agent_runtime.errors import LedgerInherited
from agent_runtime.ledger import open_ledger
from tests.ledger.build import claim, start
ledger = open_ledger(sys.argv[1])
session = start(ledger, "orders-db")
session.reserve(1)
child = os.fork()
if child == 0:
    try:
        session.reserve(2)
    except LedgerInherited as exc:
        print("inherited", flush=True)
    ledger.close()
    with_own = open_ledger(sys.argv[1])
    print(claim(with_own, "orders-db").status, flush=True)
    with_own.close()
    sys.exit(0)
print(os.waitpid(child, 0)[1], flush=True)
session.reserve(3)
print(len(session.loaded().operations), flush=True)
"""


def test_a_forked_child_does_not_use_its_parents_ledger(backend: Backend) -> None:
    """An inherited ledger raises at once in the child, whose own ledger works; the parent's goes on."""
    done = run(FORK, backend.url)
    assert done.stdout.split() == ["inherited", "busy", "0", "2"], done.stderr
    assert done.returncode == 0


EXIT = """
import sys
from agent_runtime.ledger import open_ledger
from tests.ledger.build import start
ledger = open_ledger(sys.argv[1])
session = start(ledger, "orders-db")
"""


def test_the_end_of_the_interpreter_gives_the_leases_back(backend: Backend, ledger: SqlLedger) -> None:
    """A program that ends without closing its ledger ends at once, and its session is free."""
    done = run(EXIT + "session.lease.owner.__class__\n", backend.url)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = ledger.load(name="orders-db", tenant=TENANT).result(WAIT)
    assert loaded is not None
    assert loaded.session.owner is None


def test_the_end_of_the_interpreter_does_not_wait_for_a_busy_file(tmp_path: Path) -> None:
    """A file that another writer keeps does not hold a program up when it ends."""
    hold = "import sqlite3\nother = sqlite3.connect(sys.argv[2])\nother.execute('BEGIN IMMEDIATE')\n"
    done = run(EXIT + hold, f"sqlite:///{tmp_path}/agent.db", f"{tmp_path}/agent.db")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_ledger_that_is_forgotten_ends_its_thread(backend: Backend, rival: SqlLedger) -> None:
    """A ledger that is collected without `close` gives back what it holds."""
    from agent_runtime.ledger import open_ledger

    ledger = open_ledger(backend.url)
    ident = start(ledger).id
    (thread,) = [one for one in threading.enumerate() if one is ledger._thread._thread]
    del ledger
    thread.join(WAIT)
    assert not thread.is_alive()
    assert claim(rival, ident).status == "taken"


def test_an_end_that_fails_is_an_end_all_the_same() -> None:
    """A thread that could not give everything back has ended, and a second close does not wait for another one."""

    class Failing:
        def perform(self, jobs: Sequence[Job[Any]]) -> list[Any]:
            return []

        def tick(self) -> None:
            return None

        def finish(self) -> None:
            raise OSError("the connection cannot be closed")

    thread = LedgerThread(Failing(), "the ledger")
    assert [thread.close(WAIT), thread.close(1)] == [True, True]


def test_a_close_that_is_overtaken_by_its_own_end_returns() -> None:
    """A thread that takes the mark and ends before `close` has looked at it is not replaced."""

    class Idle:
        def perform(self, jobs: Sequence[Job[Any]]) -> list[Any]:
            return [None] * len(jobs)

        def tick(self) -> None:
            return None

        def finish(self) -> None:
            return None

    class Hasty(LedgerThread):
        """Looks whether the thread lives once it had the time to end."""

        def _ensure_thread(self) -> None:
            if self._closing and self._thread is not None:
                self._thread.join(0.2)
            super()._ensure_thread()

    thread = Hasty(Idle(), "the ledger")
    thread.submit(Job(lambda conn: None, write=False)).result(WAIT)
    assert thread.close(1)


def test_a_late_reading_does_not_put_the_clock_back(ledger: SqlLedger) -> None:
    """A reading that took its time lags behind what is reckoned; the reckoning stays, until they differ by much."""
    runner, before = ledger._runner, ledger.now()
    runner.note_time(before - 0.4)
    assert ledger.now() == before
    runner.note_time(before - 3600)
    assert ledger.now() == before - 3600
    runner.note_time(before + 5)
    assert ledger.now() == before + 5
