"""What a caller is told of a job, and what its tool sees: source 004's scenarios in virtual time, and bad days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import StaticToken, StepFailed, StepPending, TokenCallable
from agent_runtime.errors import StepUnknown
from tests.credentials import STATIC
from tests.jobs.job_api import (
    CUT,
    DONE,
    DOWN,
    FAILED,
    ORIGIN,
    PLAIN_RUNS,
    RESULT,
    RUNS,
    START,
    start,
    transcode,
)

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}


def test_a_really_slow_job_is_one_call(api: JobApi) -> None:
    """Processing for some polls, then succeeded: the call returns the result; one POST, waits as the tool asked."""
    tool = transcode()
    api.script(RUNS, RUNS, DONE)
    with api.runtime(tool).open("film") as session:
        result = session.call(tool, ARGS)
    assert (result.value, result.source) == (RESULT, "sent")
    assert api.posts == 1
    assert [int(wait) for wait in api.waits] == [31, 47, 47]


def test_a_job_that_fails_late_is_a_failure(api: JobApi) -> None:
    """Three times processing, then failed: failed with the error kept, effect possible, and no success before."""
    tool = transcode()
    api.script(RUNS, RUNS, RUNS, FAILED)
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.effect, outcome.value) == ("failed", "possible", None)
    assert outcome.error["error"]["code"] == "codec"
    assert (api.posts, len(api.gets)) == (1, 4)
    said = outcome.for_model()
    assert said["done"] is True
    assert "FAILED" in said["message"]
    assert "Part of it may have taken effect" in said["message"]


def test_a_failed_job_is_raised_by_call(api: JobApi) -> None:
    """`call` raises `StepFailed` with the effect that the contract declares."""
    tool = transcode(failed_effect="none")
    api.script(FAILED)
    with pytest.raises(StepFailed) as caught:
        api.runtime(tool).open("film").call(tool, ARGS)
    assert caught.value.effect == "none"
    assert caught.value.outcome.job_id == "job_7f21c"


def test_a_job_that_never_ends_times_out_with_its_id(api: JobApi) -> None:
    """`timed_out` with id, status URL and start time, the row still accepted: neither an exception nor a success."""
    tool = transcode()
    api.script(RUNS)
    began = api.stage.clock.wall()
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.state, outcome.job_id) == ("timed_out", "accepted", "job_7f21c")
    assert outcome.status_url == f"{ORIGIN}/v1/jobs/job_7f21c"
    assert outcome.started_at == pytest.approx(began, abs=1)
    assert 500 < api.stage.clock.wall() - began <= 600
    said = outcome.for_model()
    assert (said["status"], said["done"], said["job_id"]) == ("timed_out", False, "job_7f21c")
    assert "result" not in said
    assert "NOT finished" in said["message"]
    assert "do not start it again" in said["message"]


def test_a_timed_out_job_is_raised_by_call_as_pending(api: JobApi) -> None:
    """`call` raises `StepPending`, which holds the outcome with the job's id."""
    tool = transcode()
    api.script(RUNS)
    with pytest.raises(StepPending) as caught:
        api.runtime(tool).open("film").call(tool, ARGS)
    assert (caught.value.kind, caught.value.outcome.job_id) == ("job", "job_7f21c")


def test_without_hints_waits_grow_to_the_cap_and_end_at_the_bound(api: JobApi) -> None:
    """First after 5 s, then x1.5 up to 60 s, each a little more by jitter; the last look is at the bound."""
    tool = transcode()
    api.starts[0] = start(poll_after_seconds=None)
    api.script(PLAIN_RUNS)
    began = api.stage.clock.wall()
    outcome = api.runtime(tool, random=lambda: 0.0).open("film").try_call(tool, ARGS)
    assert outcome.status == "timed_out"
    assert api.waits[:8] == [5, 7.5, 11.25, 16.875, 25.312, 37.969, 56.953, 60]
    assert max(api.waits) == 60
    assert api.gets[-1][1] - began == pytest.approx(600, abs=0.1)


