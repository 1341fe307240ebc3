"""The protocol of one operation where time, tokens, leases and the ledger get in the way."""

import dataclasses

import pytest

from agent_runtime import HttpLookup, Idempotency, ToolContract, tool
from agent_runtime._core.effects import Acquire, Invoke, NoCredential, Persist, Sleep
from agent_runtime._core.run import Run
from agent_runtime._core.step import perform
from agent_runtime._model import (
    Advance,
    Change,
    Effect,
    File,
    Raised,
    Reason,
    Returned,
    SendFailure,
    State,
    Took,
)
from agent_runtime.config import Member, RetryPolicy, Timeouts
from agent_runtime.errors import EntryRefused, LeaseLost, LedgerUnavailable, NotRecorded
from tests.core.world import KEYED, LOST, MARK, NOT_SENT, START, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call

LOOKUP = HttpLookup(
    url="/operations/{key}",
    done=Member(name="state", equals="done"),
    running=Member(name="state", equals="running"),
    absent=Member(name="state", equals="absent"),
    result="body",
    status="status",
)
PROOF = dataclasses.replace(LOOKUP, absence_is_proof=True, settle_after=10.0)
OK = json_answer(200, {"balance": 1})
LATER = json_answer(503, None, (("Retry-After", "40"),))
ABSENT, RUNNING = json_answer(200, {"state": "absent"}), json_answer(200, {"state": "running"})
DONE = json_answer(200, {"state": "done", "status": 200, "body": {"balance": 1}})


def keyed(*, lookup=None, on_5xx="unknown", retry=None, timeouts=None, **keys):
    return ToolContract(
        idempotency=Idempotency(**keys),
        lookup=lookup,
        on_5xx=on_5xx,
        retry=retry or RetryPolicy(),
        timeouts=timeouts or Timeouts(),
    )


def plain(**more):
    return ToolContract(**more)


def go(contract, *answers, token=None, **more):
    """Make a call in a fresh world; return the world and the outcome."""
    world = fresh(scripted(*answers))
    world.token = token or world.token
    return world, make_call(world, world.desk(), call(tool_of(contract), **more))


def again(world, contract, *answers):
    """Resume the operation in a new process."""
    world.answer = scripted(*answers)
    (operation,) = world.ledger.operations.values()
    run = Run(operation=operation, tool=tool_of(contract), fence=world.ledger.fence, body_limit=1 << 20)
    world.run(perform(run))
    return run


# -- what a wait changes ----------------------------------------------------------------


def test_a_claim_that_ends_during_the_wait_stops_the_resend():
    """What allowed a resend is judged again after the wait for it: a claim of 30 s is over 40 s later."""
    world, outcome = go(keyed(in_progress_ttl=30.0), LATER, OK)
    assert outcome.state is State.UNKNOWN
    assert len(world.sends) == 1
    assert "claim" in outcome.message


def test_after_a_claim_that_ended_during_the_wait_the_tool_is_asked():
    """With a look-up the same story ends by what the tool says."""
    world, outcome = go(keyed(in_progress_ttl=30.0, lookup=LOOKUP), LATER, DONE)
    assert (outcome.status, outcome.reason, len(world.sends)) == ("succeeded", Reason.LOOKED_UP, 1)


def test_a_key_that_grows_too_old_during_the_wait_is_not_sent_again():
    """Lifetime less a tenth counts at the moment of the resend."""
    world, _ = go(keyed(lifetime=40.0), LATER, OK)
    assert len(world.sends) == 1


def test_no_attempt_begins_after_expires_at():
    """A wait that passes ``expires_at`` ends in a cancellation, not in a request."""
    busy = json_answer(429, None, (("Retry-After", "20"),))
    world, outcome = go(KEYED, busy, OK, expires_at=START + 10.0)
    assert (outcome.status, outcome.reason) == ("cancelled", Reason.EXPIRED)
    assert len(world.sends) == 1


def test_an_expired_operation_is_cancelled_before_anything_is_asked():
    """Nothing is sent, and no token is fetched, for what expired before its first attempt."""
    world, outcome = go(KEYED, OK, expires_at=START)
    assert outcome.status == "cancelled"
    assert not [one for one in world.effects if isinstance(one, Acquire)]


def test_an_expired_operation_that_may_be_applied_stays_unknown():
    """After an ambiguous attempt ``expires_at`` stops resends, and says nothing about what happened."""
    world, outcome = go(KEYED, LATER, OK, expires_at=START + 10.0)
    assert (outcome.state, len(world.sends)) == (State.UNKNOWN, 1)


