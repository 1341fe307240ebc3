"""Source 004's scenarios over TCP: really slow, fails late, never ends; streams; polls that meet trouble."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from agent_runtime import StepFailed

if TYPE_CHECKING:
    from acceptance_kit.gateway import Gateway

    from agent_runtime import JobProgress
    from examples.tool_backend.process import Backend

pytestmark = pytest.mark.acceptance
ARGS = {"source_url": "s3://in/7f21c.mov"}
Make = "Callable[..., Any]"


def test_a_really_slow_job(server: Backend, gateway: Gateway, job_tool: Make, runtime_of: Make) -> None:
    """Processing for four polls, then its result: one call, one start, five polls, each wait longer than the last."""
    server.order_jobs("transcode", polls=4, poll_after=None, estimated=None)
    tool = job_tool(first=0.2, factor=2.0, cap=60.0, at=gateway.url)
    outcome = runtime_of(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.value["duration_seconds"]) == ("succeeded", 372)
    assert len(server.effects("transcode")) == len(gateway.requests()) == 1
    polls = gateway.requests(method="GET")
    assert len(polls) == server.polls(outcome.job_id) == 5
    times = [one.at for one in [*gateway.requests(), *polls]]
    for least, (before, after) in zip((0.2, 0.4, 0.8, 1.6, 3.2), pairwise(times), strict=True):
        assert after - before >= least


def test_a_job_that_fails_late(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """Three times processing, then failed: a failure with its error, in words and as an exception; never a success."""
    server.order_jobs("transcode", polls=3, end="failed", estimated=None)
    tool, after = job_tool(), job_tool("report")
    heard: list[JobProgress] = []
    runtime = runtime_of(tool, after)
    session = runtime.open("film")
    outcome = session.try_call(tool, ARGS, on_progress=heard.append)
    assert (outcome.status, outcome.effect, outcome.value) == ("failed", "possible", None)
    assert outcome.error["error"]["code"] == "disk_full"
    assert [one.status for one in heard] == ["running"] * 4 + ["failed"]
    assert server.polls(outcome.job_id) == 4
    said = outcome.for_model()
    assert (said["status"], said["done"]) == ("failed", True)
    assert "result" not in said
    session.close()
    with pytest.raises(StepFailed) as caught, runtime.open("film") as again:
        again.call(after, {"of": again.call(tool, ARGS).value})
    assert caught.value.outcome.job_id == outcome.job_id
    assert (len(server.effects("transcode")), server.effects("report")) == (1, [])


def test_a_job_that_never_ends(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """`timed_out` with the job's id, neither an exception nor a success; it runs on, is listed, and is found again."""
    server.order_jobs("transcode", end="never", poll_after=0.1, estimated=None)
    tool = job_tool(bound=0.5)
    runtime = runtime_of(tool)
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.state, outcome.value) == ("timed_out", "accepted", None)
    assert server.polls(outcome.job_id) > 0  # it is the server's own id
    assert outcome.status_url == f"{server.url}/v1/jobs/{outcome.job_id}"
    said = outcome.for_model()
    assert (said["status"], said["done"], said["job_id"]) == ("timed_out", False, outcome.job_id)
    (job,) = runtime.jobs()
    assert (job.job_id, job.timed_out, job.started_at) == (outcome.job_id, True, outcome.started_at)
    again = runtime_of(tool).open("film").try_call(tool, ARGS)
    assert (again.status, again.job_id, again.started_at) == ("timed_out", outcome.job_id, outcome.started_at)
    assert len(server.effects("transcode")) == 1


def test_a_job_with_a_location_ends_too(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """202 with Location and nothing about it in the body."""
    server.order_jobs("transcode", polls=1, link="location", estimated=None)
    tool = job_tool()
    assert runtime_of(tool).open("film").call(tool, ARGS).value["duration_seconds"] == 372


def test_trouble_of_polls_starts_nothing_twice(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """503, a connection that is cut, 429: the job is followed on; one effect."""
    server.order_jobs("transcode", polls=2)
    server.script("job-status", "status", status=503)
    server.script("job-status", "lost_answer")
    server.script("job-status", "status", status=429, headers={"Retry-After": "0"})
    tool = job_tool()
    outcome = runtime_of(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.attempts) == ("succeeded", 1)  # the server would hide a second POST under its key
    assert len(server.effects("transcode")) == 1


def test_a_lost_202_is_fetched_under_the_same_key(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """The start's answer was lost: the same key gets the stored 202, and one job runs."""
    server.order_jobs("transcode", polls=1)
    server.script("transcode", "lost_answer")
    tool = job_tool()
    outcome = runtime_of(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.attempts) == ("succeeded", 2)
    assert len(server.effects("transcode")) == 1


def test_errors_of_a_job_done_in_part(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """Counts come with the outcome, rows only when asked for, and as many."""
    server.order_jobs("import", polls=1, end="completed_with_errors")
    tool = job_tool("import")
    session = runtime_of(tool).open("import")
    outcome = session.try_call(tool, {"records": 20_000})
    assert outcome.counts == {"processed": 20_000, "succeeded": 19_860, "failed": 140}
    told = session.errors(outcome.step, limit=3)
    assert [one["row"] for one in told["errors"]] == [14_000, 14_001, 14_002]


def test_a_job_is_asked_to_stop(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """`cancel` asks by DELETE and waits for the word of the job itself."""
    server.order_jobs("build", end="never")
    tool = job_tool("build", cancel="DELETE")
    session = runtime_of(tool).open("build")
    step = session.try_call(tool, {"ref": "main"}, detach=True).step
    outcome = session.cancel(step)
    assert (outcome.status, outcome.error["status"]) == ("failed", "cancelled")


def test_a_stream_tells_progress_and_end(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """The tool's server-sent events are read instead of polls; the end that they tell is the job's."""
    server.order_jobs("transcode", seconds=0.4, tick=0.05, poll_after=5)
    tool = job_tool(stream="events_url")
    heard: list[JobProgress] = []
    outcome = runtime_of(tool).open("film").try_call(tool, ARGS, on_progress=heard.append)
    assert outcome.status == "succeeded"
    assert outcome.value["duration_seconds"] == 372
    assert server.polls(outcome.job_id) == 0
    percents = [one.percent for one in heard if one.percent is not None]
    assert len(percents) >= 2
    assert percents == sorted(percents)
    assert heard[-1].done


def test_a_stream_that_breaks_leaves_the_job_to_polls(server: Backend, job_tool: Make, runtime_of: Make) -> None:
    """Two events, then the connection ends: the status URL is polled to the end."""
    server.order_jobs("transcode", seconds=0.6, stream_breaks=2)
    tool = job_tool(stream="events_url")
    outcome = runtime_of(tool).open("film").try_call(tool, ARGS)
    assert outcome.status == "succeeded"
    assert server.polls(outcome.job_id) > 0
