"""What is asked about a job beside its state: its errors, and its end before time."""

import json

import pytest

from agent_runtime._core.effects import NoCredential
from agent_runtime._core.job_requests import cancel, errors_of, with_limit
from agent_runtime._model import Answer, Reason, State
from agent_runtime.errors import ConfigError, StepFailed, TokenUnavailable
from tests.core.job_world import (
    JOB_URL,
    ORIGIN,
    PARTLY,
    RUNS,
    call_it,
    followed,
    job_tool,
    left,
    rewrite,
    started,
    world_of,
)
from tests.core.world import LOST, NOT_SENT, json_answer

TOOL = job_tool()


def done_in_part(*answers, **members):
    return followed(json_answer(200, PARTLY | members), *answers)


def errors(world, limit=50):
    return world.run(errors_of(world.desk(), TOOL, world.row, "step_001", limit))


@pytest.mark.parametrize(
    ("url", "limited"),
    [
        (f"{ORIGIN}/e", f"{ORIGIN}/e?limit=7"),
        (f"{ORIGIN}/e?limit=50", f"{ORIGIN}/e?limit=7"),
        (f"{ORIGIN}/e?a=&b=1&limit=1&limit=2", f"{ORIGIN}/e?a=&b=1&limit=7"),
    ],
)
def test_a_limit_replaces_the_urls_own(url, limited):
    """What else the query holds stays."""
    assert with_limit(url, 7) == limited


def test_errors_are_fetched_with_the_token_and_so_many():
    """They are given as the tool told them, and nothing is written."""
    world = done_in_part(json_answer(200, {"items": [{"row": 7}]}))
    before = world.row
    assert errors(world, 7) == {"items": [{"row": 7}]}
    fetched = world.polls[-1]
    assert (fetched.request.method, fetched.request.url) == ("GET", f"{JOB_URL}/errors?limit=7")
    assert dict(fetched.headers)["Authorization"] == "Bearer t1"
    assert world.row == before


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ([1, 2, 3], [1, 2]),
        ({"items": [1, 2, 3], "total": 3, "next": None}, {"items": [1, 2], "total": 3, "next": None}),
        ("row 7", "row 7"),
    ],
)
def test_no_more_errors_are_given_than_were_asked_for(told, kept):
    """Also where the tool does not keep to the limit: a model reads them."""
    assert errors(done_in_part(json_answer(200, told)), 2) == kept


def test_errors_that_are_no_json_are_text():
    """A list of lines, for example."""
    world = done_in_part(json_answer(200))
    world.answer = lambda _: Answer(status=200, body=b"row 7\xff")
    assert errors(world) == "row 7\ufffd"


@pytest.mark.parametrize("url", [None, "https://evil.test/errors", "/a b"])
def test_errors_of_nowhere_and_elsewhere_are_not_fetched(url):
    """Credentials never cross an origin."""
    world = done_in_part(errors_url=url)
    looks = len(world.polls)
    with pytest.raises(ConfigError, match="no errors to fetch"):
        errors(world)
    assert len(world.polls) == looks


@pytest.mark.parametrize(("answer", "told"), [(json_answer(503), "HTTP 503"), (LOST, "ReadTimeout")])
def test_errors_that_cannot_be_fetched_change_nothing(answer, told):
    """They can be asked for again."""
    world = done_in_part(answer)
    before = world.row
    with pytest.raises(StepFailed, match=told):
        errors(world)
    assert world.row == before


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (NoCredential("required", "sign in anew"), "sign in anew"),
        (NoCredential("unavailable", "down"), "cannot serve now"),
    ],
)
def test_without_a_token_nothing_is_sent(problem, told):
    """The error says why there is none."""
    world = left(job_tool(cancel="DELETE"))
    world.token.say = [problem]
    with pytest.raises(TokenUnavailable, match=told):
        world.run(cancel(world.desk(), job_tool(cancel="DELETE"), world.row, "step_001"))
    assert world.polls == []


@pytest.mark.parametrize(
    ("how", "method", "url"),
    [
        ("DELETE", "DELETE", JOB_URL),
        ("POST:cancel", "POST", f"{JOB_URL}:cancel"),
        ("POST/cancel", "POST", f"{JOB_URL}/cancel"),
    ],
)
def test_a_job_is_asked_to_stop_in_the_tools_way(how, method, url):
    """That is no outcome yet: the job's own state tells what became of it, and the answer is kept as evidence."""
    tool = job_tool(cancel=how)
    world = left(tool, None, json_answer(202, {"status": "canceling"}), json_answer(200, {"status": "Canceled"}))
    row = world.run(cancel(world.desk(), tool, world.row, "step_001"))
    assert row.state is State.ACCEPTED
    (asked,) = world.polls
    assert (asked.request.method, asked.request.url, asked.request.body) == (method, url, b"")
    (_, seen) = world.ledger.evidence[-1]
    assert (seen.detail, seen.status) == ("cancel asked", 202)
    call_it(world, tool)
    assert (world.row.state, json.loads(world.row.error)["status"]) == (State.FAILED, "cancelled")


def test_a_query_stays_behind_the_path_of_a_cancel():
    """The verb belongs to the path."""
    tool = job_tool(cancel="POST:cancel")
    world = left(tool, started({"status_url": "/s?v=1"}), json_answer(200))
    world.run(cancel(world.desk(), tool, world.row, "step_001"))
    assert world.polls[0].request.url == f"{ORIGIN}/s:cancel?v=1"


def test_a_lost_answer_to_a_cancel_is_filed():
    """Whether the tool heard of it, its job tells."""
    tool = job_tool(cancel="DELETE")
    world = left(tool, None, LOST)
    assert world.run(cancel(world.desk(), tool, world.row, "step_001")).state is State.ACCEPTED
    assert world.ledger.evidence[-1][1].detail == "cancel asked: ReadTimeout"


@pytest.mark.parametrize(
    ("tool", "start"),
    [
        (TOOL, started()),  # the tool has no way
        (job_tool(cancel="DELETE"), started({"job_id": "j"})),  # nowhere to ask
        (job_tool(cancel="DELETE", origins=("https://jobs.test",)), started({"status_url": "https://jobs.test/s"})),
    ],
)
def test_a_job_that_cannot_be_asked_to_stop_is_not(tool, start):
    """Nothing is sent, and the job stays accepted."""
    world = left(tool, start, json_answer(200, RUNS))
    with pytest.raises(ConfigError, match="cannot be cancelled"):
        world.run(cancel(world.desk(), tool, world.row, "step_001"))
    assert (world.polls, world.row.state) == ([], State.ACCEPTED)


def test_what_was_never_sent_ends_at_once():
    """Without a request; what may have been applied is not cancelled."""
    world = world_of(NOT_SENT)
    world.token.say = [NoCredential("required", "sign in")]
    call_it(world, TOOL)
    assert world.row.state is State.READY
    row = world.run(cancel(world.desk(), TOOL, world.row, "step_001"))
    assert (row.state, row.reason, world.sends) == (State.CANCELLED, Reason.CALLER, [])
    rewrite(world, state=State.UNKNOWN)
    with pytest.raises(ConfigError, match="is unknown"):
        world.run(cancel(world.desk(), TOOL, world.row, "step_001"))


def test_errors_are_asked_for_where_the_start_stood():
    """A job whose handle has lost its URL, as by a callback: relative to the request's own."""
    world = done_in_part(json_answer(200, []))
    rewrite(world, handle={"url": None, "errors_url": "errors"})
    assert errors(world, 1) == []
    assert world.polls[-1].request.url == f"{ORIGIN}/tools/errors?limit=1"
