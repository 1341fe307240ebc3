"""The protocol of an accepted operation: follow its job by GETs until it ends, or the bound is reached.

A job is never started again from here. A failed look means "keep looking"; only a job that cannot be found any more
makes its operation unknown.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from agent_runtime._core.attempt import send
from agent_runtime._core.conclude import answer_evidence, failure_text
from agent_runtime._core.effects import Credential, NoCredential, Now, Random, Sleep, ask
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_end import ended
from agent_runtime._core.job_news import end, moved, told
from agent_runtime._core.job_progress import announce, say, say_end
from agent_runtime._core.job_reading import AZURE, GOOD, read_job
from agent_runtime._core.job_start import json_of, may_ask, poll_hint
from agent_runtime._core.job_stream import listen
from agent_runtime._core.poll_waits import Step, end_of, next_wait, turn_of
from agent_runtime._core.run import Run, advance, credential_of, seconds_of, stop_for_auth
from agent_runtime._core.urls import resolve, same_origin
from agent_runtime._model import Answer, BodyState, Change, Handle, NewEvidence, Reason, Request, SendFailure, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime.config.jobs import JobReading, PollPolicy

WATCH: Final = 2.0
"""Seconds between two looks at the ledger while a callback is waited for."""
UNTRACKED: Final = "the tool said neither where to ask about its job nor that it calls back"
ELSEWHERE: Final = "its status URL is not on the tool's origin, and is not allowed by PollPolicy(origins=)"
SOON: Final = frozenset({401, 408, 425, 429})
"""Statuses of a result's page that say "not now"; other 4xx say that it cannot be had."""


def follow(run: Run) -> Steps[bool]:
    """Follow an accepted operation; False = it goes on without this process.

    Raises:
        LeaseLost: another worker has the session.
        LedgerError: the ledger could not be written.
    """
    policy = run.tool.contract.polling
    if policy.source is not None and run.polls == 0 and (yield from told(run)):
        yield from say_end(run)
        return True
    handle = handle_of(run.operation)
    if run.follow == "detach" or (handle.estimated or 0.0) > seconds_of(policy.bound):
        yield from _detach(run, handle)
    if run.follow == "detach":
        return False
    yield from announce(run, handle)
    if handle.url is None:
        return (yield from _await_callback(run, handle, policy))
    if not may_ask(handle.url, target_of(run), policy):
        run.stay = ELSEWHERE
        yield from _leave_alone(run)
        return False
    return (yield from _turn(run, handle, policy))


def _turn(run: Run, handle: Handle, policy: PollPolicy) -> Steps[bool]:
    now = yield from ask(Now())
    due = run.operation.resume_at if run.operation.resume_at is not None else now
    turn = turn_of(handle, policy, run.follow, due, run.polls, now, run.patience)
    if turn.step is Step.LOOK:
        return (yield from _poll(run, handle, policy))
    if turn.step is Step.WAIT:
        if handle.stream is not None and not run.no_stream and run.follow == "wait":
            yield from _stream(run, handle, policy, now)
        else:
            yield from _wait(run, turn.until, policy)
            yield from say_end(run)
        return not run.interrupted
    if turn.step is Step.TIME_OUT:
        yield from _time_out(run)
    return False


def _await_callback(run: Run, handle: Handle, policy: PollPolicy) -> Steps[bool]:
    """Wait for the callback of a job that cannot be asked about; without one nobody can know."""
    if policy.source is None:
        run.stay = UNTRACKED
        return False
    now = yield from ask(Now())
    last = end_of(handle, policy, run.patience)
    if run.follow == "once" or now >= last:
        if run.follow != "once":
            yield from _time_out(run)
        return False
    yield from _wait(run, last, policy)
    yield from say_end(run)
    return True


def _detach(run: Run, handle: Handle) -> Steps[None]:
    if not handle.detached:
        yield from advance(run, Change(handle=written(dataclasses.replace(handle, detached=True))))


