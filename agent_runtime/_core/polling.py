"""The protocol of an accepted operation: follow its job by GETs until it ends, or the bound is reached.

A job is never started again from here. A failed look means "keep looking"; only a job that cannot be found any more
makes its operation unknown.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_runtime._core.attempt import send
from agent_runtime._core.callbacks import end_by, evidence_of, reading_of
from agent_runtime._core.conclude import kept_headers
from agent_runtime._core.effects import Credential, Job, Load, NoCredential, Now, Random, Sleep, Tell, ask
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_end import ended
from agent_runtime._core.job_reading import read_job
from agent_runtime._core.job_start import poll_hint
from agent_runtime._core.poll_waits import next_wait, over_bound
from agent_runtime._core.run import Run, advance, credential_of, seconds_of
from agent_runtime._core.urls import origin, resolve, same_origin
from agent_runtime._model import (
    Answer,
    BodyState,
    Change,
    Handle,
    NewEvidence,
    Reason,
    Request,
    SendFailure,
    State,
)

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._model import CallbackEvent
    from agent_runtime.config.jobs import JobReading, PollPolicy

WATCH: Final = 2.0
"""Seconds between two looks at the ledger while a callback is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """What one look at a running job said.

    Attributes:
        step, job_id, status_url: which job.
        percent: how far it is, or None where the tool does not tell.
        message: the tool's own words.
        polls: looks so far; elapsed: seconds since the stored start; next_poll_at: UTC epoch seconds.
    """

    step: str
    job_id: str | None
    status_url: str | None
    percent: float | None
    message: str | None
    polls: int
    elapsed: float
    next_poll_at: float


def follow(run: Run) -> Steps[bool]:
    """Follow an accepted operation; False = it goes on without this process.

    Raises:
        LeaseLost: another worker has the session.
        LedgerError: the ledger could not be written.
    """
    policy = run.tool.contract.polling
    handle = handle_of(run.operation)
    if policy.webhook and run.polls == 0 and (yield from told(run)):
        return True
    if run.follow == "detach" or _is_too_long(handle, policy):
        yield from _detach(run, handle)
        return False
    now = yield from ask(Now())
    due = run.operation.resume_at if run.operation.resume_at is not None else now
    if run.follow == "wait" and over_bound(handle, policy, due) and run.polls:
        yield from _time_out(run)
        return False
    if run.follow == "once" and run.polls:
        return False
    if run.follow == "wait" and not (run.polls == 0 and over_bound(handle, policy, now)):
        moved = yield from _wait(run, due, policy, handle)
        if moved:
            return True
    if not may_poll(run, handle):
        run.stay = "its status URL is not on the tool's origin, and is not allowed by PollPolicy(origins=)"
        return False
    return (yield from _poll(run, handle, policy))


def told(run: Run) -> Steps[bool]:
    """End an operation by a callback that came before its job was known here; True = it ended."""
    identity = run.operation.id
    events: list[CallbackEvent] = yield from ask(Job(lambda ledger: ledger.events_of(identity)))
    for event in events:
        reading = reading_of(event, run.operation, run.tool)
        if reading.status != "running":
            change = end_by(reading, run.operation, run.tool)
            yield from advance(run, change, evidence=(evidence_of(event),))
            return True
    return False


def _is_too_long(handle: Handle, policy: PollPolicy) -> bool:
    return handle.detached or (handle.estimated is not None and handle.estimated > seconds_of(policy.bound))


def _detach(run: Run, handle: Handle) -> Steps[None]:
    if not handle.detached:
        yield from advance(run, Change(handle=written(dataclasses.replace(handle, detached=True))))


def _time_out(run: Run) -> Steps[None]:
    if run.operation.reason is not Reason.POLL_BOUND:
        yield from advance(run, Change(state=State.ACCEPTED, reason=Reason.POLL_BOUND))


def _wait(run: Run, due: float, policy: PollPolicy, handle: Handle) -> Steps[bool]:
    """Wait for the next look; True = the operation moved meanwhile, by a callback.

    Where the tool calls back, or gave no URL, the ledger is looked at in between.
    """
    watching = policy.webhook or handle.url is None
    end = due if handle.url is not None else handle.started_at + seconds_of(policy.bound)
    while True:
        now = yield from ask(Now())
        left = end - now
        if left <= 0:
            return False
        yield from ask(Sleep(min(left, WATCH) if watching else left))
        if watching and (yield from moved(run)):
            return True


def moved(run: Run) -> Steps[bool]:
    """Whether somebody else, such as a callback, ended the operation; then `Run.operation` is what it is now."""
    current = yield from ask(Load(run.operation.id))
    if current is None or current.version == run.operation.version:
        return False
    run.operation = current
    return current.state is not State.ACCEPTED


def may_poll(run: Run, handle: Handle) -> bool:
    """Whether a job's URL may be asked: it is on the tool's origin, or allowed without credentials."""
    if handle.url is None:
        return True
    return same_origin(handle.url, target_of(run)) or origin(handle.url) in run.tool.contract.polling.origins


def target_of(run: Run) -> str:
    """Return the URL that the operation went to."""
    request = run.operation.request
    return request.url if request is not None else run.operation.origin


def _poll(run: Run, handle: Handle, policy: PollPolicy) -> Steps[bool]:
    if handle.url is None:
        yield from _time_out(run)
        return False
    credential = yield from _credential(run, handle)
    if credential is None:
        return run.problem is None
    result = yield from look(run, handle.url, credential)
    run.polls += 1
    if isinstance(result, SendFailure):
        if result.interrupted:
            run.interrupted = True
            return False
        yield from _keep_looking(run, handle, policy, None, f"{result.error}: {result.detail}".rstrip(": "))
        return True
    if result.status == 401:
        return _unauthorised(run, credential)
    return (yield from _answered(run, handle, policy, result, credential))


