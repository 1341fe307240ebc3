"""Whether an answer started a job, and what is needed to follow it.

In this order: the tool's own adapter; ``Operation-Location``; ``Azure-AsyncOperation``; an AIP-151 operation; 202 with
``Location``; a body with a status URL; provisioning state on the resource; a 202 that holds none of these.

Sources: RFC 9110 sections 15.3.3 and 10.2.2, Azure REST guidelines (long-running operations), AIP-151.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.retry_after import retry_after
from agent_runtime._core.urls import resolve, same_origin
from agent_runtime._model import BodyState, Handle
from agent_runtime.config.jobs import JobAnswer

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Request
    from agent_runtime.config.jobs import PollPolicy

HEADERS: Final = (("Operation-Location", "operation-location"), ("Azure-AsyncOperation", "azure-async"))
URL_MEMBERS: Final = ("status_url", "statusUrl", "status_uri")
ID_MEMBERS: Final = ("job_id", "jobId", "operation_id", "operationId", "task_id", "taskId", "id", "name")
ENDED_STATES: Final = frozenset({"succeeded", "failed", "canceled", "cancelled"})


def start_of(answer: Answer, request: Request, policy: PollPolicy, *, now: float) -> Handle | None:
    """Return the handle of the job that an answer started, or None if it is a plain result.

    Args:
        answer: a 2xx answer.
        request: what it answers.
        policy: the tool's; says what counts beside 202.
        now: by the database's clock (UTC epoch seconds): the stored start, from which the poll bound counts.
    """
    body = json_of(answer)
    hints = _hints(answer, body, now)
    if policy.adapter is not None:
        return _adapted(answer, request, policy, body, now)
    for header, protocol in HEADERS:
        url = answer.header(header)
        if url:
            return _handle(answer, request, url, protocol, body, hints, now)
    declared = answer.status == 202 or policy.on_200
    if declared and isinstance(body.get("done"), bool) and isinstance(body.get("name"), str) and "status" not in body:
        return _handle(answer, request, _aip_url(request, body["name"]), "aip", body, hints, now)
    location = answer.header("Location")
    if answer.status == 202 and location:
        return _handle(answer, request, location, "location", body, hints, now)
    url = _status_url(body, answer, request) if declared else None
    if url is not None:
        return _handle(answer, request, url, "body", body, hints, now)
    if answer.status in {200, 201} and request.method in {"PUT", "PATCH"} and _provisioning(body):
        return _handle(answer, request, request.url, "resource", body, hints, now)
    if answer.status == 202:
        return _handle(answer, request, None, "bare", body, hints, now)
    return None


def _adapted(answer: Answer, request: Request, policy: PollPolicy, body: dict[str, Any], now: float) -> Handle | None:
    assert policy.adapter is not None
    start = policy.adapter.start(job_answer(answer, request.url))
    if start is None:
        return None
    hints = (start.poll_after, start.estimated)
    handle = _handle(answer, request, start.url, "adapter", body, hints, now)
    return handle if start.job_id is None else dataclasses.replace(handle, job_id=start.job_id)


def _handle(  # noqa: PLR0917  what every form of a start has
    answer: Answer,
    request: Request,
    url: str | None,
    protocol: str,
    body: dict[str, Any],
    hints: tuple[float | None, float | None],
    now: float,
) -> Handle:
    absolute = None if url is None else resolve(answer.url or request.url, url)
    return Handle(
        url=absolute,
        job_id=_job_id(body),
        protocol=protocol,
        started_at=now,
        poll_after=hints[0],
        estimated=hints[1],
    )


def _job_id(body: dict[str, Any]) -> str | None:
    for name in ID_MEMBERS:
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _status_url(body: dict[str, Any], answer: Answer, request: Request) -> str | None:
    """Return a status URL of the body: one of the same origin that stands beside a job's id or state."""
    links = body.get("links")
    candidates = [body.get(name) for name in URL_MEMBERS]
    if isinstance(links, dict):
        candidates += [links.get("status"), links.get("self")]
    for url in candidates:
        if isinstance(url, dict):
            url = url.get("href")  # noqa: PLW2901  a link object stands for its address
        if not isinstance(url, str) or not url:
            continue
        absolute = resolve(answer.url or request.url, url)
        if absolute is not None and same_origin(absolute, request.url):
            return url
    return None


def _aip_url(request: Request, name: str) -> str:
    """AIP-151: the operation's name is its path below the version of the service."""
    path = "/" + name.lstrip("/")
    head = request.url.split("://", 1)[-1].partition("/")[2]
    version = head.split("/", 1)[0]
    known = version.startswith("v") and version[1:2].isdigit()
    return f"/{version}{path}" if known and not path.startswith(f"/{version}/") else path


def _provisioning(body: dict[str, Any]) -> bool:
    properties = body.get("properties")
    state = properties.get("provisioningState") if isinstance(properties, dict) else None
    return isinstance(state, str) and state.lower() not in ENDED_STATES


def _hints(answer: Answer, body: dict[str, Any], now: float) -> tuple[float | None, float | None]:
    """Return the seconds until the first poll and the seconds that the job is said to take."""
    return poll_hint(answer, body, now=now), number(body.get("estimated_duration_seconds"))


def poll_hint(answer: Answer, body: dict[str, Any], *, now: float) -> float | None:
    """Return the least wait that an answer asks for: Retry-After, or a member of the body (seconds, milliseconds)."""
    told = [retry_after(answer.headers, now=now, status=429), number(body.get("poll_after_seconds"))]
    milliseconds = number(body.get("pollInterval"))
    told.append(None if milliseconds is None else milliseconds / 1000)
    known = [value for value in told if value is not None]
    return max(known) if known else None


def number(value: object) -> float | None:
    """Return a JSON number that is a usable wait, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def json_of(answer: Answer) -> dict[str, Any]:
    """Return the members of a JSON body, or none where it is no JSON object."""
    if answer.body_state is not BodyState.WHOLE:
        return {}
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def job_answer(answer: Answer, url: str) -> JobAnswer:
    """Return an answer as an adapter sees it."""
    try:
        body = json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        body = None
    headers = {name.lower(): value for name, value in answer.headers}
    return JobAnswer(status=answer.status, headers=headers, body=body, url=answer.url or url)
