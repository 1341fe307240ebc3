"""What becomes of one write: every answer that it can get, on both databases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent_runtime._model import Effect, NewAttempt, NewEvidence, Reason, SessionState, State, Took
from tests.ledger.build import TENANT, WAIT, Holder, claim, fresh, new_operation, new_step, start

if TYPE_CHECKING:
    from agent_runtime.ledger import SqlLedger
    from tests.ledger.build import FakeClock


def test_a_reserved_operation_is_ready_and_reads_back_as_it_was_given(session: Holder) -> None:
    """`Reserve` makes operations in state ready, and what it returns is what a load reads."""
    made = session.reserve(1, address="msg1.0", expires_at=1_800_000_900.5)
    loaded = session.loaded()
    assert made.state is State.READY
    assert made.version == 1
    assert made.request is not None
    assert made.request.headers == (("Accept", "*/*"),)
    assert loaded.operations == (made,)
    assert loaded.steps[0].address == "msg1.0"
    assert loaded.steps[0].operation_id == made.id


def test_a_step_can_point_to_an_operation_of_an_earlier_one(session: Holder) -> None:
    """A position may point to an operation that stands already."""
    made = session.reserve(1)
    step = new_step(None, 2, kind="call", operation_id=made.id)
    entry = replace(session.reserve_entry(2), operations=(), steps=(step,))
    assert session.one(entry).took is Took.TOOK
    assert [step.operation_id for step in session.loaded().steps] == [made.id, made.id]


@pytest.mark.parametrize(
    "changes",
    [
        {"label": "step_009", "index": 9, "address": None},
        {"label": "step_009", "seq": 9, "address": None},
        {"index": 9, "seq": 9, "address": None},
        {"label": "step_009", "index": 9, "seq": 9, "address": "msg1.0"},
    ],
    ids=["seq", "index", "label", "address"],
)
def test_a_position_is_taken_once(session: Holder, changes: dict[str, object]) -> None:
    """Label, branch and index, seq and address stand once in a session; the second `Reserve` takes nothing."""
    session.reserve(1, address="msg1.0")
    operation = new_operation(session.id, 9)
    entry = replace(
        session.reserve_entry(9), operations=(operation,), steps=(replace(new_step(operation, 1), **changes),)
    )
    assert session.one(entry).took is Took.POSITION_TAKEN
    assert len(session.loaded().operations) == 1


def test_a_reserve_takes_whole_or_not_at_all(session: Holder) -> None:
    """One position that is taken lets none of the other rows of its entry stand."""
    session.reserve(1)
    first, second = new_operation(session.id, 5), new_operation(session.id, 6)
    steps = (new_step(first, 5), new_step(second, 1))
    entry = replace(session.reserve_entry(5), operations=(first, second), steps=steps)
    assert session.one(entry).took is Took.POSITION_TAKEN
    assert len(session.loaded().steps) == 1
    assert session.ledger.operation(first.id).result(WAIT) is None


def test_a_refused_position_can_be_taken_over(session: Holder) -> None:
    """``takes_over`` replaces a refused step, and its address with it."""
    refused = new_step(None, 1, address="msg1.0")
    session.one(replace(session.reserve_entry(1), operations=(), steps=(refused,)))
    operation = new_operation(session.id, 1)
    step = new_step(operation, 1, seq=2, address="msg1.1", takes_over=True)
    outcome = session.one(replace(session.reserve_entry(1), operations=(operation,), steps=(step,)))
    assert outcome.took is Took.TOOK
    (stands,) = session.loaded().steps
    assert (stands.kind, stands.seq, stands.address, stands.operation_id) == ("call", 2, "msg1.1", operation.id)


def test_a_call_is_not_taken_over(session: Holder) -> None:
    """``takes_over`` replaces nothing but a refused step, and leaves nothing behind."""
    session.reserve(1)
    operation = new_operation(session.id, 2)
    step = new_step(operation, 1, takes_over=True)
    outcome = session.one(replace(session.reserve_entry(1), operations=(operation,), steps=(step,)))
    assert outcome.took is Took.POSITION_TAKEN
    assert len(session.loaded().operations) == 1


def test_a_derived_key_stands_once(session: Holder) -> None:
    """A second operation under a key gets the row that holds it."""
    holder = session.reserve(1)
    outcome = session.one(session.reserve_entry(2, key=holder.key))
    assert outcome.took is Took.KEY_IN_USE
    assert outcome.operation == holder


def test_a_business_key_stands_once_for_a_tenant_and_origin(ledger: SqlLedger) -> None:
    """Another session that brings the same business key gets the row that holds it; another origin is free."""
    one, two = start(ledger), start(ledger)
    holder = one.reserve(1, key="order-7", business_key="order-7")
    outcome = two.one(two.reserve_entry(1, key="order-7", business_key="order-7"))
    assert outcome.took is Took.KEY_IN_USE
    assert outcome.operation == holder
    assert two.reserve(1, key="order-7", business_key="order-7", origin="https://else.example").state is State.READY
    origin = "https://tools.example.com"
    assert ledger.by_business_key(tenant=TENANT, origin=origin, key="order-7").result(WAIT) == holder
    assert ledger.by_business_key(tenant="other", origin=origin, key="order-7").result(WAIT) is None


def test_an_advance_changes_what_it_names_and_returns_the_row(session: Holder, clock: FakeClock) -> None:
    """`Advance` sets the given columns, keeps the rest, and counts the version."""
    made = session.reserve(1)
    clock.advance(5)
    sent = session.send(made, deadline=40.0)
    assert (sent.state, sent.version, sent.attempts) == (State.IN_FLIGHT, 2, 1)
    assert sent.first_sent_at == clock.wall()
    assert sent.last_deadline == clock.wall() + 40.0
    assert sent.updated_at == clock.wall()
    assert sent.created_at == made.created_at
    done = session.advance(sent, state=State.SUCCEEDED, result=b'{"id":1}', result_status=201, reason=None)
    assert (done.result, done.result_status, done.state) == (b'{"id":1}', 201, State.SUCCEEDED)
    assert session.loaded().operations == (done,)


def test_an_advance_with_an_old_version_takes_nothing(session: Holder) -> None:
    """A row that is not as it was seen stays, and comes back with the answer."""
    made = session.reserve(1)
    sent = session.send(made)
    entry = session.advance_entry(made, state=State.CANCELLED, evidence=(NewEvidence(kind="decision"),))
    outcome = session.one(entry)
    assert outcome.took is Took.STATE_CONFLICT
    assert outcome.operation == sent
    assert session.ledger.evidence(made.id).result(WAIT) == []


@pytest.mark.parametrize("end", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_a_settled_operation_never_changes(session: Holder, end: State) -> None:
    """Nothing but ``contradicted`` of a settled operation can be changed, whatever version is named."""
    settled = session.advance(session.reserve(1), state=end, effect=Effect.NONE)
    outcome = session.one(session.advance_entry(settled, state=State.READY))
    assert outcome.took is Took.STATE_CONFLICT
    assert outcome.operation == settled
    marked = session.advance(settled, contradicted=True, evidence=(NewEvidence(kind="webhook"),))
    assert marked.contradicted
    assert marked.state is end


def test_marks_keep_the_first_time(session: Holder, clock: FakeClock) -> None:
    """``mark_sent`` keeps the first attempt's time, ``mark_maybe`` the start of the first that may have arrived."""
    sent = session.send(session.reserve(1))
    first = clock.wall()
    clock.advance(10)
    ready = session.advance(sent, state=State.READY, reason=Reason.RETRY_AFTER)
    again = session.send(ready)
    second = clock.wall()
    clock.advance(10)
    unknown = session.advance(again, state=State.UNKNOWN, mark_maybe=True)
    clock.advance(10)
    third = session.send(unknown)
    marked = session.advance(third, state=State.UNKNOWN, mark_maybe=True)
    assert (unknown.first_sent_at, unknown.first_maybe_at, unknown.maybe_applied) == (first, second, True)
    assert (marked.first_sent_at, marked.first_maybe_at) == (first, second)


