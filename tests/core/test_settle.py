"""What may be done with an operation that may have been applied: the contract decides."""

import dataclasses

import pytest

from agent_runtime import HttpLookup, Idempotency, ToolContract
from agent_runtime._core.explain import what_next
from agent_runtime._core.settle import Move, absence_counts_from, absence_is_proven, expired, next_move
from agent_runtime._model import Reason, State
from tests.core.world import LOST, START, fresh, make_call, scripted, tool_of
from tests.core.world import call_of as call

DAY = 24 * 3600.0
LOOKUP = HttpLookup(url="/operations/{key}")
PROOF = HttpLookup(url="/operations/{key}", absence_is_proof=True, settle_after=20.0)


def unknown(**more):
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call(tool_of(ToolContract())))
    (operation,) = world.ledger.operations.values()
    known = {"first_sent_at": START, "first_maybe_at": START, "last_deadline": START + 300.0, "key_lifetime": DAY}
    return dataclasses.replace(operation, **(known | more))


def keyed(**more):
    return ToolContract(idempotency=Idempotency(**more))


CASES = [
    # contract, row, seconds since the first attempt, same token, may be resent
    (ToolContract(), {}, 1.0, True, False),
    (keyed(), {}, 1.0, True, True),
    (keyed(), {}, 0.9 * DAY - 1, False, True),
    (keyed(), {}, 0.9 * DAY, False, False),
    (keyed(), {"key_lifetime": 100.0}, 91.0, False, False),
    (keyed(), {"first_sent_at": None}, 30 * DAY, False, True),
    (keyed(), {"no_resend": True}, 1.0, True, False),
    (keyed(), {"expires_at": START + 10}, 9.0, True, True),
    (keyed(), {"expires_at": START + 10}, 10.0, True, False),
    (keyed(in_progress_ttl=120), {}, 119.0, True, True),
    (keyed(in_progress_ttl=120), {}, 120.0, True, False),
    (keyed(in_progress_ttl=120), {"first_maybe_at": None}, 1000.0, True, True),
    (keyed(in_progress_ttl=120, max_execution=60), {}, 119.0, True, True),
    (keyed(in_progress_ttl=120, max_execution=121), {}, 1.0, True, False),
    (keyed(key_bound_to_token=True), {}, 1.0, True, True),
    (keyed(key_bound_to_token=True), {}, 1.0, False, False),
    (keyed(), {"reason": Reason.KEY_CONFLICT}, 1.0, True, False),
]


@pytest.mark.parametrize(("contract", "row", "age", "same_token", "resent"), CASES)
def test_a_resend_is_in_order_only_while_the_key_protects(contract, row, age, same_token, resent):
    """The same key goes out again only while the tool must still know it and nothing has run out."""
    decision = next_move(unknown(**row), contract, now=START + age, same_token=same_token)
    assert (decision.move is Move.RESEND) is resent
    assert bool(decision.why) is not resent


@pytest.mark.parametrize(("contract", "row", "age", "same_token"), [case[:4] for case in CASES if not case[4]])
def test_where_no_resend_is_in_order_the_tool_is_asked(contract, row, age, same_token):
    """With a look-up the tool is asked instead, but for a key that stands for something else."""
    asked = dataclasses.replace(contract, lookup=LOOKUP)
    decision = next_move(unknown(**row), asked, now=START + age, same_token=same_token)
    conflict = row.get("reason") is Reason.KEY_CONFLICT
    assert decision.move is (Move.STAY if conflict else Move.LOOK_UP)
    assert next_move(unknown(**row), contract, now=START + age, same_token=same_token).move is Move.STAY


@pytest.mark.parametrize(
    ("lookup", "absences", "now", "proven"),
    [
        (None, 5, 9999.0, False),
        (LOOKUP, 5, 9999.0, False),
        (PROOF, 0, 9999.0, False),
        (PROOF, 1, 319.0, False),
        (PROOF, 1, 320.0, True),
    ],
)
def test_absence_is_proof_only_if_declared_late_enough_and_twice(lookup, absences, now, proven):
    """Absence counts if declared, after the last attempt's deadline plus ``settle_after``, and the second time."""
    contract = ToolContract(lookup=lookup)
    assert absence_is_proven(unknown(absences=absences), contract, now=START + now) is proven


def test_absence_counts_from_the_last_attempts_deadline():
    """Without an attempt on record the row's last change stands in; without ``settle_after`` nothing is added."""
    assert absence_counts_from(unknown(), ToolContract(lookup=PROOF)) == START + 320.0
    assert absence_counts_from(unknown(), ToolContract(lookup=LOOKUP)) == START + 300.0
    bare = unknown(last_deadline=None, updated_at=START + 7)
    assert absence_counts_from(bare, ToolContract(lookup=PROOF)) == START + 27.0


def test_an_operation_expires_at_its_moment():
    """No attempt begins from ``expires_at`` on."""
    assert not expired(unknown(), START)
    assert not expired(unknown(expires_at=START + 1), START)
    assert expired(unknown(expires_at=START), START)


READY = {"state": State.READY}
FLYING = {"state": State.IN_FLIGHT, "first_maybe_at": None, "updated_at": START}
CLAIMED = keyed(in_progress_ttl=120)
FORGOTTEN = (
    "stay unknown: the tool's claim on the key ends after 120 s, so it may have forgotten the first request, "
    "and it has no look-up"
)


@pytest.mark.parametrize(
    ("row", "contract", "says"),
    [
        ({"state": State.SUCCEEDED}, keyed(), "deliver from the ledger"),
        (READY, keyed(), "send"),
        (READY | {"resume_at": START + 500}, keyed(), "send, not before 2027-01-15T08:08:20Z (in 350 s)"),
        (READY | {"resume_at": START + 50}, keyed(), "send"),
        (READY | {"expires_at": START}, keyed(), "cancel it: its expires_at has passed"),
        ({"state": State.ACCEPTED}, keyed(), "wait: its job cannot be asked about"),
        ({}, keyed(), "send again under the same key"),
        ({}, ToolContract(), "stay unknown: the tool honours no key, and it has no look-up"),
        ({}, ToolContract(lookup=LOOKUP), "look it up: the tool honours no key"),
        ({}, ToolContract(kind="read"), "send again: it only reads"),
        (FLYING, keyed(), "send again under the same key"),
        (FLYING | {"updated_at": START + 50}, CLAIMED, "send again under the same key"),
        (FLYING, CLAIMED, FORGOTTEN),
    ],
)
def test_explain_says_what_a_resume_would_do(row, contract, says):
    """What a resume would do is told from the row and the contract, asking nobody."""
    assert what_next(unknown(**row), tool_of(contract), now=START + 150) == says


def test_explain_knows_positions_without_operation_or_tool():
    """A refused position, and one whose tool is not registered, say so."""
    assert what_next(None, tool_of(keyed()), now=START).startswith("not started")
    assert what_next(unknown(), None, now=START) == "nothing: tool 'debit' is not registered"
