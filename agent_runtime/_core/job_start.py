"""Whether an answer started a job, and what is needed to follow it.

In this order: the tool's own adapter; ``Operation-Location``; ``Azure-AsyncOperation``; an AIP-151 operation; 202 with
``Location``; a body with a status URL; provisioning state on the resource; a 202 that holds none of these.

Sources: RFC 9110 sections 15.3.3 and 10.2.2, Azure REST guidelines (long-running operations), AIP-151.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.reach import may_ask
from agent_runtime._core.retry_after import retry_after
from agent_runtime._core.urls import resolve
from agent_runtime._model import BodyState, Handle
from agent_runtime.config.jobs import JobAnswer

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Request
    from agent_runtime.config.jobs import PollPolicy

HEADERS: Final = (("Operation-Location", "operation-location"), ("Azure-AsyncOperation", "azure-async"))
URL_MEMBERS: Final = ("status_url", "statusUrl", "status_uri")
ID_MEMBERS: Final = ("job_id", "jobId", "operation_id", "operationId", "task_id", "taskId", "id", "name")
ENDED_STATES: Final = frozenset({"succeeded", "failed", "canceled", "cancelled"})
LONGEST_HINT: Final = 30 * 86_400.0
"""Seconds; a tool that asks for a longer wait means something else."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What every form of a start has at hand."""

    answer: Answer
    request: Request
    policy: PollPolicy
    body: dict[str, Any]
    now: float

    @property
    def base(self) -> str:
        return self.answer.url or self.request.url

    def handle(self, url: str | None, protocol: str) -> Handle:
        """Return the handle of a job of this form; a URL that leads nowhere is none."""
        absolute = None if url is None else resolve(self.base, url)
        askable = absolute is None or may_ask(absolute, self.request.url, self.policy)
        hint = poll_hint(self.answer, self.body, now=self.now)
        return Handle(
            url=absolute,
            obstacle=None if askable else "elsewhere",
            job_id=_job_id(self.body),
            protocol=protocol,
            started_at=self.now,
            poll_after=hint,
            not_before=None if hint is None else self.now + hint,
            estimated=number(self.body.get("estimated_duration_seconds")),
            stream=self._stream(),
        )

    def _stream(self) -> str | None:
        told = self.body.get(self.policy.stream) if self.policy.stream is not None else None
        url = resolve(self.base, told) if isinstance(told, str) else None
        return url if url is not None and may_ask(url, self.request.url, self.policy) else None


def start_of(answer: Answer, request: Request, policy: PollPolicy, *, now: float) -> Handle | None:
    """Return the handle of the job that an answer started, or None if it is a plain result.

    Args:
        answer: a 2xx answer.
        request: what it answers.
        policy: the tool's; says what counts beside 202.
        now: by the database's clock (UTC epoch seconds): the stored start, from which the poll bound counts.
    """
    start = _Start(answer, request, policy, json_of(answer), now)
    if policy.adapter is not None:
        adapted, failed = _adapted(start)
        if adapted is not None:
            return adapted
        if failed:  # whether it is a job cannot be told, so nothing is said to be done
            return _known_form(start) or start.handle(None, "bare")
    return _known_form(start)


def _known_form(start: _Start) -> Handle | None:
    answer, body, request = start.answer, start.body, start.request
    for header, protocol in HEADERS:
        url = answer.header(header)
        if url:
            handle = start.handle(url, protocol)
            location = answer.header("Location") if request.method not in {"PUT", "PATCH"} else None
            return handle if location is None else dataclasses.replace(handle, result_url=location)
    declared = answer.status == 202 or start.policy.on_200
    if _is_aip(body, declared=declared, reads=request.method in {"GET", "HEAD"}):
        return start.handle(_aip_url(request, body["name"]), "aip")
    location = answer.header("Location")
    if answer.status == 202 and location:
        return start.handle(location, "location")
    url = _status_url(start) if declared else None
    if url is not None:
        return start.handle(url, "body")
    if answer.status in {200, 201} and request.method in {"PUT", "PATCH"} and _provisioning(body):
        return start.handle(request.url, "resource")
    return start.handle(None, "bare") if answer.status == 202 else None


