"""What the answer to a poll says about a job; every word that is not known means "running".

Beside ``"done": true`` such a word is an end of which nobody knows what it is.

Sources: Azure REST guidelines, azure-core's order of protocols, AIP-151.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.job_start import (
    HEADERS,
    JOB_MEMBERS,
    LONGEST_HINT,
    NOT_JSON,
    id_text,
    job_answer,
    json_of,
    number,
    parsed,
    poll_hint,
)
from agent_runtime._core.job_words import state_of, word_of
from agent_runtime.config._checks import shown
from agent_runtime.config.jobs import JobReading, JobStatus
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Handle
    from agent_runtime.config.jobs import PollPolicy

AZURE: Final = frozenset(protocol for _, protocol in HEADERS)
GOOD: Final = frozenset({"succeeded", "completed_with_errors"})
RESULT_URLS: Final = ("resourceLocation", "result_url", "resultUrl")
RESULTS: Final = ("result", "response", "output")
PROGRESS: Final = ("progress_percent", "progressPercent", "percentComplete", "percent_complete")
WHOLE: Final = 100.0
"""Per cent."""


UNCLEAR: Final = GOOD | {"unknown"}
"""Ends of which the job's own URL may tell more."""


@dataclass(frozen=True, slots=True)
class _Said:
    """How a job stands, whether the body is the result itself, and the word that is not known."""

    status: JobStatus
    is_result: bool = False
    word: str | None = None


