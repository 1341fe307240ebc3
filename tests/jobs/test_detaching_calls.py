"""Calls that start a job and return at once: what they return and raise, and what an equal call is after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import ConfigError, PollPolicy, StepFailed, StepPending, StepUnknown, Tool, ToolContract, tool
from agent_runtime.errors import PartialResult
from tests.jobs.job_api import CUT, DONE, PARTIAL, RESULT, RUNS, start, transcode

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}


def test_a_call_that_detaches_returns_what_is_known_of_its_job(everywhere: JobApi) -> None:
    """At once, without a poll: an outcome with the job's id, no result; nothing is raised, and the branch goes on."""
    api, build, other = everywhere, transcode(), transcode("other")
    runtime = api.runtime(build, other)
    session = runtime.open("film")
    began = api.stage.clock.wall()
    outcome = session.call(build, ARGS, detach=True)
    assert (outcome.status, outcome.job_id, outcome.value, outcome.done) == ("pending", "job_7f21c", None, False)
    assert (api.stage.clock.wall(), api.gets) == (began, [])
    assert [job.job_id for job in runtime.jobs()] == ["job_7f21c"]
    api.starts[0] = httpx.Response(200, json={"other": 1})
    assert session.call(other, ARGS).step == "step_002"


def test_a_tool_that_answers_with_its_result_leaves_nothing_to_detach(api: JobApi) -> None:
    """The outcome is done and holds the value."""
    build = transcode()
    api.starts[0] = httpx.Response(200, json={"film": 1})
    outcome = api.runtime(build).open("film").call(build, ARGS, detach=True)
    assert (outcome.status, outcome.value, outcome.done) == ("succeeded", {"film": 1}, True)


def test_a_function_is_called_to_its_end(api: JobApi) -> None:
    """It starts no job."""

    @tool(contract=ToolContract())
    def add(a: int, b: int) -> int:
        return a + b

    assert api.runtime(add).open("sum").call(add, {"a": 1, "b": 2}, detach=True).value == 3


PLAIN = Tool("plain", url=transcode().url, contract=ToolContract(polling=PollPolicy()))


@pytest.mark.parametrize(
    ("build", "answer", "error"),
    [
        (transcode(), httpx.Response(400, json={"title": "no such film"}), StepFailed),
        (transcode(), httpx.Response(429, headers={"Retry-After": "3600"}), StepPending),
        (PLAIN, CUT, StepUnknown),
        (transcode(), PARTIAL | {"status": "completed_with_errors"}, PartialResult),
    ],
)
def test_a_start_that_did_not_succeed_raises_as_any_call(
    api: JobApi, build: Any, answer: Any, error: type[Exception]
) -> None:
    """No job was started that could be left to itself, or it is over already and did not end well."""
    api.starts[0] = answer
    session = api.runtime(build).open("film")
    with pytest.raises(error):
        session.call(build, ARGS, detach=True)
    assert api.gets == []


@pytest.mark.parametrize("way", ["untracked", "timed_out"])
def test_a_started_job_is_returned_whatever_can_be_learned_of_it(api: JobApi, way: str) -> None:
    """Nobody can ask about it, or nobody waits any more: it was started, and that is what was asked for."""
    build = transcode()
    if way == "untracked":
        api.starts[0] = httpx.Response(202)
    api.script(RUNS)
    session = api.runtime(build).open("film")
    if way == "timed_out":
        session.try_call(build, ARGS)
    outcome = session.call(build, ARGS, detach=True)
    assert (outcome.state, outcome.reason) == ("accepted", {"timed_out": "poll_bound"}.get(way, way))
    assert api.posts == 1


def test_a_restart_returns_the_same_job_or_its_end(everywhere: JobApi) -> None:
    """The code runs again from its top: pending while the job runs, done once somebody looked; one POST."""
    api, build = everywhere, transcode()
    for status in ("pending", "pending", "succeeded"):
        with api.runtime(build).open("film", finish=False) as session:
            assert session.call(build, ARGS, detach=True).status == status
        api.stage.clock.advance(35)
        if status == "pending" and api.gets == []:
            api.script(RUNS, DONE)
        api.runtime(build).follow_jobs()
        api.stage.clock.advance(50)
    assert api.posts == 1


