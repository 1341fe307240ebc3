"""Entries side by side: none is hurt by another, and none takes twice."""

from __future__ import annotations

import random
import sqlite3
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from agent_runtime._model import Reserve, State, Took
from tests.ledger.build import WAIT, Holder, claim, fresh, new_operation, new_step, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.ledger import SqlLedger
    from tests.conftest import Backend
    from tests.ledger.build import FakeClock


class Answers:
    """Loses the answers of chosen commits: the seam ``after_commit``."""

    def __init__(self) -> None:
        self.lose = 0
        self.meanwhile: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self.lose:
            self.lose -= 1
            if self.meanwhile is not None:
                self.meanwhile()
            raise ConnectionResetError


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def lossy(backend: Backend, opener: Callable[..., SqlLedger], answers: Answers) -> Holder:
    return start(opener(backend.url, after_commit=answers))


BIG = 2**70
POISON: dict[str, dict[str, Any]] = {
    "surrogate": {"tool": "half \ud800 pair"},
    "number": {"tool": "fine", "index": BIG},
    "none": {"tool": None},
    "object": {"tool": object()},
}


@pytest.mark.parametrize("poison", POISON)
def test_an_entry_that_cannot_be_stored_fails_alone(session: Holder, poison: str) -> None:
    """What the database cannot hold is refused with a reason, and the entries beside it take."""
    changes = dict(POISON[poison])
    index = changes.pop("index", 2)
    operation = new_operation(session.id, 2, **changes)
    bad = replace(
        session.reserve_entry(2), operations=(operation,), steps=(replace(new_step(operation, 2), index=index),)
    )
    before, refused, after = session.write(session.reserve_entry(1), bad, session.reserve_entry(3))
    assert (before.took, refused.took, after.took) == (Took.TOOK, Took.REFUSED, Took.TOOK)
    assert refused.error
    assert [step.label for step in session.loaded().steps] == ["step_001", "step_003"]


def test_text_with_nul_fails_alone_or_is_kept(session: Holder, backend: Backend) -> None:
    """A NUL in a text column is kept by SQLite and refused by Postgres; in a payload both keep it."""
    first, second = session.write(session.reserve_entry(1, tool="a\0b"), session.reserve_entry(2, args=b'"\0"'))
    assert first.took is (Took.TOOK if backend.name == "sqlite" else Took.REFUSED)
    assert second.took is Took.TOOK


def test_a_payload_past_the_limit_fails_alone(session: Holder, backend: Backend) -> None:
    """A payload that SQLite, or a business key that a Postgres index cannot hold hurts no entry beside it."""
    if backend.name == "sqlite":

        def limit(raw: Any, *_: object) -> None:
            raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)

        event.listen(session.ledger.engine, "checkout", limit)
        bad = session.reserve_entry(2, args=bytes(60_000))
    else:
        key = "".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
        bad = session.reserve_entry(2, key=key, business_key=key)
    outcomes = session.write(session.reserve_entry(1), bad, session.reserve_entry(3))
    assert [outcome.took for outcome in outcomes] == ["took", "refused", "took"]
    assert len(outcomes[1].error) < 100


@pytest.mark.parametrize("name", ["a\0b", "half \ud800 pair"])
def test_an_id_that_cannot_be_stored_fails_alone(session: Holder, name: str) -> None:
    """An id serves statements for the whole batch, so an unfit one is refused before any of them."""
    good, session_id, write_id = (session.value_entry(which) for which in "abc")
    bad = (replace(session_id, session_id=name), replace(write_id, write_id=name))
    assert [outcome.took for outcome in session.write(bad[0], good, bad[1])] == ["refused", "took", "refused"]


def test_payloads_hold_any_byte(session: Holder) -> None:
    """Payloads are bytes: NUL, broken UTF-8 and text that is no JSON come back as they were."""
    every = bytes(range(256))
    made = session.reserve(1, args=every)
    done = session.advance(made, state=State.SUCCEEDED, result=every, error=every, handle=every)
    assert (done.args, done.result, done.error, done.handle) == (every, every, every, every)
    assert session.loaded().operations == (done,)


def test_refused_entries_can_be_put_right_under_their_id(session: Holder) -> None:
    """A write id that did not take is free for another try."""
    bad = session.reserve_entry(1, tool="\ud800")
    assert session.one(bad).took is Took.REFUSED
    assert session.one(replace(session.reserve_entry(1), write_id=bad.write_id)).took is Took.TOOK


def test_a_lost_commit_answer_reports_what_took(lossy: Holder, answers: Answers) -> None:
    """A commit whose answer was lost is read back: its writes took, once."""
    made = lossy.reserve(1)
    answers.lose = 1
    sent = lossy.send(made)
    assert (sent.state, sent.version) == (State.IN_FLIGHT, 2)
    assert len(lossy.ledger.attempts(made.id).result(WAIT)) == 1
    answers.lose = 2
    outcome = lossy.one(lossy.file_entry(sent, body=b"late"))
    assert outcome.took is Took.TOOK
    assert len(lossy.ledger.evidence(made.id).result(WAIT)) == 1


def test_a_lost_commit_answer_tells_apart_what_did_not_take(lossy: Holder, answers: Answers) -> None:
    """In a batch whose commit's answer was lost, the conflicts are conflicts still."""
    made = lossy.reserve(1)
    answers.lose = 1
    good, bad = lossy.write(lossy.reserve_entry(2), lossy.advance_entry(made, expect_version=9, state=State.FAILED))
    assert (good.took, bad.took) == (Took.TOOK, Took.STATE_CONFLICT)
    assert good.operations[0].label == "step_002"