def read_job(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading:
    """Return what a 2xx answer to a poll says. ``now``: UTC epoch seconds of its arrival.

    Raises:
        ConfigError: the tool's own adapter returned what is no usable reading.
        Exception: whatever that adapter raises.
    """
    if policy.adapter is not None and handle.protocol == "adapter":
        return checked_reading(policy.adapter.read(job_answer(answer, handle.url or "")), "read")
    body = _unwrapped(json_of(answer), policy)
    said = _status(answer, body, handle, policy, now)
    status, is_result = said.status, said.is_result
    hint = poll_hint(answer, body, now=now)
    progress = _progress(body)
    if status == "running":
        return JobReading(progress=progress, poll_after=hint, message=_text(body.get("message")))
    if status in GOOD and _is_error(body):
        status, is_result = "failed", False
    counts = _object(body.get("summary"))
    if status == "succeeded" and not is_result and (body.get("errors") or body.get("error") or _some_failed(counts)):
        status = "completed_with_errors"
    result, has_result = (None, False) if is_result else _result(body)
    return JobReading(
        status=status,
        result=result,
        has_result=has_result,
        result_url=next((url for name in RESULT_URLS if (url := _text(body.get(name)))), None),
        error=None if is_result else body.get("error") or body.get("errors"),
        progress=progress,
        counts=counts,
        errors_url=_text(body.get("errors_url")),
        message=_text(body.get("message")),
        nothing_said=not has_result and not isinstance(body.get("status"), str),
        is_result=is_result,
        word=said.word,
    )


def checked_reading(told: object, function: str) -> JobReading:
    """Return what a tool's adapter made of an answer, or raise `ConfigError` if nothing can be made of it."""
    if not isinstance(told, JobReading):
        msg = f"JobAdapter.{function} has to return a JobReading, not {shown(told)}"
        raise ConfigError(msg)
    try:
        json.dumps([told.result, told.error, dict(told.counts or {})], default=str)
    except (ValueError, TypeError, RecursionError):
        msg = f"JobAdapter.{function} returned a JobReading whose result, error or counts are no JSON value"
        raise ConfigError(msg) from None
    hint = min(told.poll_after, LONGEST_HINT) if told.poll_after else None
    counts = None if told.counts is None else dict(told.counts)
    return dataclasses.replace(told, poll_after=hint, counts=counts)


def names_another(body: dict[str, Any], handle: Handle) -> bool:
    """Whether a body names another job than the handle's, in the member in which the start named that one."""
    if handle.job_id is None or handle.id_from not in JOB_MEMBERS:
        return False
    told = [id_text(one.get(handle.id_from)) for one in (body, _object(body.get("data")) or {})]
    named = [one for one in told if one is not None]
    return bool(named) and handle.job_id not in named


def read_start(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading:
    """Return what the answer that started a job says about its end; the job is one of a usual form.

    A 202 whose body says ``"status": "success"`` may speak of the request, so that a success counts here only with
    ``"done": true`` or a result; the first poll tells the rest.
    """
    reading = read_job(answer, handle, policy, now=now)
    certain = json_of(answer).get("done") is True or reading.has_result
    plain = handle.protocol in {"body", "bare"}
    if plain and reading.status in GOOD and not certain:
        return JobReading(progress=reading.progress, message=reading.message)  # the wait stands in the handle
    return reading


def _unwrapped(body: dict[str, Any], policy: PollPolicy) -> dict[str, Any]:
    """Return a job's own members where an envelope speaks of the request: JSend's ``success`` around its ``data``."""
    inner = _object(body.get("data")) or {}
    status = body.get("status")
    envelope = isinstance(status, str) and status in {"success", "ok"} and "done" not in body
    return inner if envelope and word_of(inner.get("status"), policy) is not None else body


def _status(answer: Answer, body: dict[str, Any], handle: Handle, policy: PollPolicy, now: float) -> _Said:
    word = word_of(body.get("status"), policy) or "running"
    if handle.protocol == "resource":
        return _resource(body, policy)
    if handle.protocol == "aip":
        return _Said(_aip(body))
    if handle.protocol in AZURE:
        return _Said(word)
    if answer.status == 202:
        return _Said("running" if body.get("done") is False else word)  # whatever word stands beside it
    return _plain(answer, body, handle, policy, now)


def _resource(body: dict[str, Any], policy: PollPolicy) -> _Said:
    properties = _object(body.get("properties"))
    if properties is None and not body:
        return _Said("running")  # a page of somebody else, not the resource
    state = (properties or {}).get("provisioningState")
    word = word_of(state, policy) or "running" if isinstance(state, str) else "succeeded"
    return _Said(word, is_result=True)


def _aip(body: dict[str, Any]) -> JobStatus:
    if body.get("done") is not True:
        return "running"
    return "failed" if body.get("error") is not None else "succeeded"


def _plain(answer: Answer, body: dict[str, Any], handle: Handle, policy: PollPolicy, now: float) -> _Said:
    """Read ``done`` and ``status`` of a body; of ``Location``, an answer that has neither may be the result itself."""
    if body.get("done") is False:
        return _Said("running")
    if body.get("done") is True:
        return _done(body, policy)
    if "status" in body:
        return _Said(word_of(body["status"], policy) or "running")
    if handle.protocol == "location":
        return _Said("running") if is_page(answer) else _place(answer, body, policy, now)
    return _Said(state_of(body, policy) or "running")


def _done(body: dict[str, Any], policy: PollPolicy) -> _Said:
    """Read an end by ``"done": true``: the word beside it says which, and one that is not known says that none does."""
    told = body.get("status")
    word = word_of(told, policy) if "status" in body else state_of(body, policy)
    if word is not None:
        return _Said(word)
    if body.get("error") is not None:
        return _Said("failed")
    if told is None or (isinstance(told, int) and 200 <= told < 300):  # an HTTP status says nothing of the job
        return _Said("succeeded")
    return _Said("unknown", word=told if isinstance(told, str) else json.dumps(told)[:100])


def _place(answer: Answer, body: dict[str, Any], policy: PollPolicy, now: float) -> _Said:
    """Read a 200 of ``Location``: it is the result, unless it speaks of a job that still runs or that failed."""
    word = state_of(body, policy)
    if word is not None and word not in GOOD:
        return _Said(word)
    if tells_to_wait(answer, body, now):
        return _Said("running")
    error = body.get("error")
    if isinstance(error, dict | str) and error:
        return _Said("failed")
    is_result = word is None or not any(name in body for name in (*RESULTS, *RESULT_URLS))
    return _Said(word or "succeeded", is_result=is_result)


def tells_to_wait(answer: Answer, body: dict[str, Any], now: float) -> bool:
    """Whether an answer asks to be asked again, or tells of progress that is not complete.

    Of the headers ``Retry-After`` alone counts: what is left of a rate limit says nothing about the job.
    """
    asked = tuple(("Retry-After", value) for value in answer.header_list("Retry-After"))
    progress = _progress(body)
    if progress is not None and progress < WHOLE:
        return True
    return poll_hint(dataclasses.replace(answer, headers=asked), body, now=now) is not None


def is_page(answer: Answer) -> bool:
    """Whether an answer is a web page, such as a proxy's or a sign-in's: that is no result of a tool."""
    kind = (answer.header("Content-Type") or "").lower()
    return "html" in kind and parsed(answer) is NOT_JSON


def _some_failed(counts: dict[str, Any] | None) -> bool:
    """Whether a job's counts say that part of it, or all of it, failed."""
    return bool(number((counts or {}).get("failed")))


def _is_error(body: dict[str, Any]) -> bool:
    """Whether a body, or the tool result in it, says of itself that it is an error (MCP's ``isError``)."""
    result = _object(body.get("result")) or {}
    return body.get("isError") is True or result.get("isError") is True


def _progress(body: dict[str, Any]) -> float | None:
    told = next((body[name] for name in PROGRESS if name in body), None)
    value = number(told)
    return None if value is None else min(value, WHOLE)


def _result(body: dict[str, Any]) -> tuple[Any, bool]:
    for name in RESULTS:
        if name in body:
            return body[name], True
    if _object(body.get("summary")) is not None:
        return {"summary": body["summary"]}, True
    return None, False


def _object(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
