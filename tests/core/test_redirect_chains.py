"""Redirects of a write as the protocol follows them: what a 303 answered stays answered."""

import itertools

import pytest

from agent_runtime import ToolContract
from agent_runtime._model import Answer, Reason, SendFailure, State
from agent_runtime.config import Timeouts
from tests.core.world import KEYED, LOST, NOT_SENT, PLAIN, fresh, json_answer, make_call, scripted, tool_of
from tests.core.world import call_of as call


def to(status, location="/tools/debit/next"):
    return Answer(status=status, headers=(("Location", location),))


def run(*answers, contract=KEYED):
    world = fresh(scripted(*answers))
    return world, make_call(world, world.desk(), call(tool_of(contract)))


def test_A28_the_page_of_a_303_is_the_result():
    """A POST answered by 303 is done; its result is fetched by GET, without the key."""
    world, outcome = run(to(303), json_answer(200, {"balance": 1}))
    assert (outcome.status, outcome.value) == ("succeeded", {"balance": 1})
    assert [one.request.method for one in world.effects if hasattr(one, "request")] == ["POST", "GET"]


@pytest.mark.parametrize("contract", [KEYED, PLAIN])
@pytest.mark.parametrize(
    "after",
    [
        (json_answer(404),),
        (json_answer(401),),
        (json_answer(500),),
        (LOST,),
        (NOT_SENT,),
        (to(302), json_answer(404)),
        (to(301), NOT_SENT),
        (to(307), json_answer(403)),
        (to(303),),
        (to(303, "https://other.test/x"),),
    ],
)
def test_A28_what_follows_a_303_never_undoes_it(after, contract):
    """After a 303 the request was answered: a page that is not to be had says nothing about the effect."""
    _, outcome = run(to(303), *after, contract=contract)
    assert (outcome.state, outcome.reason) == (State.UNKNOWN, Reason.REDIRECTED)


@pytest.mark.parametrize("sent", [True, False])
def test_an_interruption_after_a_303_leaves_it_unknown(sent):
    """Ctrl-C while the page is fetched says nothing about the request that was answered."""
    stop = SendFailure(maybe_sent=sent, error="KeyboardInterrupt", interrupted=True)
    world, _ = run(to(303), stop)
    (operation,) = world.ledger.operations.values()
    assert operation.state is State.UNKNOWN


def test_A28_a_307_goes_on_under_the_same_key_and_bytes():
    """A 307 was not processed: the same request goes to the other path, in the same attempt."""
    world, outcome = run(to(307), json_answer(200, {}))
    assert (outcome.status, outcome.attempts) == ("succeeded", 1)
    assert len({(send.request.method, send.request.body) for send in world.sends}) == 1
    assert len(world.sends) == 2


@pytest.mark.parametrize(("failure", "state"), [(LOST, State.UNKNOWN), (NOT_SENT, State.READY)])
def test_what_is_lost_behind_a_307_is_the_request_itself(failure, state):
    """A 307 proves that nothing was done so far; what became of the second request is its own matter."""
    assert run(to(307), failure)[1].state is state


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_A28_loops_and_unfollowed_redirects_end_unknown(status):
    """A redirect that leads nowhere proves nothing, and is not asked again."""
    world, outcome = run(to(status))
    assert (outcome.state, outcome.reason) == (State.UNKNOWN, Reason.REDIRECTED)
    assert len(world.sends) == (2 if status in {307, 308} else 1)


def test_redirects_share_one_deadline():
    """A chain that takes longer than the attempt may last ends with what was told last."""
    world = fresh(scripted(to(307)), slow=6.0)
    contract = ToolContract(idempotency=KEYED.idempotency, timeouts=Timeouts(attempt=10.0))
    outcome = make_call(world, world.desk(), call(tool_of(contract)))
    assert outcome.reason is Reason.REDIRECTED
    assert [send.deadline for send in world.sends] == [10.0, 4.0]


def back_and_forth():
    targets = itertools.cycle(["/tools/a", "/tools/b"])
    return lambda _: to(307, next(targets))


def test_A28_a_loop_over_two_places_is_left():
    """After five redirects; it proves nothing, and is not asked again."""
    world, outcome = run(back_and_forth())
    assert (outcome.state, outcome.reason) == (State.UNKNOWN, Reason.REDIRECTED)
    assert len(world.sends) == 6


def test_a_chain_that_outlasts_its_attempt_is_left():
    """What was told last stays; no request begins after the deadline."""
    world = fresh(back_and_forth(), slow=6.0)
    contract = ToolContract(idempotency=KEYED.idempotency, timeouts=Timeouts(attempt=10.0))
    outcome = make_call(world, world.desk(), call(tool_of(contract)))
    assert outcome.reason is Reason.REDIRECTED
    assert [send.deadline for send in world.sends] == [10.0, 4.0]
