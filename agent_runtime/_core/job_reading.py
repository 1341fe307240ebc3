"""What the answer to a poll says about a job; every word that is not known means "running".

Sources: Azure REST guidelines, azure-core's order of protocols, AIP-151.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.job_start import job_answer, json_of, number, poll_hint
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
    "canceled": "cancelled",
    "cancelled": "cancelled",
}
AZURE: Final = frozenset({"operation-location", "azure-async", "resource"})


def read_job(answer: Answer, handle: Handle, policy: PollPolicy, *, now: float) -> JobReading:
    """Return what a 2xx answer to a poll says. ``now``: UTC epoch seconds of its arrival."""
    if policy.adapter is not None and handle.protocol == "adapter":
        return policy.adapter.read(job_answer(answer, handle.url or ""))
    body = json_of(answer)
    hint = poll_hint(answer, body, now=now)
    progress = number(body.get("progress_percent", body.get("percentComplete")))
    status = _status(answer, body, handle)
    if status == "running":
        return JobReading(progress=progress, poll_after=hint, message=_text(body.get("message")))
    result, has_result = _result(answer, body, handle)
    if status == "succeeded" and body.get("errors"):
        status = "completed_with_errors"
    return JobReading(
        status=status,
        result=result,
        has_result=has_result,
        result_url=_text(body.get("resourceLocation")),
        error=body.get("error") or body.get("errors"),
        progress=progress,
        counts=_object(body.get("summary")),
        errors_url=_text(body.get("errors_url")),
        message=_text(body.get("message")),
        nothing_said=not has_result and not isinstance(body.get("status"), str),
    )


def _status(answer: Answer, body: dict[str, Any], handle: Handle) -> JobStatus:
    if handle.protocol == "resource":
        properties = _object(body.get("properties")) or {}
        return _word(properties.get("provisioningState"), default="succeeded")
    if handle.protocol == "aip":
        return _aip(body)
    if handle.protocol in AZURE:
        return _word(body.get("status"), default="running")
    if answer.status == 202:
        return _word(body.get("status"), default="running")
    return _plain(body, handle)


def _aip(body: dict[str, Any]) -> JobStatus:
    if body.get("done") is not True:
        return "running"
    return "failed" if body.get("error") is not None else "succeeded"


def _plain(body: dict[str, Any], handle: Handle) -> JobStatus:
    """Read ``done`` and ``status`` of a body; of ``Location``, an answer that has neither is the result itself."""
    done = body.get("done")
    if done is False:
        return "running"
    if "status" in body:
        word = _word(body["status"], default="running")
        if done is True and word == "running":
            return "failed" if body.get("error") is not None else "succeeded"
        return word
    if done is True:
        return "failed" if body.get("error") is not None else "succeeded"
    return "succeeded" if handle.protocol == "location" else "running"


def _word(value: object, *, default: JobStatus) -> JobStatus:
    if not isinstance(value, str):
        return default
    return WORDS.get(value.strip().lower().replace("-", "_").replace(" ", "_"), "running")


def _result(answer: Answer, body: dict[str, Any], handle: Handle) -> tuple[Any, bool]:
    for name in ("result", "response", "output"):
        if name in body:
            return body[name], True
    if handle.protocol == "resource":
        return body, True
    if handle.protocol == "location" and not {"done", "status"} & body.keys():
        return body, bool(answer.body)
    if _object(body.get("summary")) is not None:
        return {"summary": body["summary"]}, True
    return None, False


def _object(value: object) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
