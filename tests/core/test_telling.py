"""Telling of a job's end: who is told, when it counts, and that the code's own hearing ends it."""

import pytest

from agent_runtime._core.telling import claim_end, tell_end
from agent_runtime._model import State
from tests.core.job_world import call_it, followed, job_tool, left, rewrite
from tests.core.world import json_answer


def test_an_end_that_was_claimed_is_told_and_noted():
    """After that nobody can claim it."""
    world, heard = left(job_tool()), []
    assert world.run(claim_end(world.row.id)) is True
    assert world.run(claim_end(world.row.id)) is False
    world.run(tell_end(world.row.id, "outcome", heard.append))
    assert (heard, (world.row.id, "ended") in world.ledger.notices) == (["outcome"], True)


def test_an_end_whose_listener_raised_can_be_claimed_again():
    """It was not told."""
    world = left(job_tool())
    world.run(claim_end(world.row.id))

    def raises(outcome):
        raise KeyError(outcome)

    with pytest.raises(KeyError):
        world.run(tell_end(world.row.id, "outcome", raises))
    assert (world.row.id, "ended") not in world.ledger.notices
    assert world.run(claim_end(world.row.id)) is True


@pytest.mark.parametrize("answer", [{"status": "succeeded", "result": 1}, {"status": "failed"}, None])
def test_the_code_that_is_given_an_end_is_told(answer):
    """Whoever waits hears of it first; a job that is gone too."""
    gone = json_answer(410, {})
    world = followed(gone if answer is None else json_answer(200, answer))
    assert world.row.state in {State.SUCCEEDED, State.FAILED, State.UNKNOWN}
    assert world.row.untold is False


def test_a_replay_tells_an_end_that_nobody_gave_to_the_code():
    """The process died between the end and its return."""
    world = followed(json_answer(200, {"status": "succeeded", "result": 1}))
    rewrite(world, untold=True)
    assert call_it(world, job_tool()).value == 1
    assert world.row.untold is False
