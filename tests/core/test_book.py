"""Positions one by one: what a replay, an equal call, another write and an address find."""

import dataclasses

import pytest

from agent_runtime import Tool, ToolContract
from agent_runtime._core.calls import run_call
from agent_runtime._core.ending import decide
from agent_runtime._core.places import matches_step, message_of, target_of
from agent_runtime._model import SendFailure, State
from tests.core.world import KEYED, LOST, PLAIN, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call

OK = json_answer(200, {"balance": 1})
PARKED = json_answer(429, None, (("Retry-After", "99"),))
STOP = SendFailure(maybe_sent=True, error="KeyboardInterrupt", interrupted=True)
DEBIT = tool_of(PLAIN)
OTHER = Tool("credit", url="https://tools.test/tools/credit", contract=PLAIN)
READ = Tool("look", url="https://tools.test/look", contract=ToolContract(kind="read"))


def unsettled(**more):
    """A session whose first call is unknown, and the desk that made it."""
    world = fresh(scripted(LOST, OK))
    desk = world.desk()
    make_call(world, desk, call(DEBIT, **more))
    return world, desk


def settle(world, *, succeeded=True):
    (operation,) = [one for one in world.ledger.operations.values() if one.state is State.UNKNOWN]
    world.run(decide("", operation.id, succeeded, {"ok": 1}, "ann", "seen", "none"))


def test_an_equal_call_joins_and_another_write_is_refused():
    """A loop that catches the error and calls again, unchanged or reworded, has one effect."""
    world, desk = unsettled()
    assert make_call(world, desk, call(DEBIT)).step == "step_002"
    assert make_call(world, desk, call(DEBIT, {"amount": 501})).status == "not_started"
    assert make_call(world, desk, call(OTHER)).blocking == "step_001"
    assert len(world.sends) == 1
    assert len(world.ledger.operations) == 1


def test_reads_other_branches_and_calls_that_go_on_are_not_blocked():
    """Reads go on; so does another branch, and another tool with ``after_unknown="continue"``, not the same one."""
    world, desk = unsettled()
    assert make_call(world, desk, call(READ, {})).status == "succeeded"
    assert make_call(world, desk, call(DEBIT, {"amount": 1}, branch="b")).status == "succeeded"
    assert make_call(world, desk, call(OTHER, goes_on=True)).status == "succeeded"
    assert make_call(world, desk, call(DEBIT, {"amount": 2}, goes_on=True)).status == "not_started"


def test_calls_of_one_message_do_not_block_each_other():
    """Addresses that differ in their last number are one message; another message is blocked."""
    world, desk = unsettled(at="m1.0")
    assert make_call(world, desk, call(OTHER, at="m1.1")).status == "succeeded"
    assert make_call(world, desk, call(OTHER, {"amount": 2}, at="m2.0")).status == "not_started"


@pytest.mark.parametrize(
    ("address", "message"),
    [("m7.0", "m7"), ("m7.12", "m7"), ("a.b.3", "a.b"), ("m7", "m7"), ("m7.x", "m7.x"), (".", "."), ("", "")],
)
def test_the_message_of_an_address(address, message):
    """What stands before the last number names the message."""
    assert message_of(address) == message


