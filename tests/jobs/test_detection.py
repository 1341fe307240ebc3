"""Which answers start a job, and what is read of the answers to polls: the table, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_runtime import PollPolicy
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_reading import read_job, read_start
from agent_runtime._core.job_start import may_ask, poll_hint, start_of
from agent_runtime._model import Answer, BodyState, Handle, Request
from agent_runtime.config import JobAdapter, JobReading, JobStart
from agent_runtime.errors import ConfigError

URL = "https://api.example.com/v1/films"
NOW = 1_000_000.0
POST = Request(method="POST", url=URL)
PUT = Request(method="PUT", url=URL)


def answer(status: int = 202, value: Any = None, **headers: str) -> Answer:
    named = tuple((name.replace("_", "-"), text) for name, text in headers.items())
    return Answer(status=status, headers=named, body=b"" if value is None else json.dumps(value).encode())


def detect(one: Answer, request: Request = POST, **policy: Any) -> Handle | None:
    return start_of(one, request, PollPolicy(**policy), now=NOW)


def read(value: Any, protocol: str = "body", status: int = 200, **headers: str) -> JobReading:
    handle = Handle(url=f"{URL}/1", job_id="1", protocol=protocol)
    return read_job(answer(status, value, **headers), handle, PollPolicy(), now=NOW)


AIP = {"name": "operations/abc", "done": False}
ROWS: list[Any] = [
    ("operation-location", answer(202, None, Operation_Location="/ops/1"), POST, "https://api.example.com/ops/1"),
    ("operation-location", answer(201, None, Operation_Location="/ops/1"), PUT, "https://api.example.com/ops/1"),
    ("azure-async", answer(201, None, Azure_AsyncOperation="/ops/1"), PUT, "https://api.example.com/ops/1"),
    ("aip", answer(200, AIP), POST, "https://api.example.com/v1/operations/abc"),
    ("aip", answer(202, {"name": "v1/x", "done": True}), POST, "https://api.example.com/v1/x"),
    ("location", answer(202, None, Location="/jobs/1"), POST, "https://api.example.com/jobs/1"),
    ("body", answer(202, {"job_id": "1", "status_url": "/jobs/1"}), POST, "https://api.example.com/jobs/1"),
    ("body", answer(202, {"links": {"self": {"href": "/jobs/1"}}}), POST, "https://api.example.com/jobs/1"),
    ("body", answer(202, {"links": {"status": "/jobs/1"}}), POST, "https://api.example.com/jobs/1"),
    ("resource", answer(201, {"properties": {"provisioningState": "Creating"}}), PUT, URL),
    ("bare", answer(202), POST, None),
    ("bare", answer(202, {"status_url": "//evil.test/j", "links": {"self": 7}}), POST, None),
]


@pytest.mark.parametrize(("protocol", "one", "request_", "url"), ROWS)
def test_each_form_of_a_start_is_recognised(protocol: str, one: Answer, request_: Request, url: str | None) -> None:
    """The row of the table that fits gives protocol and URL; the stored start is now."""
    handle = detect(one, request_)
    assert handle is not None
    assert (handle.protocol, handle.url, handle.started_at) == (protocol, url, NOW)


@pytest.mark.parametrize(
    ("one", "request_"),
    [
        (answer(200, {"job_id": "1", "status_url": "/jobs/1"}), POST),
        (answer(200, {"name": "Buy milk", "done": False}), POST),
        (answer(200, AIP), Request(method="GET", url=URL)),
        (answer(201, {"properties": {"provisioningState": "Succeeded"}}), PUT),
        (answer(201, {"properties": {"provisioningState": "Creating"}}), POST),
        (answer(200, ["a", "list"]), POST),
        (answer(201, None, Location="/films/1"), POST),
    ],
)
def test_a_plain_result_is_no_job(one: Answer, request_: Request) -> None:
    """What looks like a job under 200 or 201 is a result, unless the tool declares otherwise."""
    assert detect(one, request_) is None


def test_a_body_counts_under_200_where_the_tool_says_so() -> None:
    """``on_200`` takes the body's word."""
    handle = detect(answer(200, {"job_id": 7, "status_url": "/jobs/7"}), on_200=True)
    assert handle is not None
    assert (handle.protocol, handle.job_id) == ("body", "7")


def test_a_status_url_of_an_allowed_origin_counts() -> None:
    """And one that is not allowed does not."""
    body = {"job_id": "1", "status_url": "https://status.example.com/1"}
    assert detect(answer(202, body), origins=("https://status.example.com",)).protocol == "body"
    assert detect(answer(202, body)).protocol == "bare"
    assert not may_ask("ftp://x/", URL, PollPolicy())


