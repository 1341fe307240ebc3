"""Results that stand elsewhere, in part or nowhere; errors, fetched when wanted; jobs that are asked to stop."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import ConfigError, StaticToken, StepFailed, TokenCallable
from agent_runtime.errors import PartialResult, ResultInvalid
from tests.credentials import STATIC
from tests.jobs.job_api import (
    DONE,
    ORIGIN,
    PARTIAL,
    RESULT,
    RUNS,
    transcode,
)

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}


def test_A37_done_without_a_word_or_a_result_is_said_so(api: JobApi) -> None:
    """``{"done": true}``: it took effect, its result is missing; a typed error, and no endless polling."""
    tool = transcode()
    api.script({"done": True})
    with pytest.raises(ResultInvalid) as caught:
        api.runtime(tool).open("film").call(tool, ARGS)
    assert caught.value.outcome.result_state == "missing"
    assert len(api.gets) == 1


def test_A37_success_with_errors_is_not_plain_success(api: JobApi) -> None:
    """A success that lists errors is completed with errors, visible to the caller."""
    tool = transcode()
    api.script({"status": "SUCCEEDED", "errors": [{"row": 3}]})
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.error) == ("completed_with_errors", {"errors": [{"row": 3}]})


def test_a_job_done_in_part_tells_its_counts_and_where_the_errors_are(api: JobApi) -> None:
    """Counts stand in the outcome and in what a model reads; the errors do not."""
    tool = transcode()
    api.script(PARTIAL)
    session = api.runtime(tool).open("film")
    outcome = session.try_call(tool, ARGS)
    assert (outcome.status, outcome.counts["failed"]) == ("completed_with_errors", 140)
    said = outcome.for_model()
    assert said["counts"] == PARTIAL["summary"]
    assert "PART of it failed" in said["message"]
    assert "rows" not in said["message"]
    assert len(api.gets) == 1
    assert session.call(tool, ARGS, at="again", allow_partial=True).partial


def test_a_job_done_in_part_raises_unless_that_is_allowed(api: JobApi) -> None:
    """`PartialResult` holds the outcome."""
    tool = transcode()
    api.script(PARTIAL)
    with pytest.raises(PartialResult) as caught:
        api.runtime(tool).open("film").call(tool, ARGS)
    assert caught.value.outcome.counts["succeeded"] == 19860


def test_errors_are_fetched_when_asked_for_and_so_many(api: JobApi) -> None:
    """`session.errors` GETs the errors URL with the limit asked for, under the token and without a key."""
    tool = transcode()
    api.script(PARTIAL)
    api.pages["/v1/jobs/job_7f21c/errors"] = {"errors": [{"row": 14_000}]}
    session = api.runtime(tool, auth=StaticToken(token=STATIC)).open("film")
    step = session.try_call(tool, ARGS).step
    assert session.errors(step, limit=5) == {"errors": [{"row": 14_000}]}
    asked = api.gets[-1][0]
    assert str(asked.url) == f"{ORIGIN}/v1/jobs/job_7f21c/errors?limit=5"
    assert asked.headers["Authorization"] == f"Bearer {STATIC}"
    assert "Idempotency-Key" not in asked.headers


@pytest.mark.parametrize("url", [None, "https://evil.test/errors", "//evil.test/errors"])
def test_errors_of_another_origin_are_not_fetched(api: JobApi, url: str | None) -> None:
    """Nothing is sent; the error says so."""
    tool = transcode()
    api.script({name: value for name, value in (PARTIAL | {"errors_url": url}).items() if value is not None})
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS).step
    with pytest.raises(ConfigError, match="no errors to fetch"):
        session.errors(step)
    assert len(api.gets) == 1


def test_errors_that_cannot_be_fetched_change_nothing(api: JobApi) -> None:
    """A 503 is raised as `StepFailed`; the step stays as it is, and a text is returned as text."""
    tool = transcode()
    api.script(PARTIAL)
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS).step
    api.pages["/v1/jobs/job_7f21c/errors"] = 503
    with pytest.raises(StepFailed, match="HTTP 503"):
        session.errors(step)
    api.pages["/v1/jobs/job_7f21c/errors"] = httpx.Response(200, text="row 3: bad date")
    assert session.errors(step) == "row 3: bad date"
    with pytest.raises(ConfigError):
        session.errors("step_009")


def test_the_result_may_stand_elsewhere(api: JobApi) -> None:
    """``resourceLocation`` is fetched with the token before the step ends, and again if it can't be had yet."""
    tool = transcode()
    api.starts[0] = httpx.Response(202, headers={"Operation-Location": f"{ORIGIN}/ops/1"})
    api.script({"status": "Succeeded", "resourceLocation": "/films/1"})
    answers = iter([503, {"film": 1}])
    api.pages["/films/1"] = lambda request: next(answers)
    assert api.runtime(tool).open("film").call(tool, ARGS).value == {"film": 1}
    assert api.by_path == {"/v1/transcode": 1, "/ops/1": 2, "/films/1": 2}