def test_a_deadline_never_moves_back(session: Holder) -> None:
    """A later attempt with a shorter deadline does not hide that an earlier one may still be arriving."""
    sent = session.send(session.reserve(1), deadline=100.0)
    again = session.send(session.advance(sent, state=State.UNKNOWN), deadline=5.0)
    assert again.last_deadline == sent.last_deadline


def test_absences_are_counted_and_forgotten(session: Holder, clock: FakeClock) -> None:
    """``mark_absent`` counts and keeps the first time; ``clear_absent`` forgets both."""
    operation = session.advance(session.send(session.reserve(1)), state=State.UNKNOWN, mark_absent=True)
    first = clock.wall()
    clock.advance(60)
    operation = session.advance(operation, mark_absent=True)
    assert (operation.absences, operation.absent_since) == (2, first)
    operation = session.advance(operation, clear_absent=True)
    assert (operation.absences, operation.absent_since) == (0, None)


def test_attempts_and_evidence_are_kept_in_order(session: Holder) -> None:
    """Attempts are listed by number and evidence in the order of filing, with every byte."""
    sent = session.send(session.reserve(1))
    seen = NewEvidence(
        kind="answer",
        attempt=1,
        status=503,
        headers=(("Retry-After", "3"),),
        body=b"\x00\xff",
        detail="a\0\ud800",
        by="o",
    )
    unknown = session.advance(sent, state=State.UNKNOWN, evidence=(NewEvidence(kind="no_answer"), seen))
    session.advance(unknown, state=State.IN_FLIGHT, attempt=NewAttempt(number=2, purpose="resend", deadline=1.0))
    attempts = session.ledger.attempts(sent.id).result(WAIT)
    assert [(one.number, one.purpose, one.fence) for one in attempts] == [
        (1, "send", session.fence),
        (2, "resend", session.fence),
    ]
    first, second = session.ledger.evidence(sent.id).result(WAIT)
    assert first.kind == "no_answer"
    assert (second.status, second.headers, second.body) == (503, (("Retry-After", "3"),), b"\x00\xff")
    assert (second.detail, second.by) == ("a\0\ud800", "o")