def test_a_commit_that_never_came_to_be_is_done_again(session: Holder) -> None:
    """A transaction that breaks at its commit is done again as a whole, and takes once."""
    made = session.reserve(1)
    failures = [ConnectionResetError(), ConnectionResetError()]

    def refuse(_: object) -> None:
        if failures:
            raise failures.pop()

    event.listen(session.ledger.engine, "commit", refuse)
    assert session.send(made).version == 2
    assert failures == []
    assert len(session.ledger.attempts(made.id).result(WAIT)) == 1


def test_a_lost_answer_is_found_after_a_later_write(
    backend: Backend, opener: Callable[..., SqlLedger], clock: FakeClock, answers: Answers
) -> None:
    """A write that took is reported so though a successor has taken the session and changed the row since."""
    other = opener(backend.url)
    lossy = start(opener(backend.url, after_commit=answers))
    made = lossy.reserve(1)

    def successor() -> None:
        clock.advance(60)
        taken = Holder(other, claim(other, lossy.id))
        sent = other.operation(made.id).result(WAIT)
        assert sent is not None
        taken.advance(sent, state=State.UNKNOWN)

    answers.lose, answers.meanwhile = 1, successor
    outcome = lossy.one(lossy.advance_entry(made, state=State.IN_FLIGHT))
    assert outcome.took is Took.TOOK
    assert outcome.operation is not None
    assert outcome.operation.state is State.UNKNOWN


def test_a_write_given_again_takes_once(session: Holder) -> None:
    """The same write id again is answered TOOK and changes nothing, in another batch or in the same."""
    entry = session.reserve_entry(1)
    first, second = session.write(entry, entry)
    made = first.operations[0]
    assert (first.took, second.took) == (Took.TOOK, Took.TOOK)
    advance = session.advance_entry(made, state=State.IN_FLIGHT)
    sent = session.one(advance).operation
    assert session.one(advance).operation == sent
    assert session.one(entry).operations == (sent,)
    assert len(session.loaded().steps) == 1


def test_a_lost_answer_to_a_claim_gives_the_lease_all_the_same(
    backend: Backend, opener: Callable[..., SqlLedger], answers: Answers
) -> None:
    """Starting, opening and claiming are done again after a lost answer, and meet no rival in themselves."""
    ledger = opener(backend.url, after_commit=answers)
    answers.lose = 1
    holder = start(ledger, "orders-db")
    assert holder.reserve(1).state is State.READY
    answers.lose = 1
    ledger.release(holder.lease).result(WAIT)
    answers.lose = 1
    again = claim(ledger, "orders-db")
    assert again.status == "taken"
    assert Holder(ledger, again).reserve(2).state is State.READY


def test_what_queued_while_a_commit_ran_shares_the_next(session: Holder) -> None:
    """Writes handed in while a transaction is under way go into one transaction together, each with its own answer."""
    entered, go, commits = threading.Event(), threading.Event(), []

    def hold(_: object) -> None:
        commits.append(1)
        entered.set()
        go.wait(WAIT)

    event.listen(session.ledger.engine, "commit", hold)
    first = session.ledger.write([session.reserve_entry(1)])
    assert entered.wait(WAIT)
    queued = [session.ledger.write([session.reserve_entry(number)]) for number in range(2, 30)]
    go.set()
    answers = [future.result(WAIT) for future in [first, *queued]]
    assert [outcome.operations[0].label for (outcome,) in answers] == [f"step_{n:03d}" for n in range(1, 30)]
    assert len(commits) == 2


def test_a_batch_ends_at_four_megabytes(session: Holder) -> None:
    """Payloads are spread over several transactions, and one that is larger goes alone."""
    entered, go, commits = threading.Event(), threading.Event(), []

    def hold(_: object) -> None:
        commits.append(1)
        entered.set()
        go.wait(WAIT)

    event.listen(session.ledger.engine, "commit", hold)
    first = session.ledger.write([session.value_entry("first")])
    assert entered.wait(WAIT)
    sizes = {"a": 3, "b": 3, "c": 5}
    queued = [session.ledger.write([session.value_entry(n, bytes(mb << 20))]) for n, mb in sizes.items()]
    go.set()
    assert {future.result(WAIT)[0].took for future in [first, *queued]} == {Took.TOOK}
    assert len(commits) == 4


def test_one_batch_serves_many_sessions(ledger: SqlLedger) -> None:
    """Entries of several sessions in one call are fenced each by its own session."""
    one, two = start(ledger), start(ledger)
    stale = replace(two.value_entry("x"), fence=two.fence - 1)
    entries = [one.reserve_entry(1), stale, two.reserve_entry(1)]
    assert [outcome.took for outcome in one.write(*entries)] == ["took", "fence_lost", "took"]


def test_the_order_of_entries_is_kept(session: Holder) -> None:
    """An entry sees what the entry before it wrote."""
    entry = session.reserve_entry(1)
    (operation,) = entry.operations
    advance = replace(
        session.advance_entry(session.reserve(2), state=State.IN_FLIGHT), operation_id=operation.id, expect_version=1
    )
    assert [outcome.took for outcome in session.write(entry, advance)] == ["took", "took"]


def test_a_reserve_of_nothing_takes(session: Holder) -> None:
    """An entry without rows takes, and its id stands."""
    entry = Reserve(write_id=fresh(), session_id=session.id, fence=session.fence, operations=(), steps=())
    assert session.one(entry).took is Took.TOOK
