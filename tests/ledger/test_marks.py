"""Every change that the core can ask for is made: none is passed over in silence."""

from __future__ import annotations

import dataclasses

import pytest

from agent_runtime._model import UNSET, Change, Effect, Reason, ResultState, State
from tests.ledger.build import Holder

VALUES = {
    "state": State.UNKNOWN,
    "reason": Reason.LOST_ANSWER,
    "effect": Effect.POSSIBLE,
    "result_state": ResultState.MISSING,
    "partial": True,
    "contradicted": True,
    "no_resend": True,
    "server_replayed": True,
    "resume_at": 17.5,
    "result": b"\x00\xff",
    "result_status": 418,
    "error": b"{}",
    "handle": b'{"url":null}',
}
MARKS = [field.name for field in dataclasses.fields(Change) if field.default is False]
PLAIN = [field.name for field in dataclasses.fields(Change) if field.default is UNSET]


def test_the_tables_of_this_module_know_every_change():
    """A change that is added to the core is proven here, or this test says that it is missing."""
    assert set(PLAIN) == VALUES.keys()
    assert len(PLAIN) + len(MARKS) == len(dataclasses.fields(Change))


@pytest.mark.parametrize("name", PLAIN)
def test_a_changed_column_reads_back(session: Holder, name: str) -> None:
    """Whatever column a change names has the new value in the row that comes back."""
    operation = session.send(session.reserve(1))
    changed = session.advance(operation, **{name: VALUES[name]})
    assert getattr(changed, name) == VALUES[name]


@pytest.mark.parametrize("name", MARKS)
def test_a_mark_leaves_a_trace_in_the_row(session: Holder, clock, name: str) -> None:
    """No mark is passed over: each one changes the row of an operation that is ripe for it."""
    operation = session.advance(session.send(session.reserve(1), deadline=5.0), state=State.UNKNOWN)
    if name == "mark_sent":
        operation = session.reserve(2)
    if name in {"clear_absent", "clear_maybe"}:
        operation = session.advance(operation, mark_absent=True, mark_maybe=True)
    clock.advance(60)
    bookkeeping = {"version", "updated_at"}
    before = {k: v for k, v in dataclasses.asdict(operation).items() if k not in bookkeeping}
    after = {k: v for k, v in dataclasses.asdict(session.advance(operation, **{name: True})).items() if k in before}
    assert after != before


def test_a_proof_of_absence_takes_back_that_something_may_have_been_applied(session: Holder) -> None:
    """``clear_maybe`` unsets what says that an attempt may have taken effect, and the absences that proved it."""
    operation = session.advance(session.send(session.reserve(1)), state=State.UNKNOWN, mark_maybe=True)
    operation = session.advance(operation, mark_absent=True)
    cleared = session.advance(operation, clear_maybe=True)
    assert (cleared.maybe_applied, cleared.first_maybe_at, cleared.absences) == (False, None, 0)


def test_a_take_over_moves_the_last_deadline_forward_only(session: Holder, clock) -> None:
    """``mark_taken_over`` sets the last deadline to now, and leaves one that lies ahead."""
    sent = session.send(session.reserve(1), deadline=100.0)
    assert session.advance(sent, mark_taken_over=True, state=State.UNKNOWN).last_deadline == sent.last_deadline
    late = session.send(session.reserve(2), deadline=5.0)
    clock.advance(60)
    assert session.advance(late, mark_taken_over=True, state=State.UNKNOWN).last_deadline == clock.wall()