def test_a_person_decides_without_a_lease(session: Holder) -> None:
    """`Advance` without a fence takes whoever holds the session."""
    unknown = session.advance(session.send(session.reserve(1)), state=State.UNKNOWN)
    decided = session.advance(unknown, fence=None, state=State.SUCCEEDED, reason=Reason.DECIDED)
    assert decided.state is State.SUCCEEDED


def test_a_delivered_outcome_is_noted_on_its_step(session: Holder) -> None:
    """`Deliver` notes what the code was given, on a step that stands."""
    session.reserve(1)
    assert session.one(session.deliver_entry("step_001", b'{"status":"unknown"}')).took is Took.TOOK
    assert session.loaded().steps[0].delivered == b'{"status":"unknown"}'
    assert session.one(session.deliver_entry("step_009")).took is Took.STATE_CONFLICT


def test_the_first_value_kept_stays(session: Holder) -> None:
    """`PutValue` takes again with the same value and not with another one."""
    assert session.one(session.value_entry("now", b"1")).took is Took.TOOK
    assert session.one(session.value_entry("now", b"1")).took is Took.TOOK
    assert session.one(session.value_entry("now", b"2")).took is Took.STATE_CONFLICT
    assert [value.value for value in session.loaded().values] == [b"1"]


def test_late_evidence_needs_no_lease(session: Holder, rival: SqlLedger, clock: FakeClock) -> None:
    """A worker that lost its lease files what it saw, and a settled operation that it contradicts is marked."""
    sent = session.send(session.reserve(1))
    clock.advance(60)
    successor = Holder(rival, claim(rival, session.id))
    failed = successor.advance(sent, state=State.FAILED, effect=Effect.NONE)
    outcome = session.one(session.file_entry(sent, contradicts=True, status=200, body=b"ok"))
    assert outcome.took is Took.TOOK
    assert outcome.operation is not None
    assert outcome.operation.contradicted
    assert outcome.operation.state is State.FAILED
    assert outcome.operation.version > failed.version
    assert [seen.body for seen in rival.evidence(sent.id).result(WAIT)] == [b"ok"]


