"""A job's stream of events: its word counts like a poll's, its end is no end of the job."""

import pytest

from agent_runtime._core.effects import Credential, NextEvent, NoCredential, Now
from agent_runtime._core.job_stream import listen
from agent_runtime._model import Reason, State
from agent_runtime.config.jobs import JobAdapter, JobReading, JobStart
from tests.core.job_world import (
    ENDS,
    ORIGIN,
    RUNS,
    STARTED,
    call_it,
    followed,
    handle,
    job_tool,
    left,
    rewrite,
    run_of,
    started,
)
from tests.core.world import Crash, json_answer

TOOL = job_tool(stream="events")
START = started(STARTED | {"events": "/v1/jobs/job_7f21c/events"})
POLLED = json_answer(200, {"status": "succeeded", "result": "polled"})


def streamed(*events, polls=(POLLED,), tool=TOOL):
    return followed(*polls, start=START, tool=tool, stream=list(events))


def test_an_end_in_the_stream_ends_the_job_without_a_poll():
    """With its result; the stream is let go."""
    world = streamed(RUNS, ENDS)
    assert (world.row.state, world.polls, world.closed) == (State.SUCCEEDED, [], 1)
    (stream,) = {effect.stream for effect in world.effects if isinstance(effect, NextEvent)}
    assert stream.request.url == f"{ORIGIN}/v1/jobs/job_7f21c/events"
    assert dict(stream.headers)["Authorization"] == "Bearer t1"
    assert stream.seconds == 600.0, "to the bound, counted from the start"


@pytest.mark.parametrize(
    "events",
    [
        [],  # it could not be opened
        [RUNS],
        ["", "ping", "[1]"],  # says nothing of the job
        [{"status": "succeeded"}],  # an end without its result
    ],
)
def test_the_jobs_own_url_tells_what_the_stream_does_not(events):
    """A stream that ends, or whose end holds no result, is followed by polls."""
    world = streamed(*events)
    assert (world.row.state, world.row.result, world.closed) == (State.SUCCEEDED, b'"polled"', 1)
    assert len(world.polls) == 1
    assert world.sends[0].request.method == "POST"


def test_an_end_without_a_result_is_asked_for_at_once():
    """Not when the next look would have been due."""
    assert streamed({"status": "succeeded"}).waits == []


def test_a_failure_in_the_stream_is_the_jobs_end():
    """It needs no result."""
    world = streamed({"status": "failed", "error": "full"})
    assert (world.row.state, world.row.reason, world.polls) == (State.FAILED, Reason.JOB_ENDED, [])


def test_a_stream_that_repeats_our_token_keeps_it_out_of_the_ledger():
    """As an answer that echoes what it was sent."""
    world = streamed({"status": "succeeded", "result": {"seen": "Bearer secret-token-1"}}, tool=TOOL)
    assert b"Bearer" in world.row.result  # another one's is the tool's own business
    world = left(TOOL, START, stream=[{"status": "succeeded", "result": {"seen": "secret-token"}}])
    world.token.value = "secret-token"
    call_it(world, TOOL)
    assert b"secret-token" not in world.row.result + b"".join(seen.body for _, seen in world.ledger.evidence)


def test_progress_is_told_at_each_event_and_noted_now_and_then():
    """A write every five seconds at most; listeners hear of all."""
    told = []
    running = [RUNS | {"progress_percent": percent} for percent in (10, 20, 30)]
    world = left(TOOL, START, POLLED, stream=[running[0], running[1], 6.0, running[2], ENDS])
    version = world.row.version
    call_it(world, TOOL, listener=told.append)
    assert [one.percent for one in told] == [None, 10.0, 20.0, 30.0, 30.0]
    assert world.row.version == version + 2


def test_a_stream_stops_where_somebody_else_wrote_the_end():
    """What it says after that is not told any more."""
    world = left(TOOL, START, POLLED, stream=[RUNS, 6.0, RUNS, ENDS])
    told = []

    def listener(seen):
        told.append(seen)
        if len(told) == 2:
            rewrite(world, state=State.SUCCEEDED, result=b"7")

    outcome = call_it(world, TOOL, listener=listener)
    assert (outcome.value, len(told), world.closed) == (7, 2, 1)


def test_an_end_that_comes_second_is_filed():
    """It changes nothing; another end than the recorded one contradicts it."""
    world = left(TOOL, START, POLLED, stream=[RUNS, {"status": "failed"}])

    def listener(seen):
        if seen.percent is not None:
            rewrite(world, state=State.SUCCEEDED, result=b"7")

    call_it(world, TOOL, listener=listener)
    assert (world.row.state, world.row.contradicted) == (State.SUCCEEDED, True)


def test_a_stream_that_raises_is_let_go():
    """And the error is the caller's."""
    with pytest.raises(KeyError):
        streamed(RUNS, KeyError("x"))
    world = left(TOOL, START, stream=[KeyError("x")])
    with pytest.raises(KeyError):
        call_it(world, TOOL)
    assert (world.closed, world.row.state) == (1, State.ACCEPTED)


def test_a_stream_that_nobody_drives_any_more_asks_for_nothing():
    """A generator that is closed may not yield."""
    world = left(TOOL, START)
    steps = listen(run_of(world, TOOL), handle(stream=f"{ORIGIN}/e"), Credential(), 9.0)
    assert isinstance(next(steps), Now)
    assert isinstance(steps.send(0.0), NextEvent)
    steps.close()
    assert steps.gi_frame is None


def test_a_stream_without_a_token_is_left_for_the_polls():
    """They ask for the token anew, and say what is wanted."""
    world = left(TOOL, START, POLLED, stream=[ENDS])
    world.token.say = [NoCredential("unavailable", "down")]
    call_it(world, TOOL)
    assert (world.row.result, len(world.polls), world.closed) == (b'"polled"', 1, 0)


def test_an_adapter_reads_its_streams_events():
    """One that it cannot read says nothing."""
    told = [KeyError("x"), JobReading(status="succeeded", result=7, has_result=True)]

    def read(answer):
        given = told.pop(0) if answer.body in ({"n": 1}, {"n": 2}) else JobReading()
        if isinstance(given, Exception):
            raise given
        return given

    adapter = JobAdapter(start=lambda _: JobStart(url="/mine"), read=read)
    world = streamed({"n": 1}, {"n": 2}, tool=job_tool(stream="events", adapter=adapter))
    assert (world.row.result, world.polls) == (b"7", [])


def test_a_crash_anywhere_in_a_stream_leaves_the_job_to_the_next_process():
    """Before each of its effects: whoever comes next gets the end, and nothing is sent again."""
    for point in range(1, 100):
        world = left(TOOL, START, POLLED, stream=[RUNS, ENDS])
        world.crash_before = len(world.effects) + point
        try:
            call_it(world, TOOL)
        except Crash:
            world.crash_before = None
            world.ledger.fence += 1
            call_it(world, TOOL)
            assert (world.row.state, len(world.sends)) == (State.SUCCEEDED, 1)
        else:
            break
    assert point > 8


def test_an_event_of_another_job_is_passed_over():
    """A stream may tell of several jobs; only this one's end ends it."""
    world = streamed(ENDS | {"job_id": "job_other", "result": "not yours"}, ENDS)
    assert b"not yours" not in world.row.result
    assert (world.row.state, world.polls) == (State.SUCCEEDED, [])


def test_an_event_whose_word_is_not_known_makes_the_job_due():
    """Its own URL may tell more."""
    world = streamed({"done": True, "status": "archived"})
    assert (world.row.state, world.row.result, world.waits) == (State.SUCCEEDED, b'"polled"', [])