def test_an_own_key_of_another_effect_does_not_join():
    """Another key of the caller's is another intended effect: it is refused, not merged."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(DEBIT, business_key="inv-1"))
    assert make_call(world, desk, call(DEBIT, business_key="inv-2")).status == "not_started"
    assert make_call(world, desk, call(DEBIT, business_key="inv-1")).key == "inv-1"
    assert make_call(world, desk, call(DEBIT)).key == "inv-1"


def test_a_replay_meets_another_call_as_a_divergence():
    """Other args at a recorded position are told, and nothing is sent."""
    world = fresh(scripted(OK))
    make_call(world, world.desk(), call(DEBIT))
    outcome = make_call(world, world.desk(), call(DEBIT, {"amount": 2}))
    assert (outcome.status, outcome.reason) == ("not_started", "diverged")
    assert make_call(world, world.desk(), call(OTHER)).reason == "diverged"
    assert len(world.sends) == 1


def test_an_equal_request_is_the_recorded_call_whatever_its_fingerprint():
    """A call that sends the very same request is the recorded one, though it was written otherwise."""
    world = fresh(scripted(OK))
    make_call(world, world.desk(), call(DEBIT))
    written = call(DEBIT)
    other = dataclasses.replace(written, validated=dataclasses.replace(written.validated, fingerprint="0" * 64))
    assert make_call(world, world.desk(), other).source == "ledger"
    assert matches_step(other.ask(), world.ledger.steps["step_001"])


def test_fills_leave_the_fingerprint_to_decide():
    """Where a request differs each time by its fills, only what the caller gave counts."""
    made = Tool("f", url="https://tools.test/f", contract=KEYED, fill={"nonce": "uuid"})
    assert call(made).ask().args_hash is None


def test_a_function_has_no_target():
    """The operation of a function tool has no request to compare."""
    world, _ = unsettled()
    (operation,) = world.ledger.operations.values()
    assert target_of(operation) == ("POST", "https://tools.test/tools/debit")
    assert target_of(dataclasses.replace(operation, request=None)) is None


def test_an_unsettled_outcome_is_delivered_again_if_the_code_went_on():
    """At a branch's last position the call settles afresh; before it, the code is told what it was told."""
    world, desk = unsettled()
    make_call(world, desk, call(READ, {}))
    settle(world)
    desk = world.desk()
    assert make_call(world, desk, call(DEBIT)).status == "unknown"
    world, _ = unsettled()
    settle(world)
    assert make_call(world, world.desk(), call(DEBIT)).status == "succeeded"


def test_a_refusal_is_no_going_on_and_is_taken_over():
    """A recorded refusal does not keep an earlier step from settling, and any call may stand in its place."""
    for later in (call(OTHER), call(OTHER, {"amount": 7}), call(READ, {})):
        world, desk = unsettled()
        make_call(world, desk, call(OTHER))
        settle(world)
        desk = world.desk()
        assert make_call(world, desk, call(DEBIT)).status == "succeeded"
        taken = make_call(world, desk, later)
        assert (taken.status, taken.step) == ("succeeded", "step_002")
        assert world.ledger.steps["step_002"].kind == "call"


def test_a_refusal_that_the_code_went_on_after_is_delivered_again():
    """The code was told "not started" and did something else, so it is told so again."""
    world, desk = unsettled()
    make_call(world, desk, call(OTHER))
    settle(world)
    make_call(world, desk, call(DEBIT))
    desk = world.desk()
    outcomes = [make_call(world, desk, one) for one in (call(DEBIT), call(OTHER), call(DEBIT))]
    assert [outcome.status for outcome in outcomes] == ["unknown", "not_started", "succeeded"]
    assert len(world.sends) == 1


def test_a_call_by_counter_never_takes_an_addresss_refusal_for_its_own():
    """A refused call with an address keeps its address, so calls by counter pass it over."""
    world, desk = unsettled()
    make_call(world, desk, call(OTHER, at="m1.0"))
    settle(world)
    make_call(world, desk, call(DEBIT, {"amount": 8}, at="m2.0"))
    assert make_call(world, desk, call(OTHER)).status == "succeeded"
    asked = make_call(world, desk, call(OTHER, at="m1.0"))
    assert (asked.status, asked.step) == ("succeeded", "step_002")
    assert len(world.ledger.operations) == 4


def test_an_address_stands_where_it_stood_whichever_branch_asks():
    """An address is unique in the session; a refused one is taken over in its own branch."""
    world, desk = unsettled(branch="b")
    make_call(world, desk, call(OTHER, at="m1.0", branch="b"))
    settle(world)
    outcome = make_call(world, world.desk(), call(OTHER, at="m1.0"))
    assert (outcome.status, outcome.step) == ("succeeded", "b.step_002")
    assert make_call(world, world.desk(), call(OTHER, at="m1.0", branch="c")).step == "b.step_002"


@pytest.mark.parametrize("again", [True, False])
def test_an_address_and_a_counter_that_share_an_operation_have_one_effect(again):
    """A call by counter that joined an address's operation finds it again, whatever the address was told since."""
    world, desk = unsettled(at="m1.0")
    make_call(world, desk, call(DEBIT))
    if again:
        make_call(world, desk, call(DEBIT, at="m1.0"))
    settle(world)
    desk = world.desk()
    outcomes = [make_call(world, desk, one) for one in (call(DEBIT, at="m1.0"), call(DEBIT))]
    assert outcomes[-1].status == "succeeded"
    assert len(world.ledger.operations) == len(world.sends) == 1


