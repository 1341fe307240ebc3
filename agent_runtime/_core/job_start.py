"""Whether an answer started a job, and what is needed to follow it.

In this order: the tool's own adapter; ``Operation-Location``; ``Azure-AsyncOperation``; an AIP-151 operation; 202 with
``Location``; a body with a status URL; provisioning state on the resource; a 202 that holds none of these. A form whose
URL may not be asked yields to the next one whose URL may.

Sources: RFC 9110 sections 15.3.3 and 10.2.2, Azure REST guidelines (long-running operations), AIP-151.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from agent_runtime._core.reach import may_ask
from agent_runtime._core.retry_after import retry_after
from agent_runtime._core.urls import resolve
from agent_runtime._model import BodyState, Handle
from agent_runtime.config._checks import shown
from agent_runtime.config.jobs import JobAnswer, JobStart
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_runtime._model import Answer, Request
    from agent_runtime.config.jobs import PollPolicy

HEADERS: Final = (("Operation-Location", "operation-location"), ("Azure-AsyncOperation", "azure-async"))
URL_MEMBERS: Final = ("status_url", "statusUrl", "status_uri")
JOB_MEMBERS: Final = ("job_id", "jobId", "operation_id", "operationId", "task_id", "taskId")
"""Members that name a job and nothing else."""
ID_MEMBERS: Final = (*JOB_MEMBERS, "id", "name")
"""An ``id`` or ``name`` may be the answer's own, where no other member names a job."""
ENDED_STATES: Final = frozenset({"succeeded", "failed", "canceled", "cancelled"})
LONGEST_HINT: Final = 30 * 86_400.0
"""Seconds; a tool that asks for a longer wait means something else."""
LONGEST_TOLD: Final = 366 * 86_400.0
"""Seconds beyond which it is not believed how long a job is said to take."""
NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
NO_URL: Final = "\\"
"""What `resolve` takes for no URL."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A form in which an answer names a place to ask: where, as it stands there, and how that is read."""

    protocol: str
    told: str
    result_url: str | None = None


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

    def may_ask(self, url: str | None) -> bool:
        return url is not None and may_ask(url, self.request.url, self.policy)

    def handle(self, url: str | None, protocol: str, **more: Any) -> Handle:
        """Return the handle of a job of this form. ``url``: absolute, or None if there is nowhere to ask."""
        hint = poll_hint(self.answer, self.body, now=self.now)
        member, job_id = _job_id(self.body)
        return Handle(
            url=url,
            job_id=job_id,
            id_from=member,
            protocol=protocol,
            started_at=self.now,
            poll_after=hint,
            not_before=None if hint is None else self.now + hint,
            estimated=_capped(number(self.body.get("estimated_duration_seconds")), LONGEST_TOLD),
            stream=self._stream(),
            **{"obstacle": None if url is None or self.may_ask(url) else "elsewhere", **more},
        )

    def _stream(self) -> str | None:
        told = self.body.get(self.policy.stream) if self.policy.stream is not None else None
        url = resolve(self.base, told) if isinstance(told, str) else None
        return url if self.may_ask(url) else None


def start_of(answer: Answer, request: Request, policy: PollPolicy, *, now: float) -> Handle | None:
    """Return the handle of the job that an answer started, or None if it is a plain result.

    Args:
        answer: a 2xx answer.
        request: what it answers.
        policy: the tool's; says what counts beside 202.
        now: by the database's clock (UTC epoch seconds): the stored start, from which the poll bound counts.
    """
    start = _Start(answer, request, policy, json_of(answer), now)
    if policy.adapter is None:
        return _known_form(start)
    try:
        told = _adapted(start)
    except Exception as error:  # noqa: BLE001  the answer stands whatever the user's code makes of it
        # Whether it is a job cannot be told, so nothing is said to be done.
        known = _known_form(start)
        if known is not None and known.url is not None:
            return known
        return start.handle(None, "bare", obstacle="adapter", elsewhere=fault_of(error))
    return told or _known_form(start)


def _known_form(start: _Start) -> Handle | None:
    """Return the handle of the first form whose URL may be asked; else the job is where the first one says."""
    forms = list(_forms(start))
    places = [(form, resolve(start.base, form.told)) for form in forms]
    for form, url in places:
        if url is not None and start.may_ask(url):
            return start.handle(url, form.protocol, result_url=form.result_url)
    for form, url in places:
        if url is not None:
            return start.handle(url, form.protocol, result_url=form.result_url)
    if not forms and start.answer.status != 202:
        return None
    return start.handle(None, "bare", obstacle="unusable" if forms else None)


