"""The protocols around an operation: taking positions, values, re-issues, decisions, the end of a session."""

import dataclasses
import json

import pytest

from agent_runtime import Idempotency, Tool, ToolContract, tool
from agent_runtime._core import values
from agent_runtime._core.calls import reserve_many, run_call, run_reserved, work
from agent_runtime._core.effects import Load
from agent_runtime._core.ending import decide, finish
from agent_runtime._core.reissue import reissue
from agent_runtime._core.reserving import refuse_unawaited
from agent_runtime._model import BodyState, Effect, Reason, ResultState, SessionState, State, Took
from agent_runtime.errors import (
    ArgumentsRefused,
    ConfigError,
    EntryRefused,
    KeyConflict,
    LeaseLost,
    LedgerError,
    UnsettledStep,
)
from tests.core.world import KEYED, LOST, PLAIN, fresh, json_answer, leave, make_call, scripted, tool_of
from tests.core.world import call_of as call

OK = json_answer(200, {"balance": 1})
DEBIT = tool_of(KEYED)
OTHER = Tool("credit", url="https://tools.test/tools/credit", contract=KEYED)


def told(world, took, *, only=lambda entry: True, **more):
    """Let the ledger answer writes with something else than it would."""
    write = world.ledger.write

    def answer(entry):
        if not only(entry):
            return write(entry)
        outcome = write(entry) if took is Took.TOOK else None
        return outcome or world.ledger._outcome(entry, took, **more)

    world.ledger.write = answer


# -- positions ----------------------------------------------------------------


def test_many_calls_are_reserved_in_one_write_and_worked_one_by_one():
    """All rows stand before the first request goes out."""
    world = fresh(scripted(OK))
    desk = world.desk()
    calls = [call(DEBIT, {"amount": n}) for n in (1, 2)]
    placed = [(one, desk.book.place(one.ask())) for one in calls]
    places = world.run(reserve_many(desk, placed))
    assert len(world.ledger.steps) == len(world.ledger.operations) == 2
    assert not world.sends
    outcomes = [world.run(run_reserved(desk, one, place)) for one, place in zip(calls, places, strict=True)]
    assert [outcome.step for outcome in outcomes] == ["step_001", "step_002"]
    assert all(outcome.ok for outcome in outcomes)


def test_many_calls_that_stand_already_write_nothing():
    """A replay of many calls delivers them."""
    world = fresh(scripted(OK))
    make_call(world, world.desk(), call(DEBIT))
    desk = world.desk()
    place = desk.book.place(call(DEBIT).ask())
    before = len(world.effects)
    assert world.run(reserve_many(desk, [(call(DEBIT), place)])) == [place]
    assert len(world.effects) == before
    assert world.run(run_reserved(desk, call(DEBIT), place)).source == "ledger"