def _credential(run: Run, handle: Handle) -> Steps[Credential | None]:
    """Credentials never cross an origin."""
    assert handle.url is not None
    if not same_origin(handle.url, target_of(run)):
        return Credential(principal=run.operation.principal)
    return (yield from credential_of(run))


def _unauthorised(run: Run, credential: Credential) -> bool:
    """One refresh, then the look again; a second 401 ends this try, not the job."""
    if run.refreshed or not credential.token_id:
        run.problem = NoCredential("required", "the job's status URL refused a fresh token as well")
        return False
    run.rejected = credential.token_id
    run.polls -= 1
    return True


def look(run: Run, url: str, credential: Credential) -> Steps[Answer | SendFailure]:
    """Send one GET of a job's; it carries no idempotency key."""
    request = Request(method="GET", url=url, headers=(("Accept", "application/json"),))
    return (yield from send(run, request, credential, seconds_of(run.tool.contract.timeouts.read) * 2))


def _answered(run: Run, handle: Handle, policy: PollPolicy, answer: Answer, credential: Credential) -> Steps[bool]:
    now = yield from ask(Now())
    young = now - handle.started_at < seconds_of(policy.not_found_grace)
    if answer.status == 410 or (answer.status == 404 and not young):
        yield from _gone(run, answer)
        return True
    if not 200 <= answer.status < 300 or answer.body_state is not BodyState.WHOLE:
        hint = poll_hint(answer, {}, now=now)
        yield from _keep_looking(run, handle, policy, hint, f"HTTP {answer.status}")
        return True
    reading = read_job(answer, handle, policy, now=now)
    if reading.status == "running":
        yield from _running(run, _moved_on(handle, answer), policy, reading)
        return True
    return (yield from _ended(run, handle, policy, reading, answer, credential))


def _moved_on(handle: Handle, answer: Answer) -> Handle:
    """A running job may name a new place to ask."""
    told = answer.header("Operation-Location") or (answer.header("Location") if answer.status == 202 else None)
    url = resolve(answer.url or handle.url or "", told) if told else None
    return handle if url is None else dataclasses.replace(handle, url=url)


def _running(run: Run, handle: Handle, policy: PollPolicy, reading: JobReading) -> Steps[None]:
    seen = dataclasses.replace(handle, progress=reading.progress, message=reading.message)
    yield from _keep_looking(run, seen, policy, reading.poll_after, None)


def _keep_looking(run: Run, handle: Handle, policy: PollPolicy, hint: float | None, trouble: str | None) -> Steps[None]:
    now = yield from ask(Now())
    random = yield from ask(Random())
    wait, plain = next_wait(handle, policy, hint, random)
    seen = dataclasses.replace(handle, polls=handle.polls + 1, wait=plain)
    evidence = () if trouble is None else (NewEvidence(kind="poll", detail=trouble),)
    change = Change(state=State.ACCEPTED, handle=written(seen), resume_at=now + wait)
    yield from advance(run, change, evidence=evidence)
    if run.on_progress is not None and run.operation.state is State.ACCEPTED:
        yield from ask(Tell(run.on_progress, progress_of(run, seen, now)))


def progress_of(run: Run, handle: Handle, now: float) -> JobProgress:
    """Return what the last look at a job said."""
    return JobProgress(
        step=run.operation.label,
        job_id=handle.job_id,
        status_url=handle.url,
        percent=handle.progress,
        message=handle.message,
        polls=handle.polls,
        elapsed=now - handle.started_at,
        next_poll_at=run.operation.resume_at or now,
    )


def _gone(run: Run, answer: Answer) -> Steps[None]:
    change = Change(state=State.UNKNOWN, reason=Reason.JOB_GONE, no_resend=True, resume_at=None, mark_maybe=True)
    yield from advance(run, change, evidence=(_evidence(answer),))


def _evidence(answer: Answer) -> NewEvidence:
    return NewEvidence(kind="poll", status=answer.status, headers=kept_headers(answer), body=answer.body[:65536])


def _ended(  # noqa: PLR0917  what is at hand when a job ends
    run: Run, handle: Handle, policy: PollPolicy, reading: JobReading, answer: Answer, credential: Credential
) -> Steps[bool]:
    """Write a job's end; a result that stands elsewhere is fetched first, and looked for again if it can't be."""
    if reading.status in {"succeeded", "completed_with_errors"} and not reading.has_result:
        place = result_place(run, handle, reading)
        if place is not None:
            fetched = yield from look(run, place, credential)
            if not isinstance(fetched, Answer) or not 200 <= fetched.status < 300:
                yield from _keep_looking(run, handle, policy, None, "the result could not be fetched")
                return True
            yield from advance(run, ended(reading, handle, run.tool, fetched.body), evidence=(_evidence(answer),))
            return True
    yield from advance(run, ended(reading, handle, run.tool, None), evidence=(_evidence(answer),))
    return True


def result_place(run: Run, handle: Handle, reading: JobReading) -> str | None:
    """Return where the result of an ended job stands, where its end does not hold it; only on the tool's origin."""
    url = reading.result_url
    request = run.operation.request
    put = request is not None and request.method in {"PUT", "PATCH"}
    if url is None and put and handle.protocol in {"operation-location", "azure-async"}:
        url = target_of(run)
    if url is None:
        return None
    absolute = resolve(handle.url or target_of(run), url)
    return absolute if absolute is not None and same_origin(absolute, target_of(run)) else None
