"""The tool's plain headers go with every request about its jobs, and to its own origin alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime import Idempotency, PollPolicy, Tool, ToolContract
from tests.jobs.job_api import DONE, ORIGIN, PARTIAL, PLAIN_RUNS, start

if TYPE_CHECKING:
    from tests.jobs.job_api import JobApi

ARGS = {"source_url": "s3://in/7f21c.mov"}


def tool_with(**policy: Any) -> Any:
    contract = ToolContract(idempotency=Idempotency(), polling=PollPolicy(**policy))
    return Tool("transcode", url=f"{ORIGIN}/v1/transcode", headers={"X-Tenant": "acme"}, contract=contract)


def test_polls_results_and_errors_carry_them(api: JobApi) -> None:
    """The job's own URL, the page of its result, and that of its errors."""
    tool = tool_with()
    api.starts.append(start())
    api.script({"status": "succeeded", "result_url": "/v1/results/1"}, PARTIAL)
    api.pages = {"/v1/results/1": {"film": 1}, "/v1/jobs/job_7f21c/errors": []}
    session = api.runtime(tool).open("film")
    assert session.call(tool, ARGS).value == {"film": 1}
    second = session.try_call(tool, ARGS | {"n": 2})
    assert session.errors(second.step) == []
    assert len(api.gets) == 4
    assert {request.headers.get("X-Tenant") for request, _ in api.gets} == {"acme"}


def test_a_request_to_stop_carries_them(api: JobApi) -> None:
    """So does the look after it."""
    tool = tool_with(cancel="DELETE")
    session = api.runtime(tool).open("film")
    step = session.try_call(tool, ARGS, detach=True).step
    session.cancel(step)
    asked = [request for request, _ in api.seen if request.method == "DELETE"]
    assert [request.headers.get("X-Tenant") for request in asked] == ["acme"]


def test_a_stream_carries_them(api: JobApi) -> None:
    """Where it is read."""
    tool = tool_with(stream="events_url")
    api.starts[0] = start(events_url="/v1/jobs/job_7f21c/events")
    api.pages["/v1/jobs/job_7f21c/events"] = httpx.Response(204)
    api.runtime(tool).open("film").call(tool, ARGS)
    asked = [request for request, _ in api.gets if request.url.path.endswith("/events")]
    assert [request.headers.get("X-Tenant") for request in asked] == ["acme"]


def test_another_origin_that_may_be_asked_does_not_get_them(api: JobApi) -> None:
    """Neither a status URL there, nor one that redirects there."""
    other = "https://status.example.com"
    tool = tool_with(origins=(other,))
    api.starts[0] = start(status_url=f"{other}/j/1")
    api.starts.append(start())
    api.script(PLAIN_RUNS, DONE)
    api.pages["/v1/jobs/job_7f21c"] = httpx.Response(307, headers={"Location": f"{other}/j/2"})
    session = api.runtime(tool).open("film")
    session.call(tool, ARGS)
    session.call(tool, ARGS | {"n": 2})
    there = [request for request, _ in api.gets if request.url.host == "status.example.com"]
    assert len(there) == 3
    assert not any("X-Tenant" in request.headers for request in there)