def test_one_of_many_that_is_refused_is_recorded_as_not_started():
    """A call of many that meets an unsettled step is refused like any other."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(tool_of(PLAIN)))
    other = call(OTHER)
    (place,) = world.run(reserve_many(desk, [(other, desk.book.place(other.ask()))]))
    assert world.run(run_reserved(desk, other, place)).status == "not_started"
    assert desk.report.refused == ["step_002"]
    assert world.ledger.steps["step_002"].kind == "refused"


def test_a_call_that_was_never_awaited_is_recorded_as_not_started():
    """Its position is kept as a refusal, so that the numbering of what follows stays."""
    world = fresh(scripted(OK))
    desk = world.desk()
    new = call(DEBIT)
    place = desk.book.place(new.ask())
    world.run(refuse_unawaited(desk, [(new, place)]))
    assert world.ledger.steps["step_001"].kind == "refused"
    assert not world.ledger.operations
    world.run(refuse_unawaited(desk, [(new, dataclasses.replace(place, kind="replay"))]))
    assert len(world.ledger.steps) == 1


@pytest.mark.parametrize(
    ("took", "error"),
    [
        (Took.FENCE_LOST, LeaseLost),
        (Took.REFUSED, EntryRefused),
        (Took.POSITION_TAKEN, LedgerError),
        (Took.STATE_CONFLICT, LedgerError),
        (Took.KEY_IN_USE, LedgerError),
    ],
)
def test_a_position_that_cannot_be_taken_sends_nothing(took, error):
    """Whatever keeps the row from being written keeps the request from being sent, and the position is free again."""
    world = fresh(scripted(OK))
    desk = world.desk()
    told(world, took)
    with pytest.raises(error, match="Nothing was written or sent"):
        make_call(world, desk, call(DEBIT))
    del world.ledger.write
    assert not world.sends
    assert make_call(world, desk, call(DEBIT)).step == "step_001"


def test_an_own_key_used_again_for_the_same_call_gives_the_recorded_end():
    """The caller's own key names one effect: a second call of it sends nothing, and takes no row."""
    world = fresh(scripted(OK))
    desk = world.desk()
    first = make_call(world, desk, call(DEBIT, business_key="inv-7"))
    second = make_call(world, desk, call(DEBIT, business_key="inv-7"))
    assert (first.key, second.key, second.source) == ("inv-7", "inv-7", "ledger")
    assert len(world.sends) == 1
    assert list(world.ledger.steps) == ["step_001"]
    assert make_call(world, desk, call(OTHER)).step == "step_003"


def test_an_own_key_of_an_address_call_leaves_no_gap():
    """A call that is found by its address leaves its index to calls by counter."""
    world = fresh(scripted(OK))
    desk = world.desk()
    make_call(world, desk, call(DEBIT, business_key="inv-7", at="m1.0"))
    make_call(world, desk, call(DEBIT, business_key="inv-7", at="m2.0"))
    assert not desk.book.is_crossed("", "me")
    assert make_call(world, desk, call(OTHER)).step == "step_002"


def test_an_own_key_used_for_another_call_is_a_conflict():
    """The same key with other args, or another tool, is refused before anything is sent."""
    world = fresh(scripted(OK))
    desk = world.desk()
    make_call(world, desk, call(DEBIT, business_key="inv-7"))
    for other in (call(DEBIT, {"amount": 1}, business_key="inv-7"), call(OTHER, business_key="inv-7")):
        with pytest.raises(KeyConflict):
            make_call(world, desk, other)
    assert len(world.sends) == 1


