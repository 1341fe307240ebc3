"""What only a server can do: let two owners write at the same moment."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import event

from agent_runtime._model import State, Took
from agent_runtime.ledger import SqlLedger, open_ledger
from tests.ledger.build import TENANT, WAIT, Holder, claim, here, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.ledger.build import FakeClock


@pytest.fixture
def session(postgres_url: str, opener: Callable[..., SqlLedger]) -> Holder:
    return start(opener(postgres_url), "orders-db")


@pytest.fixture
def rival(postgres_url: str, opener: Callable[..., SqlLedger]) -> SqlLedger:
    return opener(postgres_url)


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        yield conn


def await_lock_wait(admin: psycopg.Connection[Any]) -> None:
    """Return once a backend of a ledger waits for a row lock."""
    end = time.monotonic() + WAIT
    question = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'agent_runtime' "
        "AND datname = current_database() AND wait_event_type = 'Lock'"
    )
    while not admin.execute(question).fetchone()[0]:  # type: ignore[index]
        assert time.monotonic() < end, "nobody waits for a lock"


class Held:
    """Keeps a ledger thread at a chosen statement, its locks taken."""

    def __init__(self, ledger: SqlLedger, words: str) -> None:
        self.words, self.entered, self.go = words, threading.Event(), threading.Event()
        event.listen(ledger.engine, "after_cursor_execute", self._hold)

    def _hold(self, _conn: object, _cursor: object, statement: str, *_: object) -> None:
        if self.words in statement and not self.entered.is_set():
            self.entered.set()
            self.go.wait(WAIT)


def test_a_takeover_waits_for_the_batch_that_read_the_fence(
    session: Holder, rival: SqlLedger, clock: FakeClock, admin: psycopg.Connection[Any]
) -> None:
    """A claim that meets an old owner between its fence check and its commit waits, and then reads what it wrote."""
    session.ledger._runner.leases.drop(session.lease)  # the old owner is slow: nothing renews
    held = Held(session.ledger, "FOR KEY SHARE")
    writing = session.ledger.write([session.reserve_entry(1)])
    assert held.entered.wait(WAIT)
    clock.advance(60)
    claiming = rival.claim(name=session.id, tenant=TENANT, owner=here())
    await_lock_wait(admin)
    assert not claiming.done()
    held.go.set()
    assert writing.result(WAIT)[0].took is Took.TOOK
    taken = claiming.result(WAIT)
    assert taken.status == "taken"
    assert taken.loaded is not None
    assert [step.label for step in taken.loaded.steps] == ["step_001"]


def test_an_old_owners_write_waits_for_the_takeover_and_is_refused(
    session: Holder, rival: SqlLedger, clock: FakeClock, admin: psycopg.Connection[Any]
) -> None:
    """A write that meets a take-over between its lock and its commit waits, and then finds its fence lost."""
    made = session.reserve(1)
    clock.advance(60)
    session.ledger._runner.leases.drop(session.lease)  # the old owner sleeps: nothing renews
    held = Held(rival, "FOR UPDATE")
    claiming = rival.claim(name=session.id, tenant=TENANT, owner=here())
    assert held.entered.wait(WAIT)
    writing = session.ledger.write([session.advance_entry(made, state=State.IN_FLIGHT)])
    await_lock_wait(admin)
    assert not writing.done()
    held.go.set()
    taken = claiming.result(WAIT)
    assert taken.loaded is not None
    assert taken.loaded.operations == (made,)
    (outcome,) = writing.result(WAIT)
    assert (outcome.took, outcome.operation) == (Took.FENCE_LOST, made)


def test_a_renewal_does_not_wait_for_a_batch(session: Holder, clock: FakeClock, postgres_url: str) -> None:
    """A heartbeat goes through while another transaction holds the session's row for key share."""
    with psycopg.connect(postgres_url) as batch:
        batch.execute("SELECT fence FROM agent_runtime_sessions WHERE id = %s FOR KEY SHARE", (session.id,))
        clock.advance(5)
        session.ledger.renew().result(WAIT)
    assert session.lease.good_until == clock.boottime() + 27.0


def test_batches_of_one_session_do_not_wait_for_each_other(session: Holder, rival: SqlLedger, clock: FakeClock) -> None:
    """A person's decision takes while the owner's batch holds its fence."""
    first, second = session.reserve(1), session.reserve(2)
    decider = Holder(rival, session.claim)
    held = Held(session.ledger, "FOR KEY SHARE")
    writing = session.ledger.write([session.advance_entry(first, state=State.IN_FLIGHT)])
    assert held.entered.wait(WAIT)
    assert decider.advance(second, fence=None, state=State.CANCELLED).state is State.CANCELLED
    held.go.set()
    assert writing.result(WAIT)[0].took is Took.TOOK