def test_hints_of_a_start_are_kept() -> None:
    """Seconds until the first poll, the estimate, and the stream where it is declared and may be asked."""
    body = {
        "job_id": True,
        "name": "n",
        "status_url": "/j",
        "poll_after_seconds": 30,
        "estimated_duration_seconds": 240,
    }
    handle = detect(answer(202, body | {"events": "/j/events"}), stream="events")
    assert handle == handle_of_text(handle)
    assert (handle.poll_after, handle.estimated, handle.job_id) == (30, 240, "n")
    assert handle.stream == "https://api.example.com/j/events"
    assert detect(answer(202, body | {"events": "https://evil.test/e"}), stream="events").stream is None
    assert detect(answer(202, body), stream="events").stream is None


def handle_of_text(handle: Handle) -> Handle:
    """Return a handle as it is read back."""

    class Row:
        pass

    row = Row()
    row.handle = written(handle)
    return handle_of(row)


def test_the_location_beside_an_operation_is_the_place_of_the_result() -> None:
    """For POST; of a PUT the resource itself is."""
    both = answer(202, None, Operation_Location="/ops/1", Location="/films/1")
    assert detect(both).result_url == "/films/1"
    assert detect(both, PUT).result_url is None


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry_After": "7"}, {}, 7),
        ({}, {"poll_after_seconds": 30}, 30),
        ({}, {"pollInterval": 500}, 0.5),
        ({}, {"pollIntervalMs": 2500}, 2.5),
        ({"Retry_After": "7"}, {"poll_after_seconds": 30}, 30),
        ({}, {"poll_after_seconds": 0}, None),
        ({}, {"poll_after_seconds": "30"}, None),
        ({}, {"poll_after_seconds": True}, None),
        ({}, {"poll_after_seconds": -1}, None),
        ({}, {"poll_after_seconds": 1e300}, None),
        ({}, {"poll_after_seconds": 1e9}, 30 * 86_400),
        ({}, {}, None),
    ],
)
def test_the_longest_hint_counts(headers: dict[str, str], body: dict[str, Any], seconds: float | None) -> None:
    """Header or member, in seconds or milliseconds; what is no usable number is none."""
    assert poll_hint(answer(200, body, **headers), body, now=NOW) == seconds


def test_an_adapter_goes_before_all_forms() -> None:
    """What it returns counts; None leaves the answer to the usual forms; one that raises says nothing is done."""

    def start(one: Any) -> JobStart | None:
        if one.body == {"x": 1}:
            return JobStart(url="/a/1", job_id="a1", poll_after=2, estimated=9)
        if one.body == {"x": 2}:
            raise KeyError("x")
        return None

    adapter = JobAdapter(start=start, read=lambda one: JobReading())
    handle = detect(answer(200, {"x": 1}), adapter=adapter)
    assert (handle.protocol, handle.url, handle.job_id) == ("adapter", "https://api.example.com/a/1", "a1")
    assert (handle.poll_after, handle.estimated) == (2, 9)
    assert detect(answer(200, {"x": 3}), adapter=adapter) is None
    assert detect(answer(202, None, Location="/j"), adapter=adapter).protocol == "location"
    assert detect(answer(200, {"x": 2}), adapter=adapter).protocol == "bare"


READINGS: list[Any] = [
    ("body", {"status": "processing", "done": False}, "running"),
    ("body", {"status": "Succeeded", "result": 1}, "succeeded"),
    ("body", {"status": "completed-with-errors"}, "completed_with_errors"),
    ("body", {"status": "failed"}, "failed"),
    ("body", {"status": "Canceled"}, "cancelled"),
    ("body", {"status": "odd", "done": True}, "succeeded"),
    ("body", {"status": "odd", "done": True, "error": {}}, "failed"),
    ("body", {"done": True, "error": {"code": 1}}, "failed"),
    ("body", {"status": None}, "running"),
    ("body", {}, "running"),
    ("body", {"status": "succeeded", "error": {"code": 1}}, "completed_with_errors"),
    ("operation-location", {"status": "Paused"}, "running"),
    ("operation-location", {"status": "SUCCEEDED"}, "succeeded"),
    ("azure-async", {}, "running"),
    ("aip", {"done": False}, "running"),
    ("aip", {"done": True, "response": {"x": 1}}, "succeeded"),
    ("aip", {"done": True, "error": {"code": 5}}, "failed"),
    ("resource", {"properties": {"provisioningState": "Updating"}}, "running"),
    ("resource", {"properties": {"provisioningState": "Failed"}}, "failed"),
    ("resource", {"id": 1}, "succeeded"),
    ("resource", None, "running"),
    ("location", {"film": 1}, "succeeded"),
    ("location", {"status": "queued"}, "running"),
]


