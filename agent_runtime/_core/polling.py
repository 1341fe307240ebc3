"""The protocol of an accepted operation: follow its job by GETs until it ends, or the bound is reached.

A job is never started again from here. A failed look means "keep looking"; only a job that cannot be found any more
makes its operation unknown.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from agent_runtime._core.challenges import refuses_token
from agent_runtime._core.conclude import answer_evidence, failure_text
from agent_runtime._core.effects import Now, Random, Sleep, ask
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_beginning import members_of, read_beginning
from agent_runtime._core.job_end import ended
from agent_runtime._core.job_fetching import Fetched, credential_for, fetch, look, refused, result_place
from agent_runtime._core.job_news import end, moved, told
from agent_runtime._core.job_progress import announce, say, say_end
from agent_runtime._core.job_reading import GOOD, names_another, read_job
from agent_runtime._core.job_start import HEADERS, fault_of, json_of, poll_hint
from agent_runtime._core.job_stream import listen
from agent_runtime._core.poll_waits import Step, end_of, is_too_long, next_wait, turn_of
from agent_runtime._core.reach import asked_at, may_ask, sent_to
from agent_runtime._core.redirects import sent_away
from agent_runtime._core.run import Run, advance, seconds_of
from agent_runtime._core.urls import origin, resolve
from agent_runtime._model import UNSET, Answer, BodyState, Change, Handle, NewEvidence, Reason, SendFailure, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime.config.jobs import JobReading, PollPolicy

WATCH: Final = 2.0
"""Seconds between two looks at the ledger while a callback is waited for."""
NOWHERE: Final = "a place that cannot be asked"


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
    if run.follow == "detach" or is_too_long(handle, policy):
        handle = yield from _detached(run, handle)
    if run.follow != "detach":
        yield from announce(run, handle)
    place = asked_at(handle, sent_to(run.operation), policy)
    if place is None:
        return (yield from _out_of_reach(run, handle, policy))
    return run.follow != "detach" and (yield from _turn(run, handle, policy))


def _out_of_reach(run: Run, handle: Handle, policy: PollPolicy, seen: NewEvidence | None = None) -> Steps[bool]:
    """Note that a job cannot be asked about, and wait for its callback; without one nobody can know."""
    reason = Reason.UNTRACKED if policy.source is None else run.operation.reason
    known = (run.operation.reason, run.operation.resume_at, run.operation.handle) == (reason, None, written(handle))
    if seen is not None or not known:
        change = Change(state=State.ACCEPTED, reason=reason, resume_at=None, handle=written(handle))
        if not (yield from advance(run, change, evidence=() if seen is None else (seen,))):
            return True
    if policy.source is None or run.follow == "detach":
        return False
    return (yield from _await_callback(run, handle, policy))


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
    """Wait for the callback of a job that cannot be asked about."""
    now = yield from ask(Now())
    last = end_of(handle, policy, run.patience)
    if run.follow == "once" or now >= last:
        if run.follow != "once":
            yield from _time_out(run)
        return False
    yield from _wait(run, last, policy)
    yield from say_end(run)
    return True


def _detached(run: Run, handle: Handle) -> Steps[Handle]:
    """Note that nobody waits for a job; it blocks nothing."""
    if not handle.detached:
        yield from advance(run, Change(handle=written(dataclasses.replace(handle, detached=True))))
    return handle_of(run.operation)


def _time_out(run: Run) -> Steps[None]:
    if run.operation.reason is not Reason.POLL_BOUND:
        yield from advance(run, Change(state=State.ACCEPTED, reason=Reason.POLL_BOUND))


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
    credential = yield from credential_for(run, handle.stream)
    if credential is None:  # the polls ask anew, and say what is wanted
        run.no_stream, run.problem, run.stay = True, None, ""
        return
    yield from listen(run, handle, credential, end_of(handle, policy, run.patience) - now)


def _poll(run: Run, handle: Handle, policy: PollPolicy) -> Steps[bool]:
    assert handle.url is not None
    run.polls += 1
    credential = yield from credential_for(run, handle.url)
    if credential is None:
        if run.problem is not None:
            yield from _later(run, handle, policy, None)
        return run.problem is None
    result = yield from look(run, handle.url, credential)
    if isinstance(result, SendFailure):
        if result.interrupted:
            run.interrupted = True
            return False
        yield from _keep_looking(run, handle, policy, None, _trouble(failure_text(result)))
        return True
    if refuses_token(result):
        if (yield from refused(run, handle.url, credential, result)):
            run.polls -= 1
            return True
        yield from _later(run, handle, policy, None)
        return False
    run.refreshed = False
    return (yield from _answered(run, handle, policy, result))


def _answered(run: Run, handle: Handle, policy: PollPolicy, answer: Answer) -> Steps[bool]:
    now = yield from ask(Now())
    if answer.status in {404, 410}:
        yield from _not_found(run, handle, policy, answer, now)
        return True
    away = sent_away(answer, handle.url or "")
    if away is not None:
        where = origin(away) if away else NOWHERE
        stuck = dataclasses.replace(handle, obstacle="redirected", elsewhere=where)
        return (yield from _out_of_reach(run, stuck, policy, answer_evidence("poll", answer, detail="redirected")))
    too_long = answer.body_state is BodyState.OVERSIZED
    body = json_of(answer)
    hint = poll_hint(answer, body, now=now)
    if not 200 <= answer.status < 300 or not (answer.body_state is BodyState.WHOLE or too_long):
        yield from _keep_looking(run, handle, policy, hint, _trouble(f"HTTP {answer.status}"))
        return True
    handle = dataclasses.replace(handle, found_at=now, missed=0)
    if names_another((members_of(answer.body) or {}) if too_long else body, handle):
        seen = answer_evidence("poll", answer, detail="it names another job, so it says nothing about this one")
        yield from _keep_looking(run, handle, policy, hint, seen)
        return True
    try:
        reading = (read_beginning if too_long else read_job)(answer, handle, policy, now=now)
    except Exception as error:  # noqa: BLE001  the user's own adapter
        seen = answer_evidence("poll", answer, detail=f"the tool's adapter could not read it: {fault_of(error)}")
        yield from _keep_looking(run, handle, policy, hint, seen)
        return True
    return (yield from _read(run, handle, policy, answer, reading))


def _read(run: Run, handle: Handle, policy: PollPolicy, answer: Answer, reading: JobReading | None) -> Steps[bool]:
    if reading is None:
        stuck = dataclasses.replace(handle, obstacle="too_long")
        return (yield from _out_of_reach(run, stuck, policy, answer_evidence("poll", answer, detail="too long")))
    if reading.status == "running":
        seen = dataclasses.replace(_moved_on(run, handle, answer), progress=reading.progress, message=reading.message)
        yield from _keep_looking(run, seen, policy, reading.poll_after, None)
        return True
    yield from _ended(run, handle, policy, reading, answer)
    return not run.interrupted and run.problem is None


def _not_found(run: Run, handle: Handle, policy: PollPolicy, answer: Answer, now: float) -> Steps[None]:
    """Take a job for gone once it was not found for the whole grace, and twice at least; a 410 says so at once."""
    since = handle.started_at if handle.found_at is None else handle.found_at
    missing = handle.missed > 0 and now - since >= seconds_of(policy.not_found_grace)
    if answer.status == 410 or missing:
        change = Change(state=State.UNKNOWN, reason=Reason.JOB_GONE, no_resend=True, resume_at=None, mark_maybe=True)
        yield from advance(run, change, evidence=(answer_evidence("poll", answer),))
        return
    hint = poll_hint(answer, json_of(answer), now=now)
    again = dataclasses.replace(handle, missed=handle.missed + 1)
    yield from _keep_looking(run, again, policy, hint, _trouble(f"HTTP {answer.status}"))


def _trouble(detail: str) -> NewEvidence:
    return NewEvidence(kind="poll", detail=detail)


def _moved_on(run: Run, handle: Handle, answer: Answer) -> Handle:
    """A running job may name a new place to ask, where that may be asked."""
    names = [name for name, _ in HEADERS] + (["Location"] if answer.status == 202 else [])
    place = next(filter(None, map(answer.header, names)), None)
    url = resolve(answer.url or handle.url or "", place) if place else None
    if url is None or not may_ask(url, sent_to(run.operation), run.tool.contract.polling):
        return handle
    return dataclasses.replace(handle, url=url)


def _keep_looking(
    run: Run, handle: Handle, policy: PollPolicy, hint: float | None, seen: NewEvidence | None
) -> Steps[None]:
    evidence = () if seen is None else (seen,)
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
    seen = dataclasses.replace(
        handle,
        wait=plain,
        not_before=None if hint is None else now + hint,
        looked_at=now,
        obstacle=None,
        elsewhere=None,
    )
    end_at = end_of(handle, policy, run.patience)
    moment = now + wait if hint is not None or not now < end_at < now + wait else end_at  # a last look at the bound
    change = Change(
        state=State.ACCEPTED,
        reason=None if run.operation.reason is Reason.UNTRACKED else UNSET,
        handle=written(seen),
        resume_at=moment,
        error=UNSET if run.problem is not None else None,  # what was wanted of a person is there by now
    )
    yield from advance(run, change, evidence=evidence)


def _ended(run: Run, handle: Handle, policy: PollPolicy, reading: JobReading, answer: Answer) -> Steps[None]:
    """Write a job's end; a result that stands elsewhere is fetched first, and asked for again if it can't be now."""
    found = Fetched(answer.body, answer.body_state) if reading.is_result else Fetched()
    if reading.status in GOOD and found.body is None and not reading.has_result:
        place = result_place(run, handle, reading)
        if place is not None:
            found = yield from fetch(run, place)
        elif answer.body_state is BodyState.OVERSIZED:  # it stood behind what came
            found = Fetched(answer.body, answer.body_state)
        else:
            found = Fetched(missing=reading.result_url is not None)
        if run.interrupted:
            return
        if found.trouble:
            yield from _keep_looking(run, handle, policy, None, _trouble(found.trouble))
            return
    change = ended(reading, handle, run.tool, found.body, missing=found.missing, body_state=found.body_state)
    if (yield from end(run, reading, change, answer_evidence("poll", answer))):
        yield from say(run, handle_of(run.operation), reading.status)