def test_a_write_whose_commit_hangs_is_waited_for(
    session: Holder, rival: SqlLedger, admin: psycopg.Connection[Any]
) -> None:
    """The same write over another connection waits for the one under way, and takes once."""
    entry = session.reserve_entry(1)
    held = Held(session.ledger, "INSERT INTO agent_runtime_steps")
    writing = session.ledger.write([entry])
    assert held.entered.wait(WAIT)
    again = rival.write([entry])
    await_lock_wait(admin)
    held.go.set()
    assert writing.result(WAIT)[0].took is Took.TOOK
    assert again.result(WAIT)[0].took is Took.TOOK
    assert len(session.loaded().operations) == 1


def test_keys_that_meet_are_told_apart(session: Holder, rival: SqlLedger, admin: psycopg.Connection[Any]) -> None:
    """Of two sessions that bring one business key at the same moment, the second gets the first's row."""
    other = start(rival)
    held = Held(session.ledger, "INSERT INTO agent_runtime_operations")
    writing = session.ledger.write([session.reserve_entry(1, key="order-7", business_key="order-7")])
    assert held.entered.wait(WAIT)
    meeting = rival.write([other.reserve_entry(1, key="order-7", business_key="order-7")])
    await_lock_wait(admin)
    held.go.set()
    holder = writing.result(WAIT)[0].operations[0]
    (outcome,) = meeting.result(WAIT)
    assert (outcome.took, outcome.operation) == (Took.KEY_IN_USE, holder)


def test_the_clock_is_the_servers(postgres_url: str, admin: psycopg.Connection[Any]) -> None:
    """Without a clock given, rows and `now` go by the server's clock."""
    ledger = open_ledger(postgres_url)
    with_machine_time = start(ledger)
    asked = admin.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert asked is not None
    assert abs(ledger.now() - asked[0]) < 1.0
    record = with_machine_time.claim.session
    assert record is not None
    assert abs(record.created_at - asked[0]) < 5.0
    ledger.close()


def test_commits_are_safe_whatever_the_servers_default(postgres_url: str, admin: psycopg.Connection[Any]) -> None:
    """The ledger's connections commit synchronously and end lost transactions by themselves."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    ledger = open_ledger(postgres_url)
    seen: list[Any] = []

    def ask(raw: Any, *_: object) -> None:
        seen.extend(
            raw.execute(f"SHOW {name}").fetchone()[0]
            for name in ("synchronous_commit", "idle_in_transaction_session_timeout", "transaction_isolation")
        )
        raw.rollback()

    event.listen(ledger.engine, "checkout", ask)
    ledger.operation("x").result(WAIT)
    assert seen == ["on", "15s", "read committed"]
    assert ledger.describe()["server"].startswith("18.")
    ledger.close()


def test_a_database_is_made_ready_once(postgres_empty: str) -> None:
    """Ledgers that open an empty database at once make its tables once, under an advisory lock."""
    with ThreadPoolExecutor(4) as pool:
        ledgers = list(pool.map(open_ledger, [postgres_empty] * 4))
    sessions = [start(ledger) for ledger in ledgers]
    assert len({session.id for session in sessions}) == 4
    for ledger in ledgers:
        ledger.close()


def test_a_load_sees_one_moment(session: Holder, rival: SqlLedger) -> None:
    """A load without a lease reads steps and operations of one moment, though writes go on."""
    session.reserve(1)
    held = Held(rival, "FROM agent_runtime_steps")
    loading = rival.load(name=session.id, tenant=TENANT)
    assert held.entered.wait(WAIT)
    session.reserve(2)
    held.go.set()
    loaded = loading.result(WAIT)
    assert loaded is not None
    assert (len(loaded.steps), len(loaded.operations)) == (1, 1)


def test_claims_of_a_dead_owner_go_on_where_it_stopped(session: Holder, rival: SqlLedger, clock: FakeClock) -> None:
    """After the lease has ended the successor writes on with a higher fence."""
    made = session.reserve(1)
    clock.advance(60)
    successor = Holder(rival, claim(rival, session.id))
    assert successor.fence == session.fence + 1
    assert successor.send(made).state is State.IN_FLIGHT
