"""Who may write to a session: one owner at a time, whatever dies, sleeps or comes late."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import uuid
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from agent_runtime._model import SessionState, State, Took
from agent_runtime.errors import EntryRefused
from agent_runtime.ledger import Owner, current_owner
from tests.ledger.build import TENANT, WAIT, Holder, claim, elsewhere, fresh, here, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.ledger import Claim, SqlLedger
    from tests.conftest import Backend
    from tests.ledger.build import FakeClock

ROOT = Path(__file__).parents[2]


def open_alias(ledger: SqlLedger, alias: str, *, digest: str | None = None, owner: Owner | None = None) -> Claim:
    return ledger.open(
        session_id=str(uuid.uuid4()),
        alias=alias,
        tenant=TENANT,
        actor="ana",
        input_digest=digest,
        owner=owner or here(),
    ).result(WAIT)


def test_a_new_session_comes_with_its_lease(session: Holder, clock: FakeClock) -> None:
    """`start` makes an open session that its owner may write to until a margin before the lease ends."""
    record = session.claim.session
    assert record is not None
    assert (record.state, record.alias, record.tenant) == (SessionState.OPEN, "orders-db", TENANT)
    assert record.lease_until == clock.wall() + 30.0
    assert session.lease.good_until == clock.boottime() + 30.0 - 3.0
    assert session.claim.created
    assert record.owner == session.lease.owner.token


def test_an_alias_is_started_once_for_a_tenant(session: Holder, ledger: SqlLedger) -> None:
    """`start` with an alias that stands says ``exists`` and names the session; another tenant is free."""
    again = {"session_id": str(uuid.uuid4()), "alias": "orders-db", "actor": None, "input_digest": None}
    met = ledger.start(**again, tenant=TENANT, owner=here()).result(WAIT)
    assert (met.status, met.lease) == ("exists", None)
    assert met.session is not None
    assert met.session.id == session.id
    assert ledger.start(**again, tenant="other", owner=here()).result(WAIT).status == "taken"


def test_an_alias_that_cannot_be_stored_is_refused(ledger: SqlLedger) -> None:
    """A new session whose alias the database cannot hold is EntryRefused, and the ledger goes on."""
    with pytest.raises(EntryRefused, match="cannot hold this"):
        start(ledger, "half \ud800 pair")
    assert start(ledger, "fine").fence == 1


def test_an_id_that_stands_is_not_started_again(session: Holder, ledger: SqlLedger) -> None:
    """`start` with an id that stands gives nobody else's session away."""
    met = ledger.start(
        session_id=session.id, alias=None, tenant=TENANT, actor=None, input_digest=None, owner=here()
    ).result(WAIT)
    assert (met.status, met.lease) == ("exists", None)


def test_open_makes_or_claims(ledger: SqlLedger) -> None:
    """`open` makes the session of a free alias, and claims it once its lease is given back."""
    first = open_alias(ledger, "orders-db", digest="d")
    assert (first.status, first.created) == ("taken", True)
    assert first.lease is not None
    made = Holder(ledger, first).reserve(1)
    assert open_alias(ledger, "orders-db", digest="d").status == "busy"
    ledger.release(first.lease).result(WAIT)
    second = open_alias(ledger, "orders-db", digest="d")
    assert (second.status, second.created) == ("taken", False)
    assert second.loaded is not None
    assert second.loaded.operations == (made,)
    assert second.loaded.session.fence == first.lease.fence + 1


def test_another_input_is_told(ledger: SqlLedger) -> None:
    """`open` with another input digest takes nothing; without one it asks for none."""
    first = open_alias(ledger, "orders-db", digest="d")
    assert first.lease is not None
    ledger.release(first.lease).result(WAIT)
    assert open_alias(ledger, "orders-db", digest="e").status == "input_changed"
    assert open_alias(ledger, "orders-db").status == "taken"


def test_a_session_is_claimed_by_id_or_alias_of_its_tenant(session: Holder, ledger: SqlLedger) -> None:
    """Id and alias name the session to its own tenant; to another, and for any other name, it is missing."""
    ledger.release(session.lease).result(WAIT)
    by_id = claim(ledger, session.id)
    assert by_id.status == "taken"
    assert claim(ledger, "orders-db").status == "busy"
    for name in ("nobody", "a\0b", "\ud800"):
        assert claim(ledger, name).status == "missing"
    assert ledger.claim(name=session.id, tenant="other", owner=here()).result(WAIT).status == "missing"
    assert ledger.load(name=session.id, tenant="other").result(WAIT) is None


def test_a_held_session_is_busy_until_its_lease_ends(session: Holder, rival: SqlLedger, clock: FakeClock) -> None:
    """A claim is told whose the session is and how long; it is free at the very end of the lease."""
    busy = claim(rival, session.id)
    assert (busy.status, busy.lease, busy.now) == ("busy", None, clock.wall())
    assert busy.lease_until == clock.wall() + 30.0
    assert busy.holder == session.lease.owner
    clock.advance(29.9)
    assert claim(rival, session.id, owner=elsewhere()).status == "busy"
    clock.advance(0.1)
    taken = claim(rival, session.id)
    assert taken.status == "taken"
    assert taken.lease is not None
    assert taken.lease.fence == session.fence + 1