def _time_out(run: Run) -> Steps[None]:
    if run.operation.reason is not Reason.POLL_BOUND:
        yield from advance(run, Change(state=State.ACCEPTED, reason=Reason.POLL_BOUND))


def _leave_alone(run: Run) -> Steps[None]:
    """Note that a job is not to be looked at."""
    if run.operation.resume_at is not None:
        yield from advance(run, Change(state=State.ACCEPTED, resume_at=None))


def _wait(run: Run, until: float, policy: PollPolicy) -> Steps[None]:
    """Wait for the next look; shorter if the operation changes meanwhile, as by a callback.

    Where the tool calls back the ledger is looked at in between.
    """
    while True:
        now = yield from ask(Now())
        left = until - now
        if left <= 0:
            return
        yield from ask(Sleep(left if policy.source is None else min(left, WATCH)))
        if policy.source is not None and ((yield from moved(run)) or (yield from told(run))):
            return


def _stream(run: Run, handle: Handle, policy: PollPolicy, now: float) -> Steps[None]:
    """Read the job's stream until its end, the bound, or until it breaks; then the job is polled."""
    assert handle.stream is not None
    credential = yield from _credential(run, handle.stream)
    if credential is None:
        run.no_stream = True
        return
    yield from listen(run, handle, credential, end_of(handle, policy, run.patience) - now)


def target_of(run: Run) -> str:
    """Return the URL that the operation went to."""
    request = run.operation.request
    return request.url if request is not None else run.operation.origin


def _poll(run: Run, handle: Handle, policy: PollPolicy) -> Steps[bool]:
    assert handle.url is not None
    run.polls += 1
    credential = yield from _credential(run, handle.url)
    if credential is None:
        if run.problem is not None:
            yield from _later(run, handle, policy, None)
        return run.problem is None
    result = yield from look(run, handle.url, credential)
    if isinstance(result, SendFailure):
        if result.interrupted:
            run.interrupted = True
            return False
        yield from _keep_looking(run, handle, policy, None, failure_text(result))
        return True
    if result.status == 401:
        return (yield from _unauthorised(run, handle, policy, credential))
    run.refreshed = False
    return (yield from _answered(run, handle, policy, result, credential))


def _credential(run: Run, url: str) -> Steps[Credential | None]:
    """Credentials never cross an origin."""
    if not same_origin(url, target_of(run)):
        return Credential(principal=run.operation.principal)
    return (yield from credential_of(run))


def _unauthorised(run: Run, handle: Handle, policy: PollPolicy, credential: Credential) -> Steps[bool]:
    """One refresh, then the look again; a second 401 ends this try, not the job."""
    if run.refreshed or not credential.token_id:
        problem = NoCredential("required", "the job's status URL refused a fresh token as well")
        yield from stop_for_auth(run, problem)
        yield from _later(run, handle, policy, None)
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
        change = Change(state=State.UNKNOWN, reason=Reason.JOB_GONE, no_resend=True, resume_at=None, mark_maybe=True)
        yield from advance(run, change, evidence=(answer_evidence("poll", answer),))
        return True
    if not 200 <= answer.status < 300 or answer.body_state is not BodyState.WHOLE:
        hint = poll_hint(answer, json_of(answer), now=now)
        yield from _keep_looking(run, handle, policy, hint, f"HTTP {answer.status}")
        return True
    try:
        reading = read_job(answer, handle, policy, now=now)
    except Exception as error:  # noqa: BLE001  the user's own adapter
        hint = poll_hint(answer, json_of(answer), now=now)
        yield from _keep_looking(run, handle, policy, hint, f"the tool's adapter raised {type(error).__name__}")
        return True
    if reading.status == "running":
        seen = dataclasses.replace(_moved_on(run, handle, answer), progress=reading.progress, message=reading.message)
        yield from _keep_looking(run, seen, policy, reading.poll_after, None)
        return True
    yield from _ended(run, handle, policy, reading, answer, credential)
    return not run.interrupted and run.problem is None


