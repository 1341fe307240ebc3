"""What the answer to a poll says about a job; every word that is not known means "running".

Sources: Azure REST guidelines, azure-core's order of protocols, AIP-151.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.job_start import HEADERS, NOT_JSON, job_answer, json_of, number, parsed, poll_hint
from agent_runtime.config.jobs import JobReading, JobStatus

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Handle
    from agent_runtime.config.jobs import PollPolicy

WORDS: Final[dict[str, JobStatus]] = {
    "succeeded": "succeeded",
    "success": "succeeded",
    "completed": "succeeded",
    "complete": "succeeded",
    "done": "succeeded",
    "finished": "succeeded",
    "completed_with_errors": "completed_with_errors",
    "completedwitherrors": "completed_with_errors",
    "partially_succeeded": "completed_with_errors",
    "failed": "failed",
    "failure": "failed",
    "error": "failed",
    "errored": "failed",
    "canceled": "cancelled",
    "cancelled": "cancelled",
}
AZURE: Final = frozenset(protocol for _, protocol in HEADERS)
GOOD: Final = frozenset({"succeeded", "completed_with_errors"})
RESULT_URLS: Final = ("resourceLocation", "result_url", "resultUrl")
RESULTS: Final = ("result", "response", "output")


def read_job(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading:
    """Return what a 2xx answer to a poll says. ``now``: UTC epoch seconds of its arrival.

    Raises:
        Exception: whatever the tool's own adapter raises.
    """
    if policy.adapter is not None and handle.protocol == "adapter":
        return policy.adapter.read(job_answer(answer, handle.url or ""))
    body = json_of(answer)
    status, is_result = _status(answer, body, handle)
    hint = poll_hint(answer, body, now=now)
    progress = _progress(body)
    if status == "running":
        return JobReading(progress=progress, poll_after=hint, message=_text(body.get("message")))
    if status in GOOD and _is_error(body):
        status, is_result = "failed", False
    if status == "succeeded" and not is_result and (body.get("errors") or body.get("error")):
        status = "completed_with_errors"
    result, has_result = (None, False) if is_result else _result(body)
    return JobReading(
        status=status,
        result=result,
        has_result=has_result,
        result_url=next((url for name in RESULT_URLS if (url := _text(body.get(name)))), None),
        error=None if is_result else body.get("error") or body.get("errors"),
        progress=progress,
        counts=_object(body.get("summary")),
        errors_url=_text(body.get("errors_url")),
        message=_text(body.get("message")),
        nothing_said=not has_result and not isinstance(body.get("status"), str),
        is_result=is_result,
    )


def read_start(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading:
    """Return what the answer that started a job says about its end.

    A 202 whose body says ``"status": "success"`` may speak of the request, so that a success counts here only with
    ``"done": true`` or a result; the first poll tells the rest.

    Raises:
        Exception: whatever the tool's own adapter raises.
    """
    reading = read_job(answer, handle, policy, now=now)
    certain = json_of(answer).get("done") is True or reading.has_result
    plain = handle.protocol in {"body", "bare"}
    if plain and reading.status in GOOD and not certain:
        return JobReading(progress=reading.progress, message=reading.message)  # the wait stands in the handle
    return reading


def _status(answer: Answer, body: dict[str, Any], handle: Handle) -> tuple[JobStatus, bool]:
    """Return the word for a job, and whether the body is the result itself."""
    if handle.protocol == "resource":
        properties = _object(body.get("properties"))
        if properties is None and not body:
            return "running", False  # a page of somebody else, not the resource
        return _word((properties or {}).get("provisioningState"), default="succeeded"), True
    if handle.protocol == "aip":
        return _aip(body), False
    if handle.protocol not in AZURE and answer.status == 202 and body.get("done") is False:
        return "running", False  # whatever word stands beside it
    if handle.protocol in AZURE or answer.status == 202:
        return _word(body.get("status"), default="running"), False
    return _plain(answer, body, handle)


def _aip(body: dict[str, Any]) -> JobStatus:
    if body.get("done") is not True:
        return "running"
    return "failed" if body.get("error") is not None else "succeeded"


def _plain(answer: Answer, body: dict[str, Any], handle: Handle) -> tuple[JobStatus, bool]:
    """Read ``done`` and ``status`` of a body; of ``Location``, an answer that has neither is the result itself."""
    done = body.get("done")
    if done is False:
        return "running", False
    if "status" in body:
        word = _word(body["status"], default="running")
        if done is True and word == "running":
            word = "failed" if body.get("error") is not None else "succeeded"
        return word, False
    if done is True:
        return "failed" if body.get("error") is not None else "succeeded", False
    if handle.protocol != "location" or is_page(answer):
        return "running", False
    return "succeeded", True


def is_page(answer: Answer) -> bool:
    """Whether an answer is a web page, such as a proxy's or a sign-in's: that is no result of a tool."""
    kind = (answer.header("Content-Type") or "").lower()
    return "html" in kind and parsed(answer) is NOT_JSON


def _word(value: object, *, default: JobStatus) -> JobStatus:
    if not isinstance(value, str):
        return default
    return WORDS.get(value.strip().lower().replace("-", "_").replace(" ", "_"), "running")


def _is_error(body: dict[str, Any]) -> bool:
    """Whether a body, or the tool result in it, says of itself that it is an error (MCP's ``isError``)."""
    result = _object(body.get("result")) or {}
    return body.get("isError") is True or result.get("isError") is True


def _progress(body: dict[str, Any]) -> float | None:
    told = next((body[name] for name in ("progress_percent", "percentComplete") if name in body), None)
    value = number(told)
    return None if value is None else min(value, 100.0)


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