def test_a_call_by_counter_waits_for_the_row_of_an_address_call():
    """While an address call's row is not written a call by counter would be counted otherwise by a replay."""
    world = fresh(scripted(OK))
    desk = world.desk()
    place = desk.book.place(call(DEBIT, at="m1.0").ask())
    assert desk.book.is_crossed("", "me")
    assert not desk.book.is_crossed("b", "me")
    world.run(run_call(desk, call(DEBIT, at="m1.0"), place))
    assert not desk.book.is_crossed("", "me")


def test_another_task_may_not_count_on_a_branch_in_use():
    """A call by counter of another task or thread is told apart from one of the same."""
    world = fresh(scripted(OK))
    book = world.desk().book
    book.enter("", "me", "step_001")
    book.enter("", "me", "step_002")
    assert book.is_crossed("", "you")
    assert not book.is_crossed("", "me")
    book.leave("", "step_001")
    assert book.is_crossed("", "you")
    book.leave("", "step_002")
    assert not book.is_crossed("", "you")


def test_a_position_that_was_not_recorded_is_given_back():
    """The next call stands where a replay will find it; after a later one was given out the branch is torn."""
    world = fresh(scripted(OK))
    book = world.desk().book
    first, second = (book.place(call(DEBIT, {"amount": n}).ask()) for n in (1, 2))
    book.give_back(second)
    assert book.place(call(DEBIT, {"amount": 3}).ask()).label == "step_002"
    book.give_back(first)
    new = book.place(call(DEBIT, {"amount": 4}).ask())
    assert book.is_torn(new)
    assert not book.is_torn(dataclasses.replace(new, kind="replay"))


def test_an_address_that_was_not_recorded_leaves_its_index():
    """A given back address is no gap."""
    world = fresh(scripted(OK))
    book = world.desk().book
    book.give_back(book.place(call(DEBIT, at="m1.0").ask()))
    assert not book.is_crossed("", "me")
    assert book.place(call(DEBIT).ask()).label == "step_001"


def test_a_refusal_met_by_another_obstacle_is_refused_for_that_one():
    """Where what stood in the way is settled by now and another one stands, the call is refused for the other."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(DEBIT))
    make_call(world, desk, call(OTHER, goes_on=True))
    (first, _) = world.ledger.operations.values()
    world.run(decide("", first.id, True, 1, "ann", "seen", "none"))
    assert make_call(world, desk, call(DEBIT, {"amount": 9})).blocking == "step_002"


def test_a_refusal_whose_obstacle_is_settled_joins_what_it_repeats():
    """Looked at again, a call may turn out to repeat an operation that the code knows no end of."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(DEBIT))
    asked = call(DEBIT, {"amount": 9})
    place = desk.book.place(asked.ask())
    assert place.kind == "refuse"
    joined = desk.book.place_again(call(DEBIT).ask(), place)
    assert joined.kind == "join"
    assert desk.book.busy
    desk.book.ended(joined.label)
    assert not desk.book.busy


def test_two_calls_out_for_one_operation_are_both_counted():
    """The operation is at work until the last of them is over."""
    world, desk = unsettled()
    (operation,) = world.ledger.operations.values()
    desk.book.began(operation.id, "step_001")
    desk.book.began(operation.id, "step_002")
    desk.book.ended("step_001")
    assert desk.book.busy
    assert make_call(world, desk, call(OTHER)).status == "succeeded"
    desk.book.ended("step_002")
    assert not desk.book.busy


def test_an_older_row_never_replaces_a_newer_one():
    """Rows come back out of order from several calls; the highest version stands."""
    world, desk = unsettled()
    (operation,) = world.ledger.operations.values()
    desk.book.update(dataclasses.replace(operation, version=0, state=State.READY))
    assert desk.book.operations[operation.id] == operation


def test_a_call_after_an_interrupted_one_is_found_once():
    """The code was interrupted, called again and had it settled; run anew it asks once, and goes on behind both."""
    world = fresh(scripted(STOP, PARKED))
    desk = world.desk()
    keyed = tool_of(KEYED)
    make_call(world, desk, call(keyed))
    desk.book.not_told("step_001")
    desk.book.not_told("step_009")
    make_call(world, desk, call(keyed))
    assert len(world.ledger.steps) == 2
    world.ledger.clock.now += 200.0
    desk = world.desk()
    world.answer = scripted(OK)
    steps = [make_call(world, desk, one).step for one in (call(keyed), call(keyed), call(OTHER))]
    assert steps[0] == "step_001"
    assert len({one.key for one in world.ledger.operations.values() if one.tool == "debit"}) == 1
