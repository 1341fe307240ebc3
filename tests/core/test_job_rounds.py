"""A job that nobody waits for is looked at once by whoever takes it, and left again."""

import pytest

from agent_runtime._core.job_rounds import look_at
from agent_runtime._core.tokens import Subject
from agent_runtime._model import SendFailure, State
from tests.core.job_world import ENDS, RUNS, job_tool, left, rewrite
from tests.core.world import START, json_answer

TOOL = job_tool()


def looked_at(world, seen=None):
    return world.run(look_at(world.row if seen is None else seen, TOOL, Subject(), 1 << 20))


@pytest.mark.parametrize(
    ("answers", "state", "looks"),
    [
        ([json_answer(200, ENDS)], State.SUCCEEDED, 1),
        ([json_answer(200, RUNS)], State.ACCEPTED, 1),
        ([json_answer(401), json_answer(200, ENDS)], State.SUCCEEDED, 2),
        ([SendFailure(maybe_sent=True, error="SystemExit", interrupted=True)], State.ACCEPTED, 1),
    ],
)
def test_a_due_job_is_looked_at_once(answers, state, looks):
    """No matter who holds its session: the version of the row decides whose write counts."""
    world = left(TOOL, None, *answers)
    world.ledger.clock.now = START + 100
    world.ledger.fence += 5
    assert looked_at(world).state is state
    assert (len(world.polls), world.waits) == (looks, [])


def test_a_job_that_somebody_else_took_is_left_alone():
    """The row is not as it was seen, so nothing goes out."""
    world = left(TOOL, None, json_answer(200, ENDS))
    seen = world.row
    rewrite(world)
    assert looked_at(world, seen) is None
    assert world.polls == []


def test_a_job_that_is_taken_is_not_due_for_others_meanwhile():
    """Until the look is over, or long after a worker that died in it."""
    world = left(TOOL)
    due = []
    world.answer = lambda _: due.append(world.row.resume_at) or json_answer(200, RUNS)
    world.ledger.clock.now = START + 100
    looked_at(world)
    assert due == [START + 190]