@pytest.mark.parametrize(
    "hint",
    [
        httpx.Response(200, json=PLAIN_RUNS, headers={"Retry-After": "90"}),
        PLAIN_RUNS | {"poll_after_seconds": 90},
        PLAIN_RUNS | {"pollInterval": 90_000},
        httpx.Response(503, json={"poll_after_seconds": 90}),
    ],
    ids=["retry-after", "poll_after_seconds", "pollInterval", "of an error"],
)
def test_a_hint_in_any_answer_is_the_least_wait_above_the_cap_too(api: JobApi, hint: object) -> None:
    """The next look comes 90 s later or a little after, though the cap is 60 s."""
    tool = transcode()
    api.script(hint, DONE)
    assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "succeeded"
    assert 90 <= api.waits[1] <= 95


def test_a_hint_of_zero_is_no_hint(api: JobApi) -> None:
    """A tool that says 0 is not asked in a tight loop."""
    tool = transcode()
    api.starts[0] = start(poll_after_seconds=0)
    api.script(PLAIN_RUNS | {"poll_after_seconds": 0}, httpx.Response(429, headers={"Retry-After": "0"}), DONE)
    assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "succeeded"
    assert min(api.waits) >= 5


def test_after_a_hint_the_waits_grow_from_it(api: JobApi) -> None:
    """As in the source: 30 s, then 45 s, then the cap."""
    tool = transcode()
    api.script(PLAIN_RUNS, PLAIN_RUNS, DONE)
    api.runtime(tool, random=lambda: 0.0).open("film").try_call(tool, ARGS)
    assert api.waits == [30.2, 45, 60]