def test_an_own_key_of_an_unsettled_operation_elsewhere_is_named():
    """Another branch's unsettled operation under the key has to be settled there."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(tool_of(PLAIN), business_key="inv-7"))
    with pytest.raises(UnsettledStep) as caught:
        make_call(world, desk, call(tool_of(PLAIN), business_key="inv-7", branch="b"))
    assert caught.value.blocking == "step_001"
    assert len(world.sends) == 1


def test_a_sensitive_tools_key_is_a_uuid_under_the_secret():
    """No args hash stands in a header, and no key of another deployment is equal."""
    made = Tool("pay", url="https://tools.test/pay", contract=PLAIN, sensitive=True)
    keys = set()
    for secret in (b"x" * 32, b"y" * 32):
        world = fresh(scripted(OK))
        desk = world.desk()
        desk.secret = secret
        outcome = make_call(world, desk, call(made))
        keys.add(outcome.key)
        assert len(outcome.key) == 36
    assert len(keys) == 2


def test_a_function_tools_own_key_is_unique_for_the_function():
    """A function has no origin but itself."""

    @tool(contract=KEYED)
    def pay(amount: int) -> int:
        return amount

    world = fresh(scripted(json_answer(200)))
    world.answer = scripted(LOST)
    make_call(world, world.desk(), call(pay, business_key="k1"))
    (operation,) = world.ledger.operations.values()
    assert (operation.origin, operation.key_format) == ("function:pay", "own")


# -- what the code is told again ----------------------------------------------------------------


def test_a_call_on_an_operation_that_was_decided_meanwhile_delivers_the_decision():
    """A step that stood unsettled is read again before anything is done about it."""
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call(tool_of(PLAIN)))
    desk = world.desk()
    (operation,) = world.ledger.operations.values()
    world.run(decide("", operation.id, True, {"n": 1}, "ann", "saw it", "none"))
    outcome = make_call(world, desk, call(tool_of(PLAIN)))
    assert (outcome.status, outcome.value, outcome.reason) == ("succeeded", {"n": 1}, Reason.DECIDED)
    assert len(world.sends) == 1


def test_a_refusal_is_reconsidered_if_its_obstacle_was_decided_meanwhile():
    """What stood in the way is read again before a call is refused for it."""
    world = fresh(scripted(LOST, OK))
    desk = world.desk()
    make_call(world, desk, call(tool_of(PLAIN)))
    (operation,) = world.ledger.operations.values()
    world.run(decide("", operation.id, False, None, "ann", "not there", "none"))
    assert make_call(world, desk, call(OTHER)).status == "succeeded"


def test_a_row_that_cannot_be_read_again_is_worked_as_it_was_read():
    """If the ledger does not show the row, the write that follows tells what stands."""
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call(tool_of(PLAIN)))
    gone = {}

    def hide(effect):
        rows = world.ledger.operations
        if isinstance(effect, Load):
            gone.update(rows)
            rows.clear()
        else:
            rows.update(gone)

    desk = world.desk()
    world.trouble = hide
    assert make_call(world, desk, call(tool_of(PLAIN))).state is State.UNKNOWN


def test_a_finished_session_replays_without_writing():
    """Delivering a recorded end writes nothing once the session is finished."""
    world = fresh(scripted(LOST, json_answer(400)))
    make_call(world, world.desk(), call(DEBIT))
    (operation,) = world.ledger.operations.values()
    world.run(decide("", operation.id, True, 1, "ann", "saw it", "none"))
    world.ledger.state = SessionState.FINISHED
    before = sum(1 for one in world.ledger.log)
    assert make_call(world, world.desk(), call(DEBIT)).value == 1
    assert sum(1 for one in world.ledger.log) == before
    assert world.ledger.steps["step_001"].delivered is not None


def test_a_lost_fence_while_an_outcome_is_noted_is_told():
    """The outcome is not delivered by a worker that lost its session."""
    world = fresh(scripted(LOST))
    told(world, Took.FENCE_LOST, only=lambda entry: hasattr(entry, "delivered"))
    with pytest.raises(LeaseLost):
        make_call(world, world.desk(), call(tool_of(PLAIN)))


def test_settling_beside_the_code_delivers_nothing_to_a_step():
    """What `settle` finds is not what the code was told at the step."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    make_call(world, desk, call(tool_of(PLAIN)))
    (operation,) = world.ledger.operations.values()
    noted = world.ledger.steps["step_001"]
    outcome = world.run(work(desk, tool_of(PLAIN), operation, "step_001", delivers=False))
    assert outcome.state is State.UNKNOWN
    assert world.ledger.steps["step_001"] == noted
    assert world.run(work(desk, tool_of(PLAIN), operation, "no_such_step")).state is State.UNKNOWN


def test_the_report_says_what_became_of_each_step():
    """Sent, resent, settled, unknown, pending, failed, replayed: by label."""
    world = fresh(scripted(LOST))
    desk = world.desk()
    for n, (contract, *answers) in enumerate(
        [
            (KEYED, OK),
            (KEYED, LOST, OK),
            (KEYED, json_answer(400)),
            (KEYED, json_answer(429, None, (("Retry-After", "99"),))),
            (PLAIN, LOST),
        ]
    ):
        world.answer = scripted(*answers)
        make_call(world, desk, call(tool_of(contract), {"n": n}, branch=f"b{n}"))
    report = desk.report
    assert report.sent == ["b0.step_001", "b2.step_001", "b3.step_001", "b4.step_001"]
    assert report.resent == ["b1.step_001"]
    assert (report.failed, report.pending, report.unknown) == (["b2.step_001"], ["b3.step_001"], ["b4.step_001"])
    again = world.desk()
    make_call(world, again, call(DEBIT, {"n": 0}, branch="b0"))
    assert again.report.replayed == ["b0.step_001"]
    assert again.book.not_reached() == ["b1.step_001", "b2.step_001", "b3.step_001", "b4.step_001"]