def test_proven_absence_of_an_expired_operation_is_its_end():
    """Nothing was applied and nothing may be sent any more: failed, with no effect."""
    contract = plain(lookup=PROOF, timeouts=Timeouts(attempt=5.0))
    world, outcome = go(contract, LOST, ABSENT, expires_at=START + 12.0)
    assert (outcome.status, outcome.reason, outcome.effect) == ("failed", Reason.EXPIRED, Effect.NONE)
    assert len(world.sends) == 1


def test_a_wait_longer_than_max_inline_wait_parks_the_step():
    """The moment stands in the ledger, the worker is free."""
    world, outcome = go(KEYED, json_answer(429, None, (("Retry-After", "61"),)))
    assert (outcome.status, outcome.kind) == ("pending", "parked")
    assert outcome.resume_at >= START + 61
    assert not [one for one in world.effects if isinstance(one, Sleep)]


def test_a_parked_step_goes_on_when_its_time_has_come():
    """A resume before the moment waits or parks, one after it sends, under the same key."""
    world, _ = go(KEYED, json_answer(429, None, (("Retry-After", "100"),)))
    assert not again(world, KEYED, OK).sent
    world.ledger.clock.now += 200.0
    assert again(world, KEYED, OK).operation.state is State.SUCCEEDED


def test_the_deadline_ends_the_waiting():
    """No wait goes beyond the step's deadline, and none begins after it."""
    contract = keyed(timeouts=Timeouts(step=30.0))
    world = fresh(scripted(NOT_SENT), slow=20.0)
    outcome = make_call(world, world.desk(), call(tool_of(contract)))
    assert outcome.status == "pending"
    assert len(world.sends) == 2


def test_an_attempt_begins_with_what_is_left_of_the_deadline():
    """The deadline of an attempt is the rest of the step's, or its own if that is shorter."""
    assert go(keyed(timeouts=Timeouts(step=30.0)), OK)[0].sends[0].deadline == 30.0
    assert go(keyed(timeouts=Timeouts(step=30.0, attempt=7.0)), OK)[0].sends[0].deadline == 7.0


def test_a_token_that_comes_after_the_deadline_is_not_used():
    """A slow token endpoint uses up the wait budget: nothing is sent."""
    world = fresh(scripted(OK))

    def slow(effect):
        world.ledger.clock.now += 400.0 * isinstance(effect, Acquire)

    world.trouble = slow
    assert make_call(world, world.desk(), call(tool_of(KEYED))).state is State.READY
    assert not world.sends


# -- absence ----------------------------------------------------------------


def test_proven_absence_sends_the_same_request_again():
    """Absence seen twice, late enough, proves that nothing was applied; the same key goes out again."""
    contract = plain(lookup=PROOF, timeouts=Timeouts(attempt=5.0))
    world, outcome = go(contract, LOST, ABSENT, ABSENT, ABSENT, OK)
    assert outcome.status == "succeeded"
    assert len({send.request for send in world.sends}) == 1
    assert len(world.sends) == 2


def test_a_refusal_after_proven_absence_is_a_failure():
    """Once every attempt is proven not applied, the answer's own word counts again."""
    contract = plain(lookup=PROOF, timeouts=Timeouts(attempt=5.0))
    _, outcome = go(contract, LOST, ABSENT, ABSENT, ABSENT, json_answer(400))
    assert (outcome.status, outcome.effect) == ("failed", Effect.NONE)


def test_an_absence_seen_before_an_attempt_does_not_count_for_it():
    """Each attempt needs its own two look-ups."""
    contract = keyed(lookup=PROOF, timeouts=Timeouts(attempt=5.0, step=20.0), retry=RetryPolicy(attempts=1))
    world, _ = go(contract, LOST, ABSENT)
    (operation,) = world.ledger.operations.values()
    world.ledger.operations[operation.id] = dataclasses.replace(operation, absences=1)
    run = again(world, contract, LOST, ABSENT)
    assert run.operation.absences <= 1
    assert len(world.sends) == 2


def test_absence_that_is_not_declared_proof_proves_nothing():
    """The operation stays unknown and the message says why."""
    world, outcome = go(plain(lookup=LOOKUP), LOST, ABSENT)
    assert outcome.state is State.UNKNOWN
    assert "not declared to be proof" in outcome.message
    assert len(world.sends) == 1