def _moved_on(run: Run, handle: Handle, answer: Answer) -> Handle:
    """A running job may name a new place to ask, where that may be asked."""
    location = answer.header("Location") if answer.status == 202 else None
    place = answer.header("Operation-Location") or answer.header("Azure-AsyncOperation") or location
    url = resolve(answer.url or handle.url or "", place) if place else None
    if url is None or not may_ask(url, target_of(run), run.tool.contract.polling):
        return handle
    return dataclasses.replace(handle, url=url)


def _keep_looking(run: Run, handle: Handle, policy: PollPolicy, hint: float | None, trouble: str | None) -> Steps[None]:
    evidence = () if trouble is None else (NewEvidence(kind="poll", detail=trouble),)
    yield from _later(run, dataclasses.replace(handle, polls=handle.polls + 1), policy, hint, evidence)
    if run.operation.state is State.ACCEPTED:
        yield from say(run, handle_of(run.operation), "running")


def _later(
    run: Run, handle: Handle, policy: PollPolicy, hint: float | None, evidence: tuple[NewEvidence, ...] = ()
) -> Steps[None]:
    """Write when the job is looked at next, and what was seen of it."""
    now = yield from ask(Now())
    random = yield from ask(Random())
    wait, plain = next_wait(handle, policy, hint, random)
    seen = dataclasses.replace(handle, wait=plain, not_before=None if hint is None else now + hint)
    end_at = end_of(handle, policy, run.patience)
    moment = now + wait if hint is not None or not now < end_at < now + wait else end_at  # a last look at the bound
    change = Change(state=State.ACCEPTED, handle=written(seen), resume_at=moment)
    yield from advance(run, change, evidence=evidence)


def _ended(  # noqa: PLR0917  what is at hand when a job ends
    run: Run, handle: Handle, policy: PollPolicy, reading: JobReading, answer: Answer, credential: Credential
) -> Steps[None]:
    """Write a job's end; a result that stands elsewhere is fetched first, and asked for again if it can't be now."""
    body = answer.body if reading.is_result else None
    missing = False
    if reading.status in GOOD and body is None and not reading.has_result:
        place = result_place(run, handle, reading)
        missing = place is None and reading.result_url is not None
        if place is not None:
            if not same_origin(handle.url or "", place):  # the look itself went out bare
                own = yield from _credential(run, place)
                if own is None:
                    yield from _keep_looking(run, handle, policy, None, "there is no token for the result")
                    return
                credential = own
            fetched = yield from look(run, place, credential)
            if isinstance(fetched, SendFailure) and fetched.interrupted:
                run.interrupted = True
                return
            body = _body_of(fetched)
            missing = body is None and _cannot_be_had(fetched)
            if body is None and not missing:
                yield from _keep_looking(run, handle, policy, None, "the result could not be fetched")
                return
    change = ended(reading, handle, run.tool, body, missing=missing)
    if (yield from end(run, reading, change, answer_evidence("poll", answer))):
        yield from say(run, handle_of(run.operation), reading.status)


def _body_of(fetched: Answer | SendFailure) -> bytes | None:
    whole = isinstance(fetched, Answer) and fetched.body_state is BodyState.WHOLE
    return fetched.body if isinstance(fetched, Answer) and whole and 200 <= fetched.status < 300 else None


def _cannot_be_had(fetched: Answer | SendFailure) -> bool:
    return isinstance(fetched, Answer) and 400 <= fetched.status < 500 and fetched.status not in SOON


def result_place(run: Run, handle: Handle, reading: JobReading) -> str | None:
    """Return where the result of an ended job stands, where its end does not hold it; only on the tool's origin."""
    url = reading.result_url or handle.result_url
    request = run.operation.request
    put = request is not None and request.method in {"PUT", "PATCH"}
    if url is None and put and handle.protocol in AZURE:
        url = target_of(run)
    if url is None:
        return None
    absolute = resolve(handle.url or target_of(run), url)
    return absolute if absolute is not None and same_origin(absolute, target_of(run)) else None