# -- values ----------------------------------------------------------------


def test_a_value_is_kept_once_and_read_from_then_on():
    """What a replay delivers is what was kept, as its JSON form reads."""
    world = fresh(scripted(OK))
    desk = world.desk()
    index = desk.book.next_value("", "clock")
    assert values.stored(desk, "", "clock", index) is None
    assert world.run(values.keep(desk, "", "clock", index, values.text_of((1, 2), "clock"))) == [1, 2]
    assert values.read(values.stored(desk, "", "clock", index)) == [1, 2]
    later = world.desk()
    assert values.read(values.stored(later, "", "clock", later.book.next_value("", "clock"))) == [1, 2]
    assert values.stored(later, "", "clock", later.book.next_value("", "clock")) is None


@pytest.mark.parametrize("value", [object(), "\ud800", {1: object()}])
def test_a_value_without_a_json_form_is_refused(value):
    """What could not be delivered again is not delivered the first time."""
    with pytest.raises(ArgumentsRefused, match="Nothing was kept"):
        values.text_of(value, "clock")


@pytest.mark.parametrize(("took", "error"), [(Took.FENCE_LOST, LeaseLost), (Took.STATE_CONFLICT, LedgerError)])
def test_a_value_that_was_not_kept_is_not_delivered(took, error):
    """A value that a replay would not know is an error."""
    world = fresh(scripted(OK))
    desk = world.desk()
    told(world, took)
    with pytest.raises(error, match="not kept"):
        world.run(values.keep(desk, "", "clock", 1, b"1"))


# -- re-issue ----------------------------------------------------------------


def failed_step(*, made=DEBIT, answer=None, **more):
    world = fresh(scripted(answer or json_answer(400)))
    desk = world.desk()
    make_call(world, desk, call(made, **more))
    return world, desk


def test_a_failed_step_is_issued_again_under_a_key_of_its_own():
    """A second operation for the same step: another label and key, the same request otherwise."""
    world, desk = failed_step(at="m1.0")
    (first,) = world.ledger.operations.values()
    second = world.run(reissue(desk, DEBIT, "step_001"))
    assert (second.label, second.reissue_of) == ("step_001.r1", first.id)
    assert second.key != first.key
    assert second.request.body == first.request.body
    assert world.ledger.steps["step_001"].operation_id == second.id
    assert world.ledger.steps["step_001"].address == "m1.0"
    world.answer = scripted(OK)
    assert world.run(work(desk, DEBIT, second, "step_001")).status == "succeeded"
    assert make_call(world, world.desk(), call(DEBIT, at="m1.0")).status == "succeeded"
    assert len(world.sends) == 2


def test_a_reissue_that_failed_is_issued_again_under_the_next_label():
    """``.r1`` is followed by ``.r2``."""
    world, desk = failed_step()
    second = world.run(reissue(desk, DEBIT, "step_001"))
    world.run(work(desk, DEBIT, second, "step_001"))
    third = world.run(reissue(desk, DEBIT, "step_001"))
    assert third.label == "step_001.r2"
    assert len({one.key for one in world.ledger.operations.values()}) == 3


def test_a_function_step_is_issued_again_too():
    """A function has no request; its key is made over its args."""

    @tool(contract=ToolContract(idempotency=Idempotency(), on_409="conflict"))
    def pay(amount: int) -> int:
        return amount

    world, desk = failed_step(made=pay)
    second = world.run(reissue(desk, pay, "step_001"))
    assert second.request is None
    assert second.args == b'{"amount":500}'