def _adapted(start: _Start) -> tuple[Handle | None, bool]:
    """Return what the tool's own adapter makes of an answer, and whether it raised."""
    assert start.policy.adapter is not None
    try:
        told = start.policy.adapter.start(job_answer(start.answer, start.request.url))
    except Exception:  # noqa: BLE001  the answer stands whatever the user's code makes of it
        return None, True
    if told is None:
        return None, False
    handle = start.handle(told.url, "adapter")
    job_id = told.job_id if told.job_id is not None else handle.job_id
    hint = told.poll_after
    not_before = None if hint is None else start.now + hint
    made = dataclasses.replace(handle, job_id=job_id, poll_after=hint, not_before=not_before, estimated=told.estimated)
    return made, False


def _job_id(body: dict[str, Any]) -> str | None:
    for name in ID_MEMBERS:
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _status_url(start: _Start) -> str | None:
    """Return a status URL of the body: the first that may be asked.

    Where there is none, the one that the tool calls so: its job is there, and nothing is sent there.
    """
    links = start.body.get("links")
    named = [start.body.get(name) for name in URL_MEMBERS]
    linked = [links.get("status"), links.get("self")] if isinstance(links, dict) else []
    places = [url for told in (*named, *linked) if (url := _place(start, told)) is not None]
    askable = [url for url in places if may_ask(url, start.request.url, start.policy)]
    # A link under a declared 200 may point to anything; beside a 202 it can only be the job's.
    elsewhere = places if start.answer.status == 202 else [url for told in named if (url := _place(start, told))]
    return next(iter((*askable, *elsewhere)), None)


def _place(start: _Start, told: object) -> str | None:
    """Return the absolute URL that a member of the body names; a link object stands for its address."""
    url = told.get("href") if isinstance(told, dict) else told
    return resolve(start.base, url) if isinstance(url, str) and url else None


def _is_aip(body: dict[str, Any], *, declared: bool, reads: bool) -> bool:
    """An operation by AIP-151; under an undeclared 200 its name has to say so too: a to-do has a name and is done."""
    name = body.get("name")
    if not isinstance(body.get("done"), bool) or not isinstance(name, str) or "status" in body:
        return False
    return declared or (not reads and "operations/" in name)


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


def poll_hint(answer: Answer, body: dict[str, Any], *, now: float) -> float | None:
    """Return the least wait (seconds) that an answer asks for: Retry-After, or a member of the body.

    None = it asks for none; 0 asks for nothing either.
    """
    told = [retry_after(answer.headers, now=now, status=429), number(body.get("poll_after_seconds"))]
    for name in ("pollInterval", "pollIntervalMs"):
        milliseconds = number(body.get(name))
        told.append(None if milliseconds is None else milliseconds / 1000)
    known = [value for value in told if value]
    return min(max(known), LONGEST_HINT) if known else None


def number(value: object) -> float | None:
    """Return a JSON number that is a usable wait, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e15 and math.isfinite(value) else None


def json_of(answer: Answer) -> dict[str, Any]:
    """Return the members of a JSON body, or none where it is no JSON object."""
    value = parsed(answer)
    return value if isinstance(value, dict) else {}


NOT_JSON: Final = object()


def parsed(answer: Answer) -> Any:
    """Return a JSON body, or `NOT_JSON`."""
    if answer.body_state is not BodyState.WHOLE:
        return NOT_JSON
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return NOT_JSON


def job_answer(answer: Answer, url: str) -> JobAnswer:
    """Return an answer as an adapter sees it."""
    body = parsed(answer)
    headers = {name.lower(): value for name, value in answer.headers}
    return JobAnswer(
        status=answer.status, headers=headers, body=None if body is NOT_JSON else body, url=answer.url or url
    )