def test_a_confirming_look_up_has_to_agree():
    """What the second look-up says counts where the first found nothing."""
    confirm = dataclasses.replace(LOOKUP, url="/audit/{key}")
    contract = plain(lookup=dataclasses.replace(PROOF, confirm=confirm))
    world, outcome = go(contract, LOST, ABSENT, DONE)
    assert outcome.status == "succeeded"
    assert [one.request.url.split("/")[3] for one in world.effects if hasattr(one, "request")] == [
        "tools",
        "operations",
        "audit",
    ]


def test_running_forgets_absences_and_waits():
    """A look-up that says "running" uses up the deadline, not the attempts."""
    contract = plain(lookup=PROOF, timeouts=Timeouts(step=60.0), retry=RetryPolicy(attempts=1, base=4.0))
    world, outcome = go(contract, LOST, *[RUNNING] * 3, DONE)
    assert outcome.state is State.UNKNOWN  # the one attempt is spent, so one look is all
    (operation,) = world.ledger.operations.values()
    assert operation.absences == 0
    world.ledger.clock.now += 60.0
    assert again(world, contract, RUNNING, RUNNING, DONE).operation.state is State.SUCCEEDED


def test_a_look_up_without_a_usable_answer_is_tried_within_the_budget():
    """Failed look-ups count as tries; then the step stays unknown and says so."""
    for answer in (json_answer(500), NOT_SENT, json_answer(200, {"state": "?"})):
        world, outcome = go(plain(lookup=LOOKUP, retry=RetryPolicy(attempts=3)), LOST, answer)
        assert outcome.state is State.UNKNOWN
        assert "no usable answer" in outcome.message
        assert sum(hasattr(one, "request") for one in world.effects) == 3


def test_a_look_up_that_was_interrupted_ends_the_run():
    """Ctrl-C during a look-up changes nothing in the ledger."""
    stop = SendFailure(maybe_sent=True, error="KeyboardInterrupt", interrupted=True)
    world, outcome = go(plain(lookup=LOOKUP), LOST, stop, DONE)
    assert outcome.state is State.UNKNOWN
    assert not [seen for _, seen in world.ledger.evidence if seen.kind == "lookup"]


def test_a_look_up_under_a_stale_token_refreshes_it_once():
    """A 401 to a look-up gets a fresh token; a second one ends the run."""
    contract = plain(lookup=LOOKUP)
    world, outcome = go(contract, LOST, json_answer(401), DONE)
    assert (outcome.status, world.token.number) == ("succeeded", 2)
    world, outcome = go(contract, LOST, json_answer(401))
    assert (outcome.state, world.token.number) == (State.UNKNOWN, 2)
    assert "refused a fresh token" in outcome.message


def test_a_look_up_that_finds_a_job_makes_it_accepted():
    """A stored 202 is a job: its handle goes to the ledger."""
    job = json_answer(200, {"state": "done", "status": 202, "body": {"job_id": "j7"}})
    _, outcome = go(plain(lookup=LOOKUP), LOST, job)
    assert (outcome.status, outcome.kind, outcome.job_id) == ("pending", "job", "j7")


def test_a_look_up_that_finds_a_half_done_end_says_so():
    """What a look-up tells of may have left something behind as well as what an answer tells of."""
    half = json_answer(200, {"state": "done", "status": 500, "body": {"type": "urn:x:partly-applied"}})
    _, outcome = go(plain(lookup=LOOKUP), LOST, half)
    assert (outcome.status, outcome.effect) == ("failed", Effect.POSSIBLE)
    assert outcome.error["status"] == 500


# -- tokens ----------------------------------------------------------------


def test_a_refused_token_is_refreshed_once_and_the_same_request_sent():
    """401, then a fresh token: the same key and bytes."""
    world, outcome = go(KEYED, json_answer(401), OK)
    assert (outcome.status, outcome.attempts, world.token.number) == ("succeeded", 2, 2)
    assert len({send.request for send in world.sends}) == 1
    assert [dict(send.headers)["Authorization"] for send in world.sends] == ["Bearer t1", "Bearer t2"]


def test_a_second_401_waits_for_a_person():
    """Two tokens refused: the step waits as ready for new proof, and a later call goes on under the same key."""
    world, outcome = go(KEYED, json_answer(401))
    assert (outcome.status, outcome.kind, len(world.sends)) == ("pending", "auth", 2)
    assert again(world, KEYED, OK).operation.state is State.SUCCEEDED
    assert len({send.request for send in world.sends}) == 1