@pytest.mark.parametrize(("protocol", "body", "status"), READINGS)
def test_L5_unknown_words_mean_running(protocol: str, body: Any, status: str) -> None:
    """Each protocol reads its own member; every word that is not known, such as Paused, keeps the job running."""
    assert read(body, protocol).status == status


def test_a_202_of_a_location_runs() -> None:
    """Whatever its body says, unless that is an end."""
    assert read({"x": 1}, "location", 202).status == "running"
    assert read({"status": "failed"}, "location", 202).status == "failed"


def test_L8_an_operation_ends_by_error_or_response() -> None:
    """AIP-151: the code is kept; the response is the result."""
    assert read({"done": True, "error": {"code": 5}}, "aip").error == {"code": 5}
    assert read({"done": True, "response": {"x": 1}}, "aip").result == {"x": 1}
    assert read({"done": True}, "aip").nothing_said


@pytest.mark.parametrize(
    "body",
    [
        {"status": "completed", "isError": True},
        {"status": "completed", "result": {"isError": True}},
        {"status": "failed"},
    ],
)
def test_L10_both_forms_of_a_tool_error_are_failures(body: dict[str, Any]) -> None:
    """MCP's completed with isError, and its failed."""
    assert read(body).status == "failed"


def test_a_location_gives_the_result_itself() -> None:
    """JSON of any form, or bytes; a web page is none."""
    assert read([1, 2], "location").is_result
    handle = Handle(url=URL, job_id=None, protocol="location")
    text = Answer(status=200, body=b"a,b\n1,2\n", headers=(("Content-Type", "text/csv"),))
    assert read_job(text, handle, PollPolicy(), now=NOW).is_result
    page = Answer(status=200, body=b"<html>sign in</html>", headers=(("Content-Type", "text/html"),))
    assert read_job(page, handle, PollPolicy(), now=NOW).status == "running"
    cut = Answer(status=200, body=b"{", body_state=BodyState.CUT)
    assert read_job(cut, handle, PollPolicy(), now=NOW).is_result


def test_progress_and_words_are_read() -> None:
    """Per cent in either spelling, never above 100; the tool's message; where the errors are."""
    assert read({"status": "x", "percentComplete": 12}).progress == 12
    assert read({"status": "x", "progress_percent": 250, "message": "m"}) == JobReading(progress=100, message="m")
    assert read({"status": "x", "progress_percent": "many", "message": 7}).message is None
    ended = read({"status": "failed", "summary": {"failed": 3}, "errors_url": "/e", "result_url": ""})
    assert (ended.counts, ended.errors_url, ended.result_url) == ({"failed": 3}, "/e", None)


def test_a_start_says_success_only_with_a_result_or_done() -> None:
    """202 with ``success`` alone may speak of the request."""
    handle = Handle(url=URL, job_id=None, protocol="body")

    def first(value: Any) -> str:
        return read_start(answer(202, value), handle, PollPolicy(), now=NOW).status

    assert first({"status": "success"}) == "running"
    assert first({"status": "success", "done": True}) == "succeeded"
    assert first({"status": "success", "result": 1}) == "succeeded"
    assert first({"status": "failed"}) == "failed"


@pytest.mark.parametrize(
    "policy",
    [
        {"cancel": "PATCH"},
        {"failed_effect": "some"},
        {"origins": ("status.example.com",)},
        {"webhook": ""},
        {"factor": 0.5},
        {"bound": 0},
    ],
)
def test_a_policy_that_cannot_work_is_refused(policy: dict[str, Any]) -> None:
    """When it is built."""
    with pytest.raises(ConfigError):
        PollPolicy(**policy)


def test_a_handle_without_a_row_is_bare() -> None:
    """An accepted row that holds none can be told of all the same; unknown members are passed over."""

    class Row:
        handle = None
        updated_at = 5.0

    assert handle_of(Row()) == Handle(url=None, job_id=None, protocol="bare", started_at=5.0)
    Row.handle = b'{"job_id":"j","of a later release":1}'
    assert handle_of(Row()).job_id == "j"