def test_A35_passing_trouble_of_polls_ends_no_job(api: JobApi) -> None:
    """503, a reset, 500, 429 with Retry-After, 401 and then a fresh token: one POST, the 429's wait, success."""
    tokens = iter(["call-canary-1"] * 7 + ["call-canary-2"] * 2)
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Location": "/jobs/1"})
    refused = httpx.Response(401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
    api.script(503, CUT, DOWN, 500, httpx.Response(429, headers={"Retry-After": "2"}), refused, DONE)
    runtime = api.runtime(tool, auth=TokenCallable(function=lambda: next(tokens)))
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert (outcome.status, api.posts) == ("succeeded", 1)
    assert 2 <= api.waits[5] <= 3
    assert api.gets[-2][0].headers["Authorization"] == "Bearer call-canary-1"
    assert api.gets[-1][0].headers["Authorization"] == "Bearer call-canary-2"


def test_L3_polls_carry_no_key_and_keep_the_distance_asked_for(api: JobApi) -> None:
    """Operation-Location, Running with Retry-After 1, Succeeded: one POST, two GETs without a key."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Operation-Location": f"{ORIGIN}/ops/1", "Retry-After": "1"})
    api.script(
        httpx.Response(200, json={"status": "Running"}, headers={"Retry-After": "1"}),
        {"status": "Succeeded", "result": 7},
    )
    assert api.runtime(tool).open("film").call(tool, ARGS).value == 7
    assert (api.posts, len(api.gets)) == (1, 2)
    assert all(wait >= 1 for wait in api.waits)
    assert not any("Idempotency-Key" in request.headers for request, _ in api.gets)


def test_L4_a_start_that_tells_its_end_is_not_polled(api: JobApi) -> None:
    """202 whose body already says Failed: failed, without a poll."""
    tool = transcode()
    headers = {"Operation-Location": f"{ORIGIN}/ops/1"}
    api.starts[0] = httpx.Response(202, json={"status": "Failed", "error": {"code": "quota"}}, headers=headers)
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.error["error"], api.gets) == ("failed", {"code": "quota"}, [])


def test_a_202_that_says_success_of_itself_is_no_end(api: JobApi) -> None:
    """``{"status": "success"}`` in the answer that started a job speaks of the request: it is polled."""
    tool = transcode()
    api.starts[0] = start(status="success")
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    assert len(api.gets) == 1


@pytest.mark.parametrize(
    "location", ["/jobs/1", "jobs/1", "?op=1", f"{ORIGIN}/jobs/1"], ids=["path", "relative", "query", "absolute"]
)
def test_A38_links_of_the_same_origin_are_polled_with_the_token(api: JobApi, location: str) -> None:
    """They resolve against the request's URL."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Location": location})
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    assert runtime.open("film").try_call(tool, ARGS).status == "succeeded"
    wanted = {"/jobs/1": "/jobs/1", "jobs/1": "/v1/jobs/1", "?op=1": "/v1/transcode?op=1"}
    polled = api.gets[0][0]
    assert polled.url.raw_path.decode() == wanted.get(location, "/jobs/1")
    assert polled.headers["Authorization"] == f"Bearer {STATIC}"


@pytest.mark.parametrize(
    "location",
    ["//evil.test/j", "https://evil.test/j", "http://tools.example.com/j", "https://tools.example.com:8443/j"],
)
def test_A38_links_of_another_origin_are_not_followed(api: JobApi, location: str) -> None:
    """Nothing is sent there; the outcome says why, the URL is kept, and the job stands in `attention()` at once."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Location": location})
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.kind, api.gets) == ("pending", "job", [])
    assert "not on the tool's origin" in outcome.message
    assert outcome.status_url is not None
    assert outcome.status_url.endswith("/j")
    (matter,) = runtime.attention()
    assert (matter.kind, api.posts) == ("untracked", 1)
    assert "nothing was sent there" in matter.message


def test_a_status_url_of_another_origin_is_said_to_be_that(everywhere: JobApi) -> None:
    """In the body as in a header: not "nowhere to ask", but where, why not, and what allows it; then it is followed."""
    api, tool, other = everywhere, transcode(), "https://status.example.com"
    api.starts[0] = start(status_url=f"{other}/j/1")
    heard: list[str] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append(matter.message))
    with runtime.open("film") as session:
        outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.status_url, api.gets) == ("pending", f"{other}/j/1", [])
    for said in (outcome.message, outcome.for_model()["message"], *heard):
        assert "not on the tool's origin but on https://status.example.com:443, so nothing was sent there" in said
        assert "PollPolicy(origins=...)" in said
    assert (len(heard), runtime.notify()) == (1, 0)
    allowed = transcode(origins=(other,))
    later = api.runtime(allowed, auth=StaticToken(token=STATIC))
    assert later.open("film").call(allowed, ARGS).value == RESULT
    assert "Authorization" not in api.gets[0][0].headers
    assert (later.attention(), api.posts) == ([], 1)


def test_L9_an_allowed_origin_is_polled_bare(api: JobApi) -> None:
    """No Authorization, no key, on an origin that the policy allows."""
    tool = transcode(origins=("https://status.example.com",))
    api.starts[0] = httpx.Response(202, headers={"Location": "https://status.example.com/j/1"})
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    assert runtime.open("film").try_call(tool, ARGS).status == "succeeded"
    polled = api.gets[0][0]
    assert polled.url.host == "status.example.com"
    assert not {"Authorization", "Idempotency-Key"} & set(polled.headers)


def test_a_404_is_waited_out_in_the_first_half_minute(api: JobApi) -> None:
    """A status page that is not there yet is looked at again."""
    tool = transcode()
    api.starts[0] = start(poll_after_seconds=None)
    api.script(404, 404, DONE)
    assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "succeeded"


@pytest.mark.parametrize("polls", [[410], [RUNS, 404]], ids=["410", "404 after the grace"])
def test_a_job_that_cannot_be_found_is_unknown(api: JobApi, polls: list[object]) -> None:
    """Never failed, never started again; a person can decide it."""
    tool = transcode()
    api.script(*polls)
    runtime = api.runtime(tool)
    session = runtime.open("film")
    with pytest.raises(StepUnknown) as caught:
        session.call(tool, ARGS)
    assert caught.value.outcome.reason == "job_gone"
    assert api.posts == 1
    runtime.decide(caught.value.operation_id, succeeded=True, by="ana", evidence="the file is there", result=RESULT)
    assert session.call(tool, ARGS).value == RESULT


def test_A37_a_200_is_not_success(api: JobApi) -> None:
    """A final poll under 200 whose body says Failed is a failure."""
    tool = transcode()
    api.script(httpx.Response(200, json={"status": "Failed", "error": {"code": "x"}}))
    assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "failed"


def test_A37_a_null_status_is_looked_at_again(api: JobApi) -> None:
    """``{"status": null}`` says nothing."""
    tool = transcode()
    api.script({"status": None}, DONE)
    assert api.runtime(tool).open("film").try_call(tool, ARGS).status == "succeeded"


@pytest.mark.parametrize("detach", [False, True])
def test_a_bare_202_is_accepted_and_untracked(everywhere: JobApi, detach: bool) -> None:
    """Nothing to ask and no callback declared: pending, in `attention()` at once, told of once, until it is decided."""
    api, tool = everywhere, transcode()
    api.starts[0] = httpx.Response(202)
    heard: list[str] = []
    runtime = api.runtime(tool, on_attention=lambda matter: heard.append(matter.kind))
    began = api.stage.clock.wall()
    session = runtime.open("film")
    outcome = session.try_call(tool, ARGS, detach=detach)
    assert (outcome.status, outcome.job_id, outcome.status_url) == ("pending", None, None)
    assert "neither where to ask" in outcome.message
    assert api.stage.clock.wall() == began
    (matter,) = runtime.attention()
    assert (matter.kind, matter.reason) == ("untracked", "untracked")
    session.close()
    api.stage.clock.advance(3600)
    assert (runtime.notify(), heard) == (0, ["untracked"])
    runtime.decide(matter.id, succeeded=True, by="ana", evidence="seen", result=1)
    assert runtime.resume("film").call(tool, ARGS).value == 1


def test_a_second_401_ends_the_try_and_not_the_job(api: JobApi) -> None:
    """Pending, with words that say what is wanted; the next try goes on by GETs."""
    tool = transcode()
    api.script(401, 401, DONE)
    session = api.runtime(tool, auth=TokenCallable(function=lambda: f"call-canary-{len(api.seen)}")).open("film")
    outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.state) == ("pending", "accepted")
    assert "refused a fresh token" in outcome.message
    assert session.try_call(tool, ARGS).status == "succeeded"
    assert api.posts == 1


def test_START_is_the_sources_body() -> None:
    """The scripted start is word for word the form of the source."""
    hints = {"poll_after_seconds", "estimated_duration_seconds"}
    assert set(START) == {"status", "job_id", "message", "status_url"} | hints


def test_an_end_in_an_unknown_word_is_decided_by_a_person(api: JobApi) -> None:
    """``done`` says that it ended, its word does not say how: no success, no second start, and somebody hears of it."""
    tool = transcode()
    api.script(PLAIN_RUNS, {"status": "archived", "done": True, "result": RESULT})
    runtime = api.runtime(tool)
    session = runtime.open("film", finish=False)
    outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.reason, outcome.value, api.posts) == ("unknown", "job_unclear", None, 1)
    assert outcome.for_model()["done"] is False
    assert [(matter.kind, matter.reason) for matter in runtime.attention()] == [("unknown", "job_unclear")]
    runtime.decide(outcome.operation_id, succeeded=True, by="ann", evidence="the film is there", result=RESULT)
    assert session.call(tool, ARGS).value == RESULT


def test_a_policy_says_what_a_tools_own_word_means(api: JobApi) -> None:
    """Then it is an end like any other."""
    tool = transcode(words={"archived": "succeeded"})
    api.script({"status": "Archived", "done": True, "result": RESULT})
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT


@pytest.mark.parametrize("body", [{"state": "running"}, {"phase": "Pending"}, {"progress_percent": 45}])
def test_a_location_that_speaks_of_a_running_job_is_not_its_result(api: JobApi, body: object) -> None:
    """It is asked again, and what comes then is the result."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Location": "/v1/jobs/1"})
    api.script(body, {"film": 1})
    assert api.runtime(tool).open("film").call(tool, ARGS).value == {"film": 1}
    assert len(api.gets) == 2