@pytest.mark.parametrize("place", ["/films/1", "https://evil.test/films/1"])
def test_a_result_that_cannot_be_had_is_missing(api: JobApi, place: str) -> None:
    """The job succeeded, that is known; its result is gone or on another origin, where nothing is sent."""
    tool = transcode()
    api.script({"status": "succeeded", "result_url": place})
    api.pages["/films/1"] = 404
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.result_state, outcome.ok) == ("succeeded", "missing", False)
    assert "evil.test" not in {request.url.host for request, _ in api.seen}


@pytest.mark.parametrize("page", ["status", "result"])
def test_a_redirect_to_another_origin_is_known_at_once(api: JobApi, page: str) -> None:
    """Nothing goes there. Of the job's state nobody can learn more; of a result it is known that it cannot be had."""
    tool = transcode()
    away = httpx.Response(302, headers={"Location": "https://login.example.org/?next=job"})
    api.script(away if page == "status" else {"status": "succeeded", "result_url": "/films/1"})
    api.pages["/films/1"] = away
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    began = api.stage.clock.wall()
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert {request.url.host for request, _ in api.seen} == {"tools.example.com"}
    assert api.stage.clock.wall() - began < 60
    if page == "result":
        assert (outcome.status, outcome.result_state, runtime.attention()) == ("succeeded", "missing", [])
        return
    assert (outcome.status, outcome.state, outcome.reason) == ("pending", "accepted", "untracked")
    assert "redirects to https://login.example.org:443" in outcome.message
    assert [matter.kind for matter in runtime.attention()] == ["untracked"]


@pytest.mark.parametrize("page", ["status", "result", "unreadable status"])
def test_an_answer_beyond_the_body_limit_is_asked_for_once(api: JobApi, page: str) -> None:
    """A job that says it succeeded has; its result is unreadable. One whose state is behind the limit is a matter."""
    tool = transcode()
    long = {"frames": "x" * 4000}
    scripts = {
        "status": {"job_id": "job_7f21c", "status": "succeeded", "done": True, "result": long},
        "result": {"status": "succeeded", "result_url": "/films/1"},
        "unreadable status": {"result": long, "status": "succeeded"},
    }
    api.script(scripts[page])
    api.pages["/films/1"] = long
    runtime = api.runtime(tool, body_limit=2000)
    began = api.stage.clock.wall()
    outcome = runtime.open("film").try_call(tool, ARGS)
    assert (len(api.gets), api.posts) == (2 if page == "result" else 1, 1)
    assert api.stage.clock.wall() - began < 60
    if page == "unreadable status":
        assert (outcome.state, outcome.reason) == ("accepted", "untracked")
        assert "longer than the body limit" in outcome.message
        assert [matter.kind for matter in runtime.attention()] == ["untracked"]
        return
    assert (outcome.status, outcome.result_state, outcome.ok) == ("succeeded", "unreadable", False)
    assert len(outcome.raw) == 2000