@pytest.mark.parametrize("contract", [KEYED, PLAIN])
def test_a_step_without_a_body_is_issued_again(contract):
    """Where there is no body the key is made over the args."""
    made = Tool("drop", url="https://tools.test/x/{amount}", method="DELETE", contract=contract)
    world, desk = failed_step(made=made)
    assert world.run(reissue(desk, made, "step_001")).request.url.endswith("/x/500")


@pytest.mark.parametrize(
    "answer",
    [OK, LOST, json_answer(500, {"type": "urn:x:partly-applied"})],
)
def test_only_a_failure_without_effect_is_issued_again(answer):
    """What succeeded, may have been applied, or was left half-done has no second operation."""
    world, desk = failed_step(made=tool_of(PLAIN), answer=answer)
    with pytest.raises(ConfigError, match="only a step that failed with effect none"):
        world.run(reissue(desk, tool_of(PLAIN), "step_001"))
    with pytest.raises(ConfigError, match="not there"):
        world.run(reissue(desk, DEBIT, "step_009"))


@pytest.mark.parametrize(("took", "error"), [(Took.FENCE_LOST, LeaseLost), (Took.POSITION_TAKEN, LedgerError)])
def test_a_reissue_that_was_not_written_sends_nothing(took, error):
    """Nothing stands, nothing goes out."""
    world, desk = failed_step()
    told(world, took)
    with pytest.raises(error):
        world.run(reissue(desk, DEBIT, "step_001"))


# -- decisions and the end ----------------------------------------------------------------


def unknown_operation():
    world = fresh(scripted(LOST))
    make_call(world, world.desk(), call(tool_of(PLAIN)))
    (operation,) = world.ledger.operations.values()
    return world, operation


@pytest.mark.parametrize(
    ("succeeded", "result", "effect", "expected"),
    [
        (True, {"a": 1}, "none", (State.SUCCEEDED, None, ResultState.OK, b'{"a":1}')),
        (True, None, "none", (State.SUCCEEDED, None, ResultState.MISSING, b"")),
        (False, None, "none", (State.FAILED, Effect.NONE, None, None)),
        (False, None, "possible", (State.FAILED, Effect.POSSIBLE, None, None)),
    ],
)
def test_a_person_settles_an_unknown_operation(succeeded, result, effect, expected):
    """The decision is final, and who said so and why is evidence."""
    world, operation = unknown_operation()
    settled = world.run(decide("", operation.id, succeeded, result, "ann", "saw it", effect))
    assert (settled.state, settled.effect, settled.result_state, settled.result) == expected
    assert settled.reason is Reason.DECIDED
    seen = world.ledger.evidence[-1][1]
    assert (seen.kind, seen.by, seen.detail) == ("decision", "ann", "saw it")
    assert world.run(decide("", operation.id, succeeded, result, "bob", "yes", effect)) == settled
    with pytest.raises(ConfigError, match="settled, and that is final"):
        world.run(decide("", operation.id, not succeeded, None, "bob", "no", "none"))


@pytest.mark.parametrize("state", [State.READY, State.IN_FLIGHT])
def test_an_operation_at_work_is_not_decided(state):
    """What waits or is at work is taken further by its session first."""
    world, operation = unknown_operation()
    world.ledger.operations[operation.id] = dataclasses.replace(operation, state=state)
    with pytest.raises(ConfigError, match="at work or waiting"):
        world.run(decide("", operation.id, True, None, "ann", "saw it", "none"))


def test_what_is_not_there_is_not_decided():
    """An id that the ledger does not have is refused by name."""
    world, _ = unknown_operation()
    with pytest.raises(ConfigError, match="no operation 'x'"):
        world.run(decide("", "x", True, None, "ann", "saw it", "none"))


def test_another_tenants_operation_is_not_decided():
    """An id of another tenant is as if it were not there."""
    world, operation = unknown_operation()
    with pytest.raises(ConfigError, match="no operation"):
        world.run(decide("another", operation.id, True, None, "ann", "saw it", "none"))