def test_a_token_that_cannot_be_renewed_is_not_sent_again():
    """A static token that was refused is not tried a second time."""
    world = fresh(scripted(json_answer(401)))
    world.token.renews = False
    outcome = make_call(world, world.desk(), call(tool_of(KEYED)))
    assert (outcome.kind, len(world.sends)) == ("auth", 1)


def test_a_401_after_an_ambiguous_attempt_says_who_is_wanted():
    """The operation stays unknown, and the message names the token as what is missing."""
    _, outcome = go(KEYED, LOST, json_answer(401))
    assert outcome.state is State.UNKNOWN
    assert "fresh token" in outcome.message


@pytest.mark.parametrize("kind", ["required", "refused"])
def test_no_token_leaves_the_row_ready(kind):
    """The token is got before anything is in flight; without one nothing is sent."""
    world = fresh(scripted(OK))
    world.token.say = [NoCredential(kind, "sign in")]
    outcome = make_call(world, world.desk(), call(tool_of(KEYED)))
    assert (outcome.status, outcome.kind, outcome.error["error"]) == ("pending", "auth", f"token_{kind}")
    assert not world.sends


def test_another_identity_is_never_used():
    """A credential of another principal than the recorded one sends nothing."""
    world = fresh(scripted(OK))
    world.token.principal = "somebody-else"
    outcome = make_call(world, world.desk(), call(tool_of(KEYED)))
    assert (outcome.kind, len(world.sends)) == ("auth", 0)
    assert "somebody-else" in outcome.error["detail"]


@pytest.mark.parametrize("wait", [0.0, None, 3.0])
def test_an_unavailable_token_endpoint_is_asked_within_the_budget(wait):
    """Each failure counts as a try, so that not even "retry after 0" becomes a loop."""
    world = fresh(scripted(OK))
    world.token.say = [NoCredential("unavailable", "down", wait)] * 50
    outcome = make_call(world, world.desk(), call(tool_of(KEYED)))
    assert (outcome.status, len(world.sends)) == ("pending", 0)
    assert sum(isinstance(one, Acquire) for one in world.effects) == 5


def test_an_unavailable_token_endpoint_ends_a_look_up_too():
    """A look-up that gets no token gives up within the budget."""
    world = fresh(scripted(LOST))
    contract = plain(lookup=LOOKUP)
    make_call(world, world.desk(), call(tool_of(contract)))
    world.token.say = [NoCredential("unavailable", "down", 0.0)] * 50
    world.ledger.clock.now += 400.0
    asked = sum(isinstance(one, Acquire) for one in world.effects)
    run = again(world, contract, DONE)
    assert run.operation.state is State.UNKNOWN
    assert sum(isinstance(one, Acquire) for one in world.effects) - asked == 5
    assert run.stay


def test_an_unavailable_token_endpoint_that_comes_back_is_used():
    """The wait is written, then the token is asked for again."""
    world = fresh(scripted(OK))
    world.token.say = [NoCredential("unavailable", "down", 2.0)]
    assert make_call(world, world.desk(), call(tool_of(KEYED))).status == "succeeded"


def test_a_key_bound_to_its_token_is_not_resent_under_another():
    """Where the tool scopes keys by token, a token that changed during the wait stops the resend."""
    contract = keyed(key_bound_to_token=True, lookup=LOOKUP)
    world = fresh(scripted(LATER, DONE))

    def expire(effect):
        world.token.number += isinstance(effect, Sleep)

    world.trouble = expire
    outcome = make_call(world, world.desk(), call(tool_of(contract)))
    assert (outcome.reason, len(world.sends)) == (Reason.LOOKED_UP, 1)


def test_a_key_bound_to_its_token_is_resent_under_the_same():
    """While the token is the one of the attempt before, the resend is in order."""
    contract = keyed(key_bound_to_token=True)
    world, outcome = go(contract, LOST, json_answer(200, {}, MARK))
    assert (outcome.status, len(world.sends)) == ("succeeded", 2)


def test_a_key_bound_to_its_token_stays_unknown_after_a_401():
    """A fresh token would make the resend a new request."""
    world, outcome = go(keyed(key_bound_to_token=True), LOST, json_answer(401), OK)
    assert (outcome.state, len(world.sends)) == (State.UNKNOWN, 2)


