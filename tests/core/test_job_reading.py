"""What the answer to a poll says about a job: by protocol, word by word."""

import pytest

from agent_runtime._core.job_reading import read_job, read_start
from agent_runtime._model import Answer
from agent_runtime.config import PollPolicy
from agent_runtime.config.jobs import JobAdapter, JobReading
from tests.core.job_world import ENDS, PARTLY, RUNS, STARTED, handle, started
from tests.core.world import START, json_answer

POLICY = PollPolicy()


def read(body, protocol="body", *, status=200, headers=()):
    answer = body if isinstance(body, Answer) else json_answer(status, body, headers)
    return read_job(answer, handle(protocol), POLICY, now=START)


def test_the_sources_bodies_are_read_as_they_are_meant():
    """A job that runs, one that ended well, and one that was done in part with its counts and where its errors are."""
    runs = read(RUNS)
    assert (runs.status, runs.progress, runs.poll_after, runs.message) == ("running", 45.0, 45.0, "Still at work.")
    ends = read(ENDS)
    assert (ends.status, ends.result, ends.has_result) == ("succeeded", ENDS["result"], True)
    partly = read(PARTLY)
    assert (partly.status, partly.counts) == ("completed_with_errors", PARTLY["summary"])
    assert (partly.errors_url, partly.message) == (PARTLY["errors_url"], PARTLY["message"])
    assert partly.result == {"summary": PARTLY["summary"]}, "the counts are all that it has to show"


STATUSES = {
    # protocol, HTTP status, body, what it says
    "azure-any-case": ("operation-location", 200, {"status": "SUCCEEDED"}, "succeeded"),
    "azure-one-l": ("azure-async", 200, {"status": "Canceled"}, "cancelled"),
    "azure-failed": ("azure-async", 200, {"status": "Failed"}, "failed"),
    "L5-azure-unknown-word": ("operation-location", 200, {"status": "Paused"}, "running"),
    "azure-no-word": ("operation-location", 200, {"result": 1}, "running"),
    "aip-runs": ("aip", 200, {"done": False}, "running"),
    "aip-says-nothing": ("aip", 200, {}, "running"),
    "L8-aip-error": ("aip", 200, {"done": True, "error": {"code": 7}}, "failed"),
    "L8-aip-response": ("aip", 200, {"done": True, "response": {"x": 1}}, "succeeded"),
    "L8-aip-null-error": ("aip", 200, {"done": True, "error": None}, "succeeded"),
    "resource-runs": ("resource", 200, {"properties": {"provisioningState": "Updating"}}, "running"),
    "resource-is-there": ("resource", 200, {"properties": {"provisioningState": "Succeeded"}}, "succeeded"),
    "resource-failed": ("resource", 200, {"properties": {"provisioningState": "Failed"}}, "failed"),
    "resource-without-a-state": ("resource", 200, {"id": "x"}, "succeeded"),
    "resource-somebody-elses-page": ("resource", 200, None, "running"),
    "location-202": ("location", 202, {}, "running"),
    "location-202-tells": ("location", 202, {"status": "failed"}, "failed"),
    "location-result": ("location", 200, {"id": "x"}, "succeeded"),
    "location-list": ("location", 200, [1, 2], "succeeded"),
    "location-empty-result": ("location", 204, None, "succeeded"),
    "location-202-not-done": ("location", 202, {"done": False, "status": "success", "result": None}, "running"),
    "location-status": ("location", 200, {"status": "queued"}, "running"),
    "location-done-false": ("location", 200, {"done": False}, "running"),
    "body-done": ("body", 200, {"done": True}, "succeeded"),
    "body-done-with-error": ("body", 200, {"done": True, "error": "x"}, "failed"),
    "body-done-unknown-word": ("body", 200, {"done": True, "status": "archived"}, "succeeded"),
    "body-done-unknown-word-error": ("body", 200, {"done": True, "status": "x", "error": "y"}, "failed"),
    "body-done-known-word": ("body", 200, {"done": True, "status": "failed"}, "failed"),
    "body-not-done-whatever-it-says": ("body", 200, {"done": False, "status": "succeeded"}, "running"),
    "body-null-status": ("body", 200, {"status": None}, "running"),
    "body-spaces-and-hyphens": ("body", 200, {"status": " Completed-With errors "}, "completed_with_errors"),
    "body-says-nothing": ("body", 200, {"id": "x"}, "running"),
    "body-no-json": ("body", 200, None, "running"),
    "L10-result-is-error": ("body", 200, {"status": "completed", "result": {"isError": True}}, "failed"),
    "L10-is-error": ("body", 200, {"status": "completed", "isError": True}, "failed"),
    "A37-succeeded-with-errors": ("body", 200, {"status": "SUCCEEDED", "errors": [{}]}, "completed_with_errors"),
    "A37-succeeded-with-error": ("body", 200, {"status": "succeeded", "error": "x"}, "completed_with_errors"),
    "no-errors-at-all": ("body", 200, {"status": "succeeded", "errors": []}, "succeeded"),
}


