"""What whoever listens hears of a job."""

import pytest

from agent_runtime._core.job_progress import say_end
from agent_runtime._model import State
from tests.core.job_world import ENDS, RUNS, call_it, callback, job_tool, left, rewrite, run_of, started, world_of
from tests.core.world import START, json_answer


def heard(world, tool, mode="wait"):
    told = []
    call_it(world, tool, mode, listener=told.append)
    return told


def test_a_listener_hears_of_the_start_each_look_and_the_end():
    """How far it is, for how long it runs, and when it is looked at next."""
    start, look, end = heard(world_of(started(), json_answer(200, RUNS), json_answer(200, ENDS)), job_tool())
    assert (start.status, start.polls, start.percent, start.job_id) == ("running", 0, None, "job_7f21c")
    assert (look.status, look.polls, look.percent, look.message) == ("running", 1, 45.0, "Still at work.")
    assert look.next_look_at > START + look.elapsed
    assert (end.status, end.done, look.done) == ("succeeded", True, False)


def test_a_listener_that_raises_ends_the_call_and_not_the_job():
    """What was seen is written already."""

    def listener(seen):
        raise KeyError(seen.status)

    world = world_of(started(), json_answer(200, RUNS))
    with pytest.raises(KeyError):
        call_it(world, job_tool(), listener=listener)
    assert world.row.state is State.ACCEPTED


@pytest.mark.parametrize(
    ("state", "partial", "word"),
    [
        (State.SUCCEEDED, False, "succeeded"),
        (State.SUCCEEDED, True, "completed_with_errors"),
        (State.FAILED, False, "failed"),
        (State.ACCEPTED, False, None),
    ],
)
def test_an_end_that_came_by_other_ways_is_told_too(state, partial, word):
    """Of a job that still runs there is nothing to tell."""
    world = left(job_tool())
    rewrite(world, state=state, partial=partial)
    told = []
    world.run(say_end(run_of(world, job_tool(), on_progress=told.append)))
    assert [one.status for one in told] == ([] if word is None else [word])


def test_a_callback_that_came_before_is_told_at_once():
    """The first thing that is heard is the end."""
    tool = job_tool(webhook=True)
    world = left(tool)
    world.ledger.keep_event(tenant="", event=callback())
    assert [one.status for one in heard(world, tool)] == ["succeeded"]