# -- leases and the ledger ----------------------------------------------------------------


def test_a_lease_that_ended_sends_nothing():
    """The lease is looked at after the last write and before the first byte."""
    world = fresh(scripted(OK), lease=False)
    with pytest.raises(LeaseLost):
        make_call(world, world.desk(), call(tool_of(KEYED)))
    (operation,) = world.ledger.operations.values()
    assert (operation.state, len(world.sends)) == (State.READY, 0)


def test_a_worker_that_lost_its_fence_files_its_answer_late():
    """The old owner changes no state; what it saw is kept beside the row."""
    world = fresh(scripted(OK))
    desk = world.desk()

    def take_over(effect):
        world.ledger.fence += hasattr(effect, "request")

    world.trouble = take_over
    with pytest.raises(LeaseLost):
        make_call(world, desk, call(tool_of(KEYED)))
    (operation,) = world.ledger.operations.values()
    assert operation.state is State.IN_FLIGHT
    assert [(seen.kind, seen.status) for _, seen in world.ledger.evidence] == [("late", 200)]


@pytest.mark.parametrize("after", ["reserve", "in_flight"])
def test_a_lost_fence_begins_nothing(after):
    """A write that finds another fence stops the worker before anything goes out."""
    world = fresh(scripted(OK))
    desk = world.desk()
    wanted = {"reserve": 1, "in_flight": 2}[after]
    seen = []

    def take_over(effect):
        if isinstance(effect, Persist):
            seen.append(effect)
            world.ledger.fence += len(seen) == wanted

    world.trouble = take_over
    with pytest.raises(LeaseLost):
        make_call(world, desk, call(tool_of(KEYED)))
    assert not world.sends


def failing(world, matches, error):
    """Make writes that match raise."""

    def trouble(effect):
        if isinstance(effect, Persist) and matches(effect.entry):
            raise error

    world.trouble = trouble


def is_end(entry):
    return isinstance(entry, Advance) and bool(entry.evidence)


def is_begin(entry):
    return isinstance(entry, Advance) and entry.attempt is not None


def test_nothing_is_sent_if_in_flight_cannot_be_written():
    """The write before the first byte failed, so there is no first byte."""
    world = fresh(scripted(OK))
    failing(world, is_begin, LedgerUnavailable("down"))
    with pytest.raises(LedgerUnavailable):
        make_call(world, world.desk(), call(tool_of(KEYED)))
    assert not world.sends


def test_an_answer_that_cannot_be_recorded_is_handed_over():
    """`NotRecorded` carries the answer; a resume settles the step under the same key."""
    world = fresh(scripted(OK))
    failing(world, is_end, LedgerUnavailable("down"))
    with pytest.raises(NotRecorded) as caught:
        make_call(world, world.desk(), call(tool_of(KEYED)))
    assert caught.value.answer == OK
    world.trouble = None
    assert again(world, KEYED, json_answer(200, {}, MARK)).operation.state is State.SUCCEEDED


def test_a_function_whose_end_cannot_be_recorded_has_no_answer():
    """There is no HTTP answer to hand over; the message says that it was called."""

    @tool(contract=KEYED)
    def pay(amount: int) -> int:
        return amount

    world = fresh(scripted(Returned(body=b"1")))
    failing(world, is_end, EntryRefused("too long"))
    with pytest.raises(NotRecorded, match=r"was called.*cannot hold") as caught:
        make_call(world, world.desk(), call(pay))
    assert caught.value.answer is None


@pytest.mark.parametrize("what", [is_begin, is_end])
def test_an_entry_that_the_database_refuses_is_told(what):
    """An entry that cannot be stored is told by name, and nothing else is begun."""
    world = fresh(scripted(OK))
    write = world.ledger.write

    def refuse(entry):
        outcome = write(entry)
        return dataclasses.replace(outcome, took=Took.REFUSED, error="NUL") if what(entry) else outcome

    world.ledger.write = refuse
    with pytest.raises((EntryRefused, NotRecorded), match="NUL"):
        make_call(world, world.desk(), call(tool_of(KEYED)))


def decided(world, when):
    """Settle the operation beside the worker, as a person's decision does, before an effect."""

    def trouble(effect):
        if when(effect):
            (operation,) = world.ledger.operations.values()
            change = Change(state=State.SUCCEEDED, reason=Reason.DECIDED, result=b"7")
            world.ledger.operations[operation.id] = dataclasses.replace(world.ledger.changed(operation, change, None))
            world.trouble = None

    world.trouble = trouble