def test_a_location_that_cannot_be_used_hides_no_good_body(api: JobApi) -> None:
    """A proxy that ends TLS names its own scheme: the body's URL is asked, and nothing goes to http."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, json=START, headers={"Location": "http://tools.example.com/v1/jobs/job_7f21c"})
    assert api.runtime(tool, auth=StaticToken(token=STATIC)).open("film").call(tool, ARGS).value == RESULT
    assert {(request.url.scheme, request.url.path) for request, _ in api.gets} == {("https", "/v1/jobs/job_7f21c")}


@pytest.mark.parametrize("where", ["status_url", "result_url"])
def test_a_url_that_is_too_long_raises_nothing(api: JobApi, where: str) -> None:
    """Not out of the call, and not at a restart."""
    tool, long = transcode(), "/v1/jobs/" + "x" * 70_000
    if where == "status_url":
        api.starts[0] = start(status_url=long)
    api.script({"status": "succeeded", "result_url": long})
    runtime = api.runtime(tool)
    session = runtime.open("film", finish=False)
    outcome = session.try_call(tool, ARGS)
    for seen in (outcome, session.check(outcome.step), runtime.open("film", finish=False).try_call(tool, ARGS)):
        assert (seen.reason, seen.result_state) in {("untracked", None), ("job_ended", "missing")}
    assert api.posts == 1
