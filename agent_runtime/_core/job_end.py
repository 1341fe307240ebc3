"""What a job's end means for its operation."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agent_runtime._core.handles import written
from agent_runtime._core.job_reading import GOOD
from agent_runtime._core.results import json_bytes, read_result
from agent_runtime._model import BodyState, Change, Effect, Handle, Reason, ResultState, State

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import AnyTool
    from agent_runtime.config.jobs import JobReading


def ended(
    reading: JobReading,
    handle: Handle,
    tool: AnyTool,
    body: bytes | None,
    *,
    missing: bool = False,
    body_state: BodyState = BodyState.WHOLE,
) -> Change:
    """Return what to write about a job that ended.

    Args:
        reading: its end.
        handle: of the job.
        tool: its tool.
        body: its result, where that stood by itself; None = it is in the reading, or there is none.
        missing: the job has a result and it cannot be had.
        body_state: how ``body`` arrived.
    """
    kept = dataclasses.replace(
        handle,
        counts=reading.counts,
        errors_url=reading.errors_url,
        message=reading.message,
        progress=reading.progress if reading.progress is not None else handle.progress,
        not_before=None,
        obstacle=None,
        elsewhere=None,
    )
    if reading.status in {"failed", "cancelled"}:
        return Change(
            state=State.FAILED,
            reason=Reason.JOB_ENDED,
            effect=Effect(tool.contract.polling.failed_effect),
            resume_at=None,
            handle=written(kept),
            error=_error(reading, reading.status),
        )
    if reading.status == "unknown":
        return Change(
            state=State.UNKNOWN,
            reason=Reason.JOB_UNCLEAR,
            no_resend=True,
            resume_at=None,
            mark_maybe=True,
            handle=written(kept),
            error=_error(reading, reading.word),
        )
    result = body if body is not None else _result_text(reading)
    state = read_result(result, body_state, tool).state
    if body is None and (missing or (not reading.has_result and reading.nothing_said)):
        state = ResultState.MISSING
    return Change(
        state=State.SUCCEEDED,
        reason=Reason.JOB_ENDED,
        partial=reading.status == "completed_with_errors",
        resume_at=None,
        handle=written(kept),
        error=json_bytes({"errors": reading.error}) if reading.error is not None else None,
        result=result,
        result_state=state,
    )


def _error(reading: JobReading, word: str | None) -> bytes:
    """Return what a job said that did not end well, as JSON text."""
    said = {"status": word, "error": reading.error, "message": reading.message}
    return json_bytes({name: value for name, value in said.items() if value is not None})


def contradicts(reading: JobReading, operation: OperationRecord) -> bool:
    """Whether a job's end is another one than the end that is recorded."""
    if reading.status in {"running", "unknown"}:
        return False
    good = reading.status in GOOD
    return good is not (operation.state is State.SUCCEEDED)


def _result_text(reading: JobReading) -> bytes:
    return json_bytes(reading.result) if reading.has_result else b""
