"""The protocol of a job's stream of server-sent events: its word counts like a poll's, its end is no end of the job."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from agent_runtime._core.callbacks import is_thin, poked
from agent_runtime._core.conclude import KEPT_BODY
from agent_runtime._core.effects import CloseStream, EventStream, NextEvent, Now, ask
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_end import ended
from agent_runtime._core.job_headers import headers_about
from agent_runtime._core.job_news import end
from agent_runtime._core.job_progress import say
from agent_runtime._core.job_reading import names_another, read_job
from agent_runtime._core.job_start import json_of
from agent_runtime._core.run import advance, seconds_of
from agent_runtime._core.scrub import scrubbed_text
from agent_runtime._model import Answer, Change, NewEvidence, Request, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential, Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import Handle, ServerEvent
    from agent_runtime.config.jobs import JobReading

WRITE_EVERY: Final = 5.0
"""Seconds between two notes of a stream's progress in the ledger."""


def listen(run: Run, handle: Handle, credential: Credential, seconds: float) -> Steps[None]:
    """Read a job's stream for so many seconds at most; the job has ended, or it is to be polled."""
    assert handle.stream is not None
    timeouts = run.tool.contract.timeouts
    stream = EventStream(
        request=Request(
            method="GET", url=handle.stream, headers=headers_about(run, handle.stream, "text/event-stream")
        ),
        headers=credential.headers,
        connect=seconds_of(timeouts.connect),
        idle=seconds_of(run.tool.contract.polling.cap),
        seconds=seconds,
        body_limit=run.body_limit,
    )
    try:
        yield from _heard(run, stream, credential)
    except GeneratorExit:  # nobody drives this any more
        raise
    except BaseException:
        yield from ask(CloseStream(stream))
        raise
    yield from ask(CloseStream(stream))
    run.no_stream = True  # whatever ended it: from here on the job's own URL tells


def _heard(run: Run, stream: EventStream, credential: Credential) -> Steps[None]:
    noted = yield from ask(Now())
    progress: float | None = None
    while True:
        event = yield from ask(NextEvent(stream))
        now = yield from ask(Now())
        if event is None:
            seen = NewEvidence(kind="poll", detail=f"stream: {stream.problem or 'it ended'}")
            yield from advance(run, Change(state=State.ACCEPTED), evidence=(seen,))
            return
        event = dataclasses.replace(event, data=scrubbed_text(event.data, credential))
        reading = _reading_of(run, event, now)
        if reading is None:
            continue
        if reading.status != "running":
            yield from _ended(run, reading, event, now, progress)
            return
        progress = reading.progress if reading.progress is not None else progress
        handle = dataclasses.replace(handle_of(run.operation), progress=reading.progress, message=reading.message)
        if now - noted >= WRITE_EVERY:
            noted = now
            if not (yield from advance(run, Change(state=State.ACCEPTED, handle=written(handle)))):
                return
        yield from say(run, handle, "running")


def _reading_of(run: Run, event: ServerEvent, now: float) -> JobReading | None:
    """Return what an event says, read like a status body; None = it says nothing of the job."""
    handle = handle_of(run.operation)
    protocol = handle.protocol if handle.protocol == "adapter" else "body"
    answer = Answer(status=200, body=event.data.encode("utf-8", "replace"))
    if not event.data or names_another(json_of(answer), handle):
        return None
    try:
        return read_job(answer, dataclasses.replace(handle, protocol=protocol), run.tool.contract.polling, now=now)
    except Exception:  # noqa: BLE001  the user's own adapter; the polls tell
        return None


def _ended(run: Run, reading: JobReading, event: ServerEvent, now: float, progress: float | None) -> Steps[None]:
    """Write the end that an event tells; one without a result is asked for at the job's own URL, at once.

    ``progress``: what the events before it told.
    """
    if is_thin(reading, run.operation, run.tool):
        yield from advance(run, poked(run.operation, now))
        return
    handle = handle_of(run.operation)
    handle = dataclasses.replace(handle, progress=progress if progress is not None else handle.progress)
    seen = NewEvidence(kind="poll", body=event.data.encode("utf-8", "replace")[:KEPT_BODY], detail="stream")
    if (yield from end(run, reading, ended(reading, handle, run.tool, None), seen)):
        yield from say(run, handle_of(run.operation), reading.status)