def test_many_jobs_are_started_and_left_to_themselves(everywhere: JobApi) -> None:
    """`call_many(detach=True)`: one for each call, in order, and nobody waits."""
    api, build = everywhere, transcode()
    count = iter(range(9))
    api.starts[0] = lambda request: httpx.Response(202, json=start(job_id=f"job_{next(count)}"))
    runtime = api.runtime(build)
    began = api.stage.clock.wall()
    outcomes = runtime.open("films").call_many([(build, {"n": n}) for n in range(3)], detach=True)
    assert [one.status for one in outcomes] == ["pending"] * 3
    assert (api.posts, api.gets, api.stage.clock.wall()) == (3, [], began)
    assert len(runtime.jobs()) == len({one.job_id for one in outcomes}) == 3


@pytest.mark.parametrize("way", ["call", "try_call", "call_many"])
def test_what_is_no_yes_or_no_is_refused(api: JobApi, way: str) -> None:
    """Before anything is written or sent."""
    build = transcode()
    session = api.runtime(build).open("film")
    with pytest.raises(ConfigError, match="detach must be True or False"):
        session.call_many([(build, ARGS)], detach="no") if way == "call_many" else getattr(session, way)(
            build, ARGS, detach="no"
        )
    assert (api.seen, list(session.steps())) == ([], [])


# -- once the code was told the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("told_by", ["check", "call", "settle", "follow_jobs"])
def test_an_equal_call_is_a_new_act_once_the_code_was_told_the_end(everywhere: JobApi, told_by: str) -> None:
    """`check` and the call itself tell it; `settle` and a follower do not: then the call joins, and tells it."""
    api, build = everywhere, transcode()
    session = api.runtime(build).open("film", finish=False)
    step = session.call(build, ARGS, detach=True).step
    api.stage.clock.advance(35)
    if told_by == "check":
        assert session.check(step).value == RESULT
    elif told_by == "call":
        assert session.call(build, ARGS).value == RESULT
    elif told_by == "settle":
        assert [one.status for one in session.settle()] == ["succeeded"]
    else:
        session.close()
        assert api.runtime(build).follow_jobs() == 1
        session = api.runtime(build).open("film", finish=False)
    again = session.call(build, ARGS, detach=True)
    assert api.posts == (2 if told_by in {"check", "call"} else 1)
    assert again.status == ("pending" if told_by in {"check", "call"} else "succeeded")


def test_the_outcome_of_check_is_the_result_to_go_on_with(everywhere: JobApi) -> None:
    """However often it is asked, it is the step's own, and no second job is started."""
    api, build = everywhere, transcode()
    session = api.runtime(build).open("film")
    step = session.call(build, ARGS, detach=True).step
    api.stage.clock.advance(35)
    assert [session.check(step).value for _ in range(3)] == [RESULT] * 3
    assert (api.posts, len(api.gets)) == (1, 1)


def test_a_call_with_an_address_is_the_same_job_for_ever(everywhere: JobApi) -> None:
    """Asked again after its end was told: it is delivered again, in this process and in the next."""
    api, build = everywhere, transcode()
    session = api.runtime(build).open("film", finish=False)
    step = session.call(build, ARGS, detach=True, at="the film").step
    api.stage.clock.advance(35)
    assert session.check(step).value == RESULT
    for _ in range(2):
        assert session.call(build, ARGS, at="the film").value == RESULT
        assert session.call(build, ARGS, detach=True, at="the film").value == RESULT
        session.close()
        session = api.runtime(build).open("film", finish=False)
    assert api.posts == 1


def test_a_restart_finds_its_own_step_again(everywhere: JobApi) -> None:
    """The counter begins anew with the session object: the first call is the first job, whose end it delivers."""
    api, build = everywhere, transcode()
    session = api.runtime(build).open("film", finish=False)
    step = session.call(build, ARGS, detach=True).step
    api.stage.clock.advance(35)
    session.check(step)
    session.close()
    again = api.runtime(build).open("film")
    assert again.call(build, ARGS).value == RESULT
    assert api.posts == 1
