"""Progress by server-sent events: pushed over a connection that the agent holds; when it breaks, polls go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import JobProgress, StaticToken
from tests.credentials import STATIC
from tests.jobs.job_api import DONE, FAILED, ORIGIN, RESULT, RUNS, start, transcode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}
PLACE = "/v1/jobs/job_7f21c/events"


class Told(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of a stream, and what ends it."""

    def __init__(self, *events: Any, breaks: bool = False) -> None:
        self.events, self.breaks = events, breaks

    def __iter__(self) -> Iterator[bytes]:
        for one in self.events:
            yield f"event: status\ndata: {json.dumps(one)}\n\n".encode()
        if self.breaks:
            raise httpx.ReadError("reset")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for one in self:
            yield one


def streaming(api: JobApi, *events: Any, kind: str = "text/event-stream", **told: Any) -> Any:
    """Return the tool; its start names the stream, which tells these events."""
    api.starts[0] = start(events_url=PLACE)
    stream = Told(*events, **told)
    api.pages[PLACE] = lambda request: httpx.Response(200, headers={"Content-Type": kind}, stream=stream)
    return transcode(stream="events_url")


def test_a_stream_tells_progress_and_the_end(api: JobApi) -> None:
    """One connection under the token and without a key; each event is heard, and nothing is polled."""
    tool = streaming(api, RUNS, RUNS | {"progress_percent": 90}, DONE)
    heard: list[JobProgress] = []
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    result = runtime.open("film").call(tool, ARGS, on_progress=heard.append)
    assert (result.value, dict(api.by_path)) == (RESULT, {"/v1/transcode": 1, PLACE: 1})
    assert [(one.status, one.percent) for one in heard] == [
        ("running", None),
        ("running", 45),
        ("running", 90),
        ("succeeded", 90),
    ]
    asked = api.gets[0][0]
    assert (asked.headers["Authorization"], asked.headers["Accept"]) == (f"Bearer {STATIC}", "text/event-stream")
    assert "Idempotency-Key" not in asked.headers


def test_a_failure_in_a_stream_is_one(api: JobApi) -> None:
    """With its error kept."""
    tool = streaming(api, RUNS, FAILED)
    outcome = api.runtime(tool).open("film").try_call(tool, ARGS)
    assert (outcome.status, outcome.error["error"]["code"]) == ("failed", "codec")


@pytest.mark.parametrize("how", ["breaks", "ends", "is a page", "is refused", "is away"])
def test_a_stream_that_tells_no_end_leaves_the_job_to_polls(api: JobApi, how: str) -> None:
    """Whatever is wrong with it says nothing about the job; it is read once, and the job is started once."""
    tool = streaming(api, RUNS, kind="text/html" if how == "is a page" else "text/event-stream", breaks=how == "breaks")
    if how == "is refused":
        api.pages[PLACE] = 403
    if how == "is away":
        api.pages[PLACE] = httpx.ConnectError("down")
    api.script(RUNS, DONE)
    assert api.runtime(tool).open("film").call(tool, ARGS).value == RESULT
    assert dict(api.by_path) == {"/v1/transcode": 1, PLACE: 1, "/v1/jobs/job_7f21c": 2}


def test_a_stream_of_another_origin_is_not_opened(api: JobApi) -> None:
    """The job is polled at its own URL."""
    api.starts[0] = start(events_url="https://evil.test/events")
    tool = transcode(stream="events_url")
    runtime = api.runtime(tool, auth=StaticToken(token=STATIC))
    assert runtime.open("film").call(tool, ARGS).value == RESULT
    assert {request.url.host for request, _ in api.seen} == {ORIGIN.split("//")[1]}