def test_a_decision_that_met_another_is_told():
    """Two people at once: the second one learns what stands."""
    world, operation = unknown_operation()
    stands = dataclasses.replace(operation, state=State.SUCCEEDED)
    told(world, Took.STATE_CONFLICT, operation=stands)
    with pytest.raises(ConfigError, match="succeeded"):
        world.run(decide("", operation.id, True, None, "ann", "saw it", "none"))


def test_a_decision_that_was_not_written_is_told():
    """An entry that the database refuses is no decision."""
    world, operation = unknown_operation()
    told(world, Took.REFUSED, error="NUL")
    with pytest.raises(LedgerError, match="say it again"):
        world.run(decide("", operation.id, True, None, "ann", "saw it", "none"))


def test_a_session_ends_once_everything_is_settled():
    """Finishing is refused while a step is unsettled, and names it."""
    world, operation = unknown_operation()
    with pytest.raises(UnsettledStep, match=r"step_001 \(unknown\)"):
        world.run(finish(world.desk(), SessionState.FINISHED))
    world.run(decide("", operation.id, True, None, "ann", "saw it", "none"))
    world.run(finish(world.desk(), SessionState.FINISHED))
    assert world.ledger.state is SessionState.FINISHED


def test_a_session_that_is_not_ended_says_why():
    """Another worker's session is not ended; a conflict that the book does not know of is told all the same."""
    world = fresh(scripted(OK))
    desk = world.desk()
    told(world, Took.STATE_CONFLICT)
    with pytest.raises(UnsettledStep, match="a step is not settled"):
        world.run(finish(desk, SessionState.FINISHED))
    world.ledger.fence += 1
    del world.ledger.write
    with pytest.raises(LeaseLost):
        world.run(finish(desk, SessionState.FINISHED))


# -- jobs ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "url", "job_id"),
    [
        ((("Operation-Location", "/ops/7"),), {"id": 7}, "/ops/7", "7"),
        ((("Azure-AsyncOperation", "/az/7"), ("Location", "/l")), {}, "/az/7", None),
        ((("Location", "/jobs/7"),), None, "/jobs/7", None),
        ((), {"job_id": "j", "status_url": "/s/j"}, "/s/j", "j"),
        ((), {"job_id": "j", "status_url": ""}, None, "j"),
        ((), [1], None, None),
        ((), "no object", None, None),
        ((), None, None, None),
    ],
)
def test_a_202_is_accepted_with_what_handle_it_carries(headers, body, url, job_id):
    """Where to ask and the job's id, as far as the answer tells; a job is not sent again."""
    world = fresh(scripted(json_answer(202, body, headers)))
    outcome = make_call(world, world.desk(), call(DEBIT))
    (operation,) = world.ledger.operations.values()
    handle = json.loads(operation.handle)
    assert (outcome.state, handle.get("job_id")) == (State.ACCEPTED, job_id)
    assert handle.get("url", "").endswith(url or "")
    assert [send.request.method for send in world.sends].count("POST") == 1


def test_a_job_whose_answer_was_cut_is_accepted_all_the_same():
    """The status says that it runs; what was cut off names nothing."""
    cut = dataclasses.replace(json_answer(202, {"job_id": "j"}), body_state=BodyState.CUT)
    world = fresh(scripted(cut))
    outcome = make_call(world, world.desk(), call(DEBIT))
    assert (outcome.state, outcome.job_id) == (State.ACCEPTED, None)


def test_calls_that_are_over_leave_no_trace_in_the_book():
    """Once its calls are over the book is not busy."""
    world = fresh(scripted(OK))
    desk = world.desk()
    new = call(DEBIT)
    place = desk.book.place(new.ask())
    desk.book.enter("", "me", "step_001")
    assert desk.book.busy
    world.run(run_call(desk, new, place))
    leave(desk, new, place)
    desk.book.leave("", "step_001")
    assert not desk.book.busy