def test_a_lease_is_renewed_while_its_object_lives(
    backend: Backend, opener: Callable[..., SqlLedger], clock: FakeClock
) -> None:
    """The ledger thread renews three times a lease, so that long work keeps its session (A17)."""
    mine, theirs = opener(backend.url), opener(backend.url)
    holder = start(mine)
    for _ in range(12):
        clock.advance(10.0)
        mine.operation("x").result(WAIT)  # any job lets the thread look at the clock
        assert claim(theirs, holder.id).status == "busy"
    assert holder.lease.good_until == clock.boottime() + 27.0
    assert not holder.lease.lost


def test_a_renewal_that_fails_is_tried_again(
    session: Holder, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Trouble in a renewal stops no other work, and the next try follows soon."""
    failures = [ZeroDivisionError()]

    def fail(_: object) -> None:
        if failures:
            raise failures.pop()

    deadline = session.lease.good_until
    event.listen(session.ledger.engine, "commit", fail)
    clock.advance(10.0)
    assert session.reserve(1).state is State.READY
    assert session.lease.good_until == deadline
    assert "leases could not be renewed" in caplog.text
    clock.advance(1.0)
    session.loaded()
    assert session.lease.good_until == clock.boottime() + 27.0


def test_a_lease_of_an_object_that_is_gone_is_given_back(ledger: SqlLedger) -> None:
    """A lease that is collected without release is released by the thread."""
    holder = start(ledger)
    ident = holder.id
    gone = weakref.ref(holder.lease)
    del holder
    gc.collect()
    assert gone() is None
    assert claim(ledger, ident).status == "taken"


def test_a_claim_nobody_waits_for_holds_nothing(ledger: SqlLedger) -> None:
    """A lease whose caller has gone away is not kept by the thread that made it."""
    ident = str(uuid.uuid4())
    ledger.start(session_id=ident, alias=None, tenant=TENANT, actor=None, input_digest=None, owner=here())
    ledger.operation("x").result(WAIT)
    gc.collect()
    assert claim(ledger, ident).status == "taken"


def test_a_released_session_is_free(session: Holder, ledger: SqlLedger) -> None:
    """`release` gives the lease back, once; a second release does nothing."""
    ledger.release(session.lease).result(WAIT)
    assert session.lease.lost
    successor = claim(ledger, session.id)
    assert successor.status == "taken"
    ledger.release(session.lease).result(WAIT)
    assert claim(ledger, session.id).status == "busy"


def test_closing_releases_all_leases(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """`close` gives back what is held and may be called again."""
    mine, theirs = opener(backend.url), opener(backend.url)
    holder = start(mine)
    mine.close()
    mine.close()
    assert holder.lease.lost
    assert claim(theirs, holder.id).status == "taken"


def test_a_late_release_leaves_the_successors_lease(
    backend: Backend, opener: Callable[..., SqlLedger], clock: FakeClock
) -> None:
    """An owner that slept past its lease releases nothing of its successor, and overwrites nothing (A18)."""
    slow, quick = opener(backend.url), opener(backend.url)
    first = start(slow)
    sent = first.send(first.reserve(1))
    clock.advance(60.0)
    second = Holder(quick, claim(quick, first.id))
    done = second.advance(sent, state=State.SUCCEEDED, result=b"1")
    late = first.one(first.advance_entry(sent, state=State.SUCCEEDED, result=b"2"))
    assert (late.took, late.operation) == (Took.FENCE_LOST, done)
    assert first.lease.lost
    slow.release(first.lease).result(WAIT)
    assert claim(slow, first.id).status == "busy"
    assert second.reserve(2).state is State.READY


def test_a_lost_lease_is_told_at_the_next_renewal(
    backend: Backend, opener: Callable[..., SqlLedger], clock: FakeClock
) -> None:
    """A renewal that finds another owner marks the lease as lost and leaves its deadline in the past."""
    slow, quick = opener(backend.url), opener(backend.url)
    first = start(slow)
    clock.advance(60.0)
    second = claim(quick, first.id)
    slow.renew().result(WAIT)
    assert first.lease.lost
    assert first.lease.good_until < clock.boottime()
    assert second.lease is not None
    assert not second.lease.lost


def test_a_session_object_of_this_process_can_be_replaced(ledger: SqlLedger) -> None:
    """``replaces`` takes over at once from the Session object it names, and from no other or foreign one."""
    first = start(ledger)
    token = first.lease.owner.token
    assert claim(ledger, first.id, replaces=fresh()).status == "busy"
    assert claim(ledger, first.id, replaces=token, owner=elsewhere()).status == "busy"
    second = claim(ledger, first.id, replaces=token)
    assert second.status == "taken"
    assert first.lease.lost
    assert first.one(first.value_entry("x")).took is Took.FENCE_LOST


def test_a_dead_process_of_this_boot_loses_its_session_at_once(
    backend: Backend, opener: Callable[..., SqlLedger]
) -> None:
    """A session whose owner was killed is taken over without waiting for its lease; a living one is not."""
    code = (
        "import sys\n"
        "from agent_runtime.ledger import open_ledger\n"
        "from tests.ledger.build import start\n"
        "holder = start(open_ledger(sys.argv[1]), 'orders-db')\n"
        "holder.send(holder.reserve(1))\n"
        "print(holder.id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", code, backend.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        ident = worker.stdout.readline().strip()
        ledger = opener(backend.url, clock=None)
        assert claim(ledger, ident).status == "busy"
    finally:
        worker.kill()
        worker.wait(WAIT)
        worker.stdin.close()
        worker.stdout.close()
    taken = claim(ledger, ident)
    assert taken.status == "taken"
    assert taken.loaded is not None
    assert taken.loaded.operations[0].state is State.IN_FLIGHT


@pytest.mark.parametrize("change", [{"boot_id": "x"}, {"pid_namespace": "x"}, {"host": "x"}, {"boot_id": ""}])
def test_nobody_is_declared_dead_from_afar(ledger: SqlLedger, change: dict[str, str]) -> None:
    """A process of another boot, namespace or machine, or of a system that tells none, keeps its lease."""
    gone = replace(here(), pid=2**22 + 1, **change)
    holder = start(ledger, owner=gone)
    assert claim(ledger, holder.id).status == "busy"


def test_a_reused_pid_does_not_keep_a_session(ledger: SqlLedger) -> None:
    """A process id that belongs to a younger process by now counts as dead."""
    holder = start(ledger, owner=replace(here(), process_started="1"))
    assert claim(ledger, holder.id).status == "taken"


def test_many_claims_at_once_have_one_winner(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """Of claims that come at the same moment one is taken, the others are busy (A16)."""
    first = opener(backend.url)
    holder = start(first)
    first.release(holder.lease).result(WAIT)
    ledgers = [opener(backend.url) for _ in range(4)]
    barrier = threading.Barrier(len(ledgers))
    claims: list[Claim] = []

    def rival(ledger: SqlLedger) -> None:
        barrier.wait(WAIT)
        claims.append(claim(ledger, holder.id))

    threads = [threading.Thread(target=rival, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(one.status for one in claims) == ["busy", "busy", "busy", "taken"]


def test_many_opens_of_a_new_alias_make_one_session(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """Of openers of a free alias at the same moment one makes it, the others find it busy."""
    ledgers = [opener(backend.url) for _ in range(4)]
    barrier = threading.Barrier(len(ledgers))
    claims: list[Claim] = []

    def rival(ledger: SqlLedger) -> None:
        barrier.wait(WAIT)
        claims.append(open_alias(ledger, "orders-db"))

    threads = [threading.Thread(target=rival, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert sorted(one.status for one in claims) == ["busy", "busy", "busy", "taken"]
    assert len(ledgers[0].sessions(tenant=TENANT, state=None).result(WAIT)) == 1


def test_an_ended_session_is_read_without_a_lease(session: Holder, ledger: SqlLedger) -> None:
    """Claiming a finished session gives everything recorded and no right to write."""
    done = session.advance(session.reserve(1), state=State.SUCCEEDED, result=b"1")
    session.one(session.end_entry())
    taken = claim(ledger, "orders-db")
    assert (taken.status, taken.lease) == ("taken", None)
    assert taken.loaded is not None
    assert taken.loaded.operations == (done,)


def test_sessions_are_listed_newest_first(ledger: SqlLedger, clock: FakeClock) -> None:
    """`sessions` lists a tenant's sessions, all or those in one state."""
    old = start(ledger, "old")
    clock.advance(1)
    new = start(ledger, "new")
    old.one(old.end_entry())

    def listed(state: SessionState | None) -> list[str | None]:
        return [one.alias for one in ledger.sessions(tenant=TENANT, state=state).result(WAIT)]

    assert listed(None) == ["new", "old"]
    assert listed(SessionState.OPEN) == ["new"]
    assert listed(SessionState.FINISHED) == ["old"]
    assert ledger.sessions(tenant="other", state=None).result(WAIT) == []
    assert not new.lease.lost


def test_attention_lists_what_is_unknown_or_contradicted(session: Holder, ledger: SqlLedger, clock: FakeClock) -> None:
    """`attention` lists unknown and contradicted operations of a tenant once each, oldest first."""
    session.reserve(1)
    clock.advance(1)
    settled = session.advance(session.reserve(2), state=State.SUCCEEDED)
    clock.advance(1)
    unknown = session.advance(session.reserve(3), state=State.UNKNOWN, contradicted=True)
    contradicted = session.advance(settled, contradicted=True)
    assert ledger.attention(tenant=TENANT).result(WAIT) == [contradicted, unknown]
    assert ledger.attention(tenant="other").result(WAIT) == []


def test_an_owner_says_who_it_is() -> None:
    """`current_owner` reads the same facts for each Session object of a process, under the token given."""
    one, two = current_owner("a"), current_owner("b")
    assert (one.token, two.token) == ("a", "b")
    assert replace(one, token="b") == two