def test_a_row_that_a_person_settled_meanwhile_is_delivered():
    """A resend that finds the row decided is not made; the decision counts."""
    world, _ = go(KEYED, LOST, json_answer(400))
    decided(world, lambda effect: isinstance(effect, Acquire))
    run = again(world, KEYED, OK)
    assert (run.operation.reason, run.sent) == (Reason.DECIDED, False)


def test_an_answer_to_a_row_that_moved_on_is_filed():
    """An answer whose row is settled by then changes nothing and is kept."""
    world, _ = go(KEYED, LOST, json_answer(400))
    decided(world, lambda effect: hasattr(effect, "request"))
    run = again(world, KEYED, OK)
    assert run.operation.reason is Reason.DECIDED
    assert world.ledger.evidence[-1][1].kind == "late"


def test_an_answer_that_cannot_even_be_filed_is_let_go():
    """Filing is best effort: the worker has lost its session anyhow."""
    world = fresh(scripted(OK))
    desk = world.desk()

    def trouble(effect):
        world.ledger.fence += hasattr(effect, "request")
        if isinstance(effect, Persist) and isinstance(effect.entry, File):
            raise LedgerUnavailable("down")

    world.trouble = trouble
    with pytest.raises(LeaseLost):
        make_call(world, desk, call(tool_of(KEYED)))


# -- functions and interruptions ----------------------------------------------------------------


@tool(contract=keyed())
def pay(amount: int) -> int:
    """Pay."""
    return amount


def test_a_function_is_called_with_its_key_and_recorded():
    """A function tool goes through the same life as a request."""
    world = fresh(scripted(Returned(body=b"5")))
    outcome = make_call(world, world.desk(), call(pay))
    (invoke,) = [one for one in world.effects if isinstance(one, Invoke)]
    assert (outcome.value, invoke.key, invoke.args) == (5, outcome.key, b'{"amount":500}')


def test_a_functions_exception_leaves_it_unknown_and_is_not_repeated():
    """An exception that says nothing proves nothing, even if the function honours keys."""
    world = fresh(scripted(Raised(proof=False, error="ValueError")))
    outcome = make_call(world, world.desk(), call(pay))
    assert (outcome.state, outcome.reason) == (State.UNKNOWN, Reason.EXCEPTION)
    assert sum(isinstance(one, Invoke) for one in world.effects) == 1


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (SendFailure(maybe_sent=True, error="KeyboardInterrupt", interrupted=True), State.UNKNOWN),
        (SendFailure(maybe_sent=False, error="CancelledError", interrupted=True), State.READY),
    ],
)
def test_an_interruption_is_recorded_and_ends_the_run(failure, state):
    """Nothing else is begun after it, and nothing counts as delivered."""
    world, _ = go(KEYED, failure, OK)
    (operation,) = world.ledger.operations.values()
    assert (operation.state, len(world.sends)) == (state, 1)
    assert next(iter(world.ledger.steps.values())).delivered is None


def test_a_read_is_never_unknown():
    """A read is asked again until its budget is spent, and has failed then, with no effect."""
    contract = plain(kind="read", retry=RetryPolicy(attempts=3))
    for answer in (LOST, NOT_SENT, json_answer(500), json_answer(409, {"code": "in-progress"}), json_answer(429)):
        world, outcome = go(contract, answer)
        assert outcome.status in {"failed", "pending"}
        assert outcome.state is not State.UNKNOWN
    world, outcome = go(contract, LOST)
    assert (outcome.status, outcome.reason, len(world.sends)) == ("failed", Reason.BUDGET, 3)


def test_a_reads_worker_that_died_is_followed_by_another_request():
    """A read found in flight is asked again."""
    contract = plain(kind="read")
    world, _ = go(contract, json_answer(429, None, (("Retry-After", "100"),)))
    (operation,) = world.ledger.operations.values()
    world.ledger.operations[operation.id] = dataclasses.replace(operation, state=State.IN_FLIGHT)
    assert again(world, contract, OK).operation.state is State.SUCCEEDED


def test_an_accepted_operation_is_not_sent_again():
    """A job that runs is left to run."""
    world, outcome = go(KEYED, json_answer(202, {"job_id": "j"}))
    assert (outcome.status, outcome.kind, outcome.job_id) == ("pending", "job", "j")
    assert not again(world, KEYED, OK).sent