def test_evidence_alone_changes_no_open_operation(session: Holder) -> None:
    """`File` leaves the row of an operation that is not settled as it is."""
    sent = session.send(session.reserve(1))
    outcome = session.one(session.file_entry(sent, contradicts=True))
    assert outcome.operation == sent


def test_evidence_about_nothing_is_not_kept(session: Holder) -> None:
    """`File` about an operation that does not stand takes nothing."""
    made = session.reserve(1)
    assert session.one(session.file_entry(replace(made, id=fresh()))).took is Took.STATE_CONFLICT


@pytest.mark.parametrize("state", [State.READY, State.IN_FLIGHT, State.UNKNOWN, State.ACCEPTED])
def test_a_session_does_not_end_with_something_open(session: Holder, state: State) -> None:
    """`EndSession` is refused while an operation is not settled, one that was never sent included."""
    operation = session.reserve(1)
    if state is not State.READY:
        session.advance(operation, state=state)
    assert session.one(session.end_entry()).took is Took.STATE_CONFLICT
    assert session.loaded().session.state is SessionState.OPEN


def test_an_ended_session_takes_no_more(session: Holder) -> None:
    """`EndSession` gives the lease up; nothing is reserved or recorded after it."""
    session.advance(session.reserve(1), state=State.SUCCEEDED)
    assert session.one(session.end_entry()).took is Took.TOOK
    record = session.loaded().session
    assert (record.state, record.owner, record.lease_until) == (SessionState.FINISHED, None, None)
    assert session.lease.lost
    assert session.one(session.reserve_entry(2)).took is Took.STATE_CONFLICT
    assert session.one(session.value_entry("now")).took is Took.STATE_CONFLICT


def test_a_stale_fence_takes_nothing(session: Holder, rival: SqlLedger, clock: FakeClock) -> None:
    """After a take-over every fenced write of the old owner is refused, and its lease says so."""
    made = session.reserve(1)
    clock.advance(60)
    claim(rival, session.id)
    stale = [
        session.reserve_entry(2),
        session.advance_entry(made, state=State.IN_FLIGHT),
        session.deliver_entry("step_001"),
        session.value_entry("now"),
        session.end_entry(),
    ]
    assert {outcome.took for outcome in session.write(*stale)} == {Took.FENCE_LOST}
    assert session.lease.lost
    loaded = session.loaded()
    assert loaded.operations == (made,)
    assert loaded.steps[0].delivered is None


def test_a_session_that_is_gone_is_a_lost_fence(session: Holder) -> None:
    """A write to a session that does not stand is told that the fence is lost."""
    entry = replace(session.value_entry("now"), session_id=fresh())
    assert session.one(entry).took is Took.FENCE_LOST


def test_outcomes_tell_the_time_of_the_database(session: Holder, clock: FakeClock) -> None:
    """Each outcome carries the database's clock, and `now` reckons on from it."""
    outcome = session.one(session.value_entry("now"))
    assert outcome.now == clock.wall()
    clock.advance(7)
    assert session.ledger.now() == pytest.approx(clock.wall())


def test_no_entries_are_no_transaction(ledger: SqlLedger) -> None:
    """Writing nothing answers with nothing."""
    assert ledger.write([]).result(WAIT) == []