@pytest.mark.parametrize(("protocol", "status", "body", "says"), STATUSES.values(), ids=STATUSES)
def test_what_a_poll_says(protocol, status, body, says):
    """Words of any case; a word or a body that is not known means that it runs."""
    assert read(body, protocol, status=status).status == says


def test_a_location_that_shows_the_result_is_the_result():
    """Its members are the tool's own: an ``error`` or a ``message`` among them says nothing about the job."""
    found = read({"id": 1, "error": "none", "errors": [1]}, "location")
    assert found == JobReading(status="succeeded", is_result=True, nothing_said=True)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("text/html", b"<h1>Sign in</h1>", "running"),
        ("text/html", b'{"id": 1}', "succeeded"),
        ("text/csv", b"a,b", "succeeded"),
    ],
)
def test_a_web_page_is_no_result(kind, body, says):
    """A proxy's or a sign-in's page stands there in passing; JSON is JSON whatever its type."""
    answer = Answer(status=200, headers=(("Content-Type", kind),), body=body)
    assert read(answer, "location").status == says
    assert read(Answer(status=200, body=body), "location").status == "succeeded"


@pytest.mark.parametrize(
    ("body", "result", "place", "error", "nothing"),
    [
        ({"status": "done", "output": 7}, (7, True), None, None, False),
        ({"status": "done", "result": None}, (None, True), None, None, False),
        ({"status": "done", "resourceLocation": "/r"}, (None, False), "/r", None, False),
        ({"status": "done", "resultUrl": ""}, (None, False), None, None, False),
        ({"status": "failed", "error": {"code": "full"}}, (None, False), None, {"code": "full"}, False),
        ({"status": "failed", "errors": ["a"]}, (None, False), None, ["a"], False),
        ({"done": True}, (None, False), None, None, True),
        ({"done": True, "status": 7}, (None, False), None, None, True),
        ({"status": "failed", "summary": {"failed": 3}}, ({"summary": {"failed": 3}}, True), None, None, False),
        ({"done": True, "response": 1}, (1, True), None, None, False),
    ],
)
def test_what_an_end_holds(body, result, place, error, nothing):
    """Its result, or where that stands, or what went wrong; "ended without a word and a result" is told apart."""
    found = read(body)
    assert (found.result, found.has_result) == result
    assert (found.result_url, found.error, found.nothing_said) == (place, error, nothing)


@pytest.mark.parametrize(
    ("body", "percent"),
    [
        ({"progress_percent": 45}, 45.0),
        ({"percentComplete": 12.5}, 12.5),
        ({"progress_percent": 250}, 100.0),
        ({"progress_percent": "half"}, None),
        ({}, None),
    ],
)
def test_progress_is_per_cent(body, percent):
    """Never more than a hundred; what is no number is not told."""
    assert read(body | {"status": "running"}).progress == percent


STARTS = {
    "of-the-request": ("body", {"status": "success", "status_url": "/s"}, "running"),
    "bare-of-the-request": ("bare", {"status": "ok", "message": "queued"}, "running"),
    "with-done": ("body", {"status": "success", "done": True}, "succeeded"),
    "with-a-result": ("bare", {"status": "success", "result": 1}, "succeeded"),
    "a-failure-is-one": ("body", {"status": "failed"}, "failed"),
    "L4-azure-failed": ("operation-location", {"status": "Failed", "error": {"code": "x"}}, "failed"),
    "azure-succeeded": ("operation-location", {"status": "Succeeded"}, "succeeded"),
    "not-done-whatever-it-says": ("body", {"status": "success", "done": False, "result": None}, "running"),
    "the-sources-start": ("body", STARTED, "running"),
}


@pytest.mark.parametrize(("protocol", "body", "says"), STARTS.values(), ids=STARTS)
def test_what_a_start_says_of_its_end(protocol, body, says):
    """A 202's "success" may speak of the request: it counts with ``done`` or a result, a failure always does."""
    assert read_start(started(body), handle(protocol), POLICY, now=START).status == says


def test_a_start_that_is_no_end_keeps_its_words():
    """Of the success that it seemed to tell nothing is left."""
    body = {"status": "success", "message": "queued", "progress_percent": 1, "errors_url": "/e"}
    found = read_start(started(body), handle("body"), POLICY, now=START)
    assert found == JobReading(message="queued", progress=1.0)


def test_an_adapters_job_is_read_by_it():
    """It alone knows the words; a job that was found by the usual forms is read by the usual words."""
    seen = []
    ended = JobReading(status="cancelled")
    policy = PollPolicy(adapter=JobAdapter(start=lambda _: None, read=lambda answer: seen.append(answer) or ended))
    assert read_job(json_answer(200, {"st": 4}), handle("adapter"), policy, now=START) is ended
    assert (seen[0].body, seen[0].url) == ({"st": 4}, handle().url)
    assert read_job(json_answer(200, ENDS), handle("body"), policy, now=START).status == "succeeded"
