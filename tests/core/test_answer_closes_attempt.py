"""An answer closes its own attempt, not the operation.

Attempt 1 may have been applied, its answer was lost; whatever attempt 2 is told proves nothing about it, unless the
answer is the stored one for the key.
"""

import pytest

from agent_runtime import Idempotency, ToolContract
from agent_runtime._core.run import Run
from agent_runtime._core.step import perform
from agent_runtime._model import Effect, Reason, State
from agent_runtime.config import RetryPolicy, Timeouts
from tests.core.world import LOST, MARK, NOT_SENT, fresh, json_answer, key_of, make_call, scripted, tool_of
from tests.core.world import call_of as call

CONTRACT = ToolContract(
    idempotency=Idempotency(), retry=RetryPolicy(attempts=5, base=1.0), timeouts=Timeouts(step=30.0)
)
TOOL = tool_of(CONTRACT)

# What attempt 2 and all later ones are told; then state, reason, effect and how many requests went out in all.
UNMARKED = [
    (json_answer(400), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(401), State.UNKNOWN, Reason.LOST_ANSWER, 3),  # refreshed once, refused again
    (json_answer(403), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(404), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(408), State.UNKNOWN, Reason.LOST_ANSWER, 5),  # not applied, so tried again while the budget lasts
    (json_answer(409), State.UNKNOWN, Reason.IN_PROGRESS, 7),  # uses up the deadline, not the attempts
    (json_answer(410), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(412), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(422), State.UNKNOWN, Reason.REFUSED_LATER, 2),
    (json_answer(423), State.UNKNOWN, Reason.IN_PROGRESS, 7),
    (json_answer(429), State.UNKNOWN, Reason.LOST_ANSWER, 5),
    (json_answer(500), State.UNKNOWN, Reason.SERVER_ERROR, 2),  # a resend after it could double the effect
    (json_answer(503), State.UNKNOWN, Reason.LOST_ANSWER, 5),
    (NOT_SENT, State.UNKNOWN, Reason.LOST_ANSWER, 5),
]
STATUSES = (400, 401, 403, 404, 408, 409, 410, 412, 422, 423, 429, 500, 503)


def _name(value):
    return getattr(value, "error", None) or str(getattr(value, "status", value))


def _after_a_timeout(answer):
    world = fresh(scripted(LOST, answer))
    outcome = make_call(world, world.desk(), call(TOOL))
    (operation,) = world.ledger.operations.values()
    assert len({(key_of(send), send.request.body) for send in world.sends}) == 1, "one key and one body"
    assert outcome.state is operation.state
    return world, operation


@pytest.mark.parametrize(("answer", "state", "reason", "sends"), UNMARKED, ids=_name)
def test_an_answer_after_a_timeout_leaves_the_operation_unknown(answer, state, reason, sends):
    """After a lost answer no later refusal, error or connection failure says that the first attempt failed."""
    world, operation = _after_a_timeout(answer)
    assert (operation.state, operation.reason, operation.effect) == (state, reason, None)
    assert len(world.sends) == sends


@pytest.mark.parametrize("status", STATUSES)
def test_a_marked_answer_after_a_timeout_is_the_end(status):
    """A stored answer for the key ends the operation: no refresh, no wait, no further request."""
    world, operation = _after_a_timeout(json_answer(status, {"error": "no"}, MARK))
    effect = Effect.POSSIBLE if status >= 500 else Effect.NONE
    assert (operation.state, operation.reason, operation.effect) == (State.FAILED, Reason.STORED, effect)
    assert len(world.sends) == 2
    assert world.token.number == 1


@pytest.mark.parametrize("status", [200, *STATUSES])
def test_a_mark_on_the_first_send_is_somebody_elses_answer(status):
    """A stored answer for a key that was never sent before proves nothing about this operation, whatever it says."""
    world = fresh(scripted(json_answer(status, {"ok": True}, MARK)))
    outcome = make_call(world, world.desk(), call(TOOL))
    assert (outcome.state, outcome.reason) == (State.UNKNOWN, Reason.KEY_CONFLICT)
    assert len(world.sends) == 1


@pytest.mark.parametrize(
    ("answer", "state", "reason", "sends"),
    [
        (json_answer(400), State.FAILED, Reason.REFUSED, 1),
        (json_answer(401), State.READY, Reason.AUTH, 2),
        (json_answer(403), State.FAILED, Reason.REFUSED, 1),
        (json_answer(408), State.READY, Reason.RETRY_AFTER, 5),
        (json_answer(409), State.UNKNOWN, Reason.IN_PROGRESS, 6),
        (json_answer(422), State.FAILED, Reason.REFUSED, 1),
        (json_answer(429), State.READY, Reason.RETRY_AFTER, 5),
        (json_answer(500), State.UNKNOWN, Reason.SERVER_ERROR, 1),
        (json_answer(503), State.UNKNOWN, Reason.LOST_ANSWER, 5),
        (NOT_SENT, State.READY, Reason.RETRY_AFTER, 5),
    ],
    ids=_name,
)
def test_the_same_answers_to_a_first_attempt_say_what_they_say(answer, state, reason, sends):
    """Without an ambiguous attempt before it, a refusal is a failure and "not now" leaves the operation ready."""
    world = fresh(scripted(answer))
    outcome = make_call(world, world.desk(), call(TOOL))
    assert (outcome.state, outcome.reason, len(world.sends)) == (state, reason, sends)


@pytest.mark.parametrize(("answer", "state", "reason", "sends"), UNMARKED, ids=_name)
def test_a_later_success_settles_it(answer, state, reason, sends):
    """Once the tool gives the stored success, the next try ends succeeded, under the same key."""
    world, operation = _after_a_timeout(answer)
    world.ledger.clock.now += 60.0
    world.answer = scripted(json_answer(200, {"balance": 1}, MARK))
    run = Run(operation=operation, tool=TOOL, fence=1, body_limit=1 << 20)
    world.run(perform(run))
    may = operation.no_resend is False
    assert (run.operation.state is State.SUCCEEDED) is may
    assert (len(world.sends) == sends + 1) is may
