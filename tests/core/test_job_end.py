"""What a job's end means for its operation."""

import json

import pytest

from agent_runtime._core.job_end import contradicts, ended
from agent_runtime._model import Effect, Reason, ResultState, State
from agent_runtime.config.jobs import JobReading
from tests.core.job_world import ENDS, followed, handle, job_tool, left, rewrite, started
from tests.core.world import json_answer

TOOL = job_tool()


def end(status="succeeded", *, body=None, tool=TOOL, missing=False, **more):
    return ended(JobReading(status=status, **more), handle(), tool, body, missing=missing)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("effect", ["none", "possible"])
def test_a_job_that_did_not_succeed_leaves_what_the_tool_declared(status, effect):
    """14,000 rows may be written already: only the contract can say that nothing is."""
    change = end(status, tool=job_tool(failed_effect=effect), error={"code": "full"}, message="disk full")
    assert (change.state, change.reason, change.effect) == (State.FAILED, Reason.JOB_ENDED, Effect(effect))
    assert json.loads(change.error) == {"status": status, "error": {"code": "full"}, "message": "disk full"}


def test_what_a_failure_does_not_tell_is_left_out():
    """Its word alone is kept then."""
    assert json.loads(end("failed").error) == {"status": "failed"}


@pytest.mark.parametrize(
    ("told", "body", "missing", "result", "state"),
    [
        ({"result": {"x": 1}, "has_result": True}, None, False, b'{"x":1}', ResultState.OK),
        ({"result": None, "has_result": True}, None, False, b"null", ResultState.OK),
        ({}, b'{"x":1}', False, b'{"x":1}', ResultState.OK),
        ({}, b"<p>", False, b"<p>", ResultState.UNREADABLE),
        ({}, None, False, b"", ResultState.OK),
        ({"nothing_said": True}, None, False, b"", ResultState.MISSING),
        ({}, None, True, b"", ResultState.MISSING),
        ({"result": "\ud800", "has_result": True}, None, False, b'"\\ud800"', ResultState.OK),
    ],
)
def test_a_success_keeps_its_result(told, body, missing, result, state):
    """From its end or from where it stood; an end without a word and a result is told apart from "no result"."""
    change = end(body=body, missing=missing, **told)
    assert (change.state, change.result, change.result_state) == (State.SUCCEEDED, result, state)
    assert (change.partial, change.error) == (False, None)


def test_a_job_done_in_part_keeps_its_counts_and_errors():
    """It is no plain success, and what went wrong stands beside the result."""
    change = end("completed_with_errors", error=["row 7"], counts={"failed": 1}, errors_url="/e", message="look")
    kept = json.loads(change.handle)
    assert (change.partial, json.loads(change.error)) == (True, {"errors": ["row 7"]})
    assert (kept["counts"], kept["errors_url"], kept["message"]) == ({"failed": 1}, "/e", "look")


def test_the_last_progress_stays_where_the_end_tells_none():
    """And the moment before which it was not to be asked is over."""
    seen = handle(progress=45.0, not_before=9.0)
    kept = json.loads(ended(JobReading(status="succeeded"), seen, TOOL, b"1").handle)
    assert kept["progress"] == 45.0
    assert "not_before" not in kept
    assert json.loads(ended(JobReading(status="failed", progress=80.0), seen, TOOL, None).handle)["progress"] == 80.0


@pytest.mark.parametrize(
    ("status", "recorded", "wrong"),
    [
        ("running", State.SUCCEEDED, False),
        ("succeeded", State.SUCCEEDED, False),
        ("completed_with_errors", State.SUCCEEDED, False),
        ("failed", State.SUCCEEDED, True),
        ("cancelled", State.FAILED, False),
        ("succeeded", State.FAILED, True),
    ],
)
def test_another_end_than_the_recorded_one_contradicts_it(status, recorded, wrong):
    """A job that runs contradicts nothing: what says so may be late."""
    world = left(TOOL)
    rewrite(world, state=recorded)
    assert contradicts(JobReading(status=status), world.row) is wrong


def test_L4_a_start_that_tells_a_failure_is_not_polled():
    """The answer that started the job is its end as well."""
    answer = started({"status": "Failed", "error": {"code": "x"}}, headers={"Operation-Location": "/op"})
    world = followed(start=answer)
    assert (world.row.state, world.row.reason, world.polls) == (State.FAILED, Reason.JOB_ENDED, [])


def test_L8_an_operation_of_aip_ends_by_its_error():
    """Its code and message are kept."""
    error = {"code": 9, "message": "quota"}
    world = followed(
        json_answer(200, {"name": "operations/7", "done": True, "error": error}),
        start=started({"name": "operations/7", "done": False}),
    )
    assert json.loads(world.row.error)["error"] == error
    assert world.polls[0].request.url == "https://tools.test/operations/7"


def test_an_end_is_recorded_with_the_answer_that_told_it():
    """As evidence, beside the state."""
    world = followed(json_answer(200, ENDS))
    assert json.loads(world.row.result) == ENDS["result"]
    (_, seen) = world.ledger.evidence[-1]
    assert (seen.kind, seen.status, json.loads(seen.body)) == ("poll", 200, ENDS)
