"""Where the result of an ended job stands, and what becomes of one that cannot be fetched."""

import dataclasses
import json

import pytest

from agent_runtime._core.effects import NoCredential
from agent_runtime._model import ResultState, State
from tests.core.job_world import ORIGIN, call_it, followed, job_tool, left, started
from tests.core.world import LOST, json_answer

MISSING = json_answer(404)
OTHER = "https://jobs.test"
ALLOWED = job_tool(origins=(OTHER,))


def authorisation(send):
    return dict(send.headers).get("Authorization")


def test_a_result_that_stands_elsewhere_is_fetched():
    """On the tool's origin, with the token; its bytes are the result."""
    world = followed(json_answer(200, {"status": "succeeded", "result_url": "/r"}), json_answer(200, {"x": 1}))
    assert [(one.request.url, authorisation(one)) for one in world.polls][1:] == [(f"{ORIGIN}/r", "Bearer t1")]
    assert (json.loads(world.row.result), world.row.result_state) == ({"x": 1}, ResultState.OK)


def test_a_result_on_the_tools_origin_is_fetched_with_the_token_whoever_told_of_it():
    """The job is asked bare on another origin; its result stands where the token belongs."""
    end = json_answer(200, {"status": "succeeded", "result_url": f"{ORIGIN}/r"})
    start = started({"status_url": f"{OTHER}/j"})
    world = followed(end, json_answer(200, 7), start=start, tool=ALLOWED)
    assert [authorisation(one) for one in world.polls] == [None, "Bearer t1"]
    assert world.row.result == b"7"


def test_a_result_whose_token_is_wanting_is_fetched_later():
    """The job ended, and is asked about again once there is a token."""
    end = json_answer(200, {"status": "succeeded", "result_url": f"{ORIGIN}/r"})
    world = left(ALLOWED, started({"status_url": f"{OTHER}/j"}), end, json_answer(200, 7))
    world.token.say = [NoCredential("required", "sign in")]
    call_it(world, ALLOWED)
    assert (len(world.polls), world.row.state) == (1, State.ACCEPTED)
    assert world.row.resume_at > world.ledger.clock.now


@pytest.mark.parametrize("trouble", [LOST, json_answer(503), json_answer(429)])
def test_a_result_that_cannot_be_fetched_now_is_asked_for_again(trouble):
    """The job's end is not written before its result is there."""
    end = json_answer(200, {"status": "succeeded", "result_url": "/r"})
    world = followed(end, trouble, end, json_answer(200, 7))
    assert (world.row.state, world.row.result) == (State.SUCCEEDED, b"7")


@pytest.mark.parametrize("place", ["/r", "https://cdn.test/r"])
def test_a_result_that_cannot_be_had_is_missing(place):
    """The tool says that it is not there, or it stands where no credentials go: the effect is certain all the same."""
    world = followed(json_answer(200, {"status": "succeeded", "result_url": place}), MISSING)
    assert (world.row.state, world.row.result_state) == (State.SUCCEEDED, ResultState.MISSING)


RESULTS = {
    # headers of the start, method of the call; where the result is fetched
    "location-beside": ({"Operation-Location": "/op", "Location": "/r"}, "POST", f"{ORIGIN}/r"),
    "the-resource-itself": ({"Operation-Location": "/op"}, "PUT", f"{ORIGIN}/tools/debit"),
    "azure-resource": ({"Azure-AsyncOperation": "/op"}, "PATCH", f"{ORIGIN}/tools/debit"),
    "nowhere": ({"Operation-Location": "/op"}, "POST", None),
}


@pytest.mark.parametrize(("headers", "method", "url"), RESULTS.values(), ids=RESULTS)
def test_where_an_azure_result_stands(headers, method, url):
    """Beside the operation's URL, or at the resource that was put."""
    tool = dataclasses.replace(job_tool(), method=method)
    world = followed(
        json_answer(200, {"status": "Succeeded"}), json_answer(200, 7), start=started({}, headers=headers), tool=tool
    )
    assert [one.request.url for one in world.polls][1:] == ([] if url is None else [url])
    assert world.row.state is State.SUCCEEDED