def test_the_start_may_name_the_place_of_the_result(api: JobApi) -> None:
    """Operation-Location tells the state, the Location beside it the result."""
    tool = transcode()
    headers = {"Operation-Location": f"{ORIGIN}/ops/1", "Location": f"{ORIGIN}/films/9"}
    api.starts[0] = httpx.Response(202, headers=headers)
    api.script({"status": "Succeeded"})
    api.pages["/films/9"] = {"film": 9}
    assert api.runtime(tool).open("film").call(tool, ARGS).value == {"film": 9}


def test_cancel_asks_and_then_waits_for_the_end(api: JobApi) -> None:
    """A job that is asked to stop is polled until it says so; cancelled, with effect possible."""
    tool = transcode(cancel="DELETE")
    api.script(RUNS, {"status": "cancelled", "done": True})
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    api.pages["/v1/jobs/none"] = 200
    outcome = session.cancel(step)
    assert (outcome.status, outcome.effect) == ("failed", "possible")
    methods = [request.method for request, _ in api.seen]
    assert methods == ["POST", "DELETE", "GET"]


def test_cancel_by_post_goes_beside_the_status_url(api: JobApi) -> None:
    """``POST {status URL}:cancel``, without a key; a job that ends well all the same is a success."""
    tool = transcode(cancel="POST:cancel")
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    assert session.cancel(step).status == "succeeded"
    asked = api.seen[1][0]
    assert (asked.method, asked.url.path) == ("POST", "/v1/jobs/job_7f21c:cancel")
    assert "Idempotency-Key" not in asked.headers


def test_a_job_that_cannot_be_asked_to_stop_is_not(api: JobApi) -> None:
    """`ConfigError`, and nothing is sent; so for a step that has ended."""
    tool = transcode()
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    with pytest.raises(ConfigError, match="cannot be cancelled"):
        session.cancel(step)
    assert len(api.seen) == 1


def test_a_401_on_a_results_page_renews_the_token_once(api: JobApi) -> None:
    """As on the status URL: at once, and then the step waits for a person; no POST, and nothing is asked in a loop."""
    tool = transcode()
    api.script({"status": "succeeded", "result_url": "/films/1"})
    answers = iter([401, {"film": 1}])
    api.pages["/films/1"] = lambda request: next(answers)
    runtime = api.runtime(tool, auth=TokenCallable(function=lambda: f"call-canary-{len(api.seen)}"))
    assert runtime.open("film").call(tool, ARGS).value == {"film": 1}
    assert api.by_path == {"/v1/transcode": 1, "/v1/jobs/job_7f21c": 1, "/films/1": 2}
    sent = [request.headers["Authorization"] for request, _ in api.gets[-2:]]
    assert sent[0] != sent[1]
    api.pages["/films/1"] = 401
    outcome = runtime.open("second").try_call(tool, ARGS)
    assert (outcome.state, api.by_path["/films/1"]) == ("accepted", 4)
    assert "refused a fresh token" in outcome.message


@pytest.mark.parametrize("page", ["status", "result"])
def test_claims_that_a_look_is_answered_with_are_a_persons_matter(api: JobApi, page: str) -> None:
    """Pending, with the claims in what has to be brought: one request, no other token, and the next try goes on."""
    tool = transcode()
    packed = base64.b64encode(b'{"access_token":{"acrs":{"essential":true}}}').decode()
    header = f'Bearer error="insufficient_claims", claims="{packed}"'
    challenge = httpx.Response(401, headers={"WWW-Authenticate": header})
    end = {"status": "succeeded", "result_url": "/films/1"}
    api.script(challenge if page == "status" else end)
    api.pages["/films/1"] = challenge
    made: list[int] = []
    auth = TokenCallable(function=lambda: f"call-canary-{made.append(1) or len(made)}")
    session = api.runtime(tool, auth=auth).open("film")
    outcome = session.try_call(tool, ARGS)
    assert (outcome.state, outcome.status, len(api.gets)) == ("accepted", "pending", 1 if page == "status" else 2)
    assert "acrs" in outcome.error["claims"]
    assert "let the token function return another token" in outcome.message
    assert len(made) == len(api.seen)
    api.script(DONE)
    assert session.call(tool, ARGS).value == RESULT