def _forms(start: _Start) -> Iterator[_Form]:
    """Tell the forms of a start that an answer has, the surest first."""
    answer, body, request = start.answer, start.body, start.request
    location, puts = answer.header("Location"), request.method in {"PUT", "PATCH"}
    headers = [(url, protocol) for header, protocol in HEADERS if (url := answer.header(header))]
    for url, protocol in headers:
        yield _Form(protocol, url, None if puts else location)
    declared = answer.status == 202 or start.policy.on_200 or bool(headers)
    if _is_aip(body, declared=declared, reads=request.method in {"GET", "HEAD"}):
        yield _Form("aip", _aip_url(request, body["name"]))
    if answer.status == 202 and location:
        yield _Form("location", location)
    if declared:
        yield from (_Form("body", url) for url in _status_urls(start))
    if answer.status in {200, 201} and puts and _provisioning(body):
        yield _Form("resource", request.url)


def _adapted(start: _Start) -> Handle | None:
    """Return what the tool's own adapter makes of an answer; None = it leaves it to the usual forms.

    Raises:
        Exception: whatever the adapter raises; `ConfigError`: it returned what cannot be used.
    """
    assert start.policy.adapter is not None
    told: object = start.policy.adapter.start(job_answer(start.answer, start.request.url))
    if told is None:
        return None
    if not isinstance(told, JobStart):
        msg = f"JobAdapter.start has to return a JobStart or None, not {shown(told)}"
        raise ConfigError(msg)
    url = resolve(start.base, told.url) if told.url is not None else None
    if url is None and told.url is not None:
        raise ConfigError("JobAdapter.start returned a url that cannot be used")
    handle = start.handle(url, "adapter")
    if told.job_id is not None:
        handle = dataclasses.replace(handle, job_id=told.job_id, id_from=None)
    hint = _capped(told.poll_after, LONGEST_HINT) or None
    not_before = None if hint is None else start.now + hint
    estimated = _capped(told.estimated, LONGEST_TOLD)
    return dataclasses.replace(handle, poll_after=hint, not_before=not_before, estimated=estimated)


def fault_of(error: Exception) -> str:
    """Return in one line what was wrong with a tool's adapter: our own words, or the name of what it raised."""
    return str(error) if isinstance(error, ConfigError) else f"it raised {type(error).__name__}"


def _capped(value: float | None, most: float) -> float | None:
    return None if value is None else min(value, most)


def _job_id(body: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the member that holds a job's id, and the id as text."""
    for name in ID_MEMBERS:
        told = id_text(body.get(name))
        if told is not None:
            return name, told
    return None, None


def id_text(value: object) -> str | None:
    """Return an id as text, or None where a value is none: it is text that is not empty, or a whole number."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _status_urls(start: _Start) -> list[str]:
    """Return the status URLs of a body; a link counts where it may be asked, or beside a 202.

    A link under a declared 200 may point to anything; beside a 202 it can only be the job's.
    """
    named, linked = named_urls(start.body)
    if start.answer.status == 202:
        return named + linked
    return named + [url for url in linked if start.may_ask(resolve(start.base, url))]


def named_urls(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the status URLs that a body names, and those that it links to, as they stand there."""
    links = body.get("links")
    linked = [links.get("status"), links.get("self")] if isinstance(links, dict) else []
    return _texts([body.get(name) for name in URL_MEMBERS]), _texts(linked)


def _texts(told: list[Any]) -> list[str]:
    """Return those members that are text; a link object stands for its address."""
    urls = [url.get("href") if isinstance(url, dict) else url for url in told]
    return [url for url in urls if isinstance(url, str) and url]


def _is_aip(body: dict[str, Any], *, declared: bool, reads: bool) -> bool:
    """An operation by AIP-151; under an undeclared 200 its name has to say so too: a to-do has a name and is done."""
    name = body.get("name")
    if not isinstance(body.get("done"), bool) or not isinstance(name, str) or "status" in body:
        return False
    return declared or (not reads and "operations/" in name)


def _aip_url(request: Request, name: str) -> str:
    """AIP-151: the operation's name is its path below the version of the service; one that leaves it is no URL."""
    path = "/" + name.lstrip("/")
    if {".", ".."} & set(unquote(path).split("/")) or "?" in path or "#" in path:
        return NO_URL
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
    """Return a JSON number that is a usable wait, or None; a text that holds one counts as it."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
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
