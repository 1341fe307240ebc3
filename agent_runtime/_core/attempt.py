"""The protocol of one attempt: write that it begins, send, class the answer, write what follows."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from agent_runtime._core.classify import Finding, Verdict, classify
from agent_runtime._core.conclude import Result, conclude, evidence_of
from agent_runtime._core.effects import Invoke, LeaseHeld, Now, Random, Send, ask
from agent_runtime._core.poll_waits import first_wait
from agent_runtime._core.reach import asked_at, sent_to
from agent_runtime._core.redirects import MOST, redirect_of
from agent_runtime._core.refusals import refused_token, with_granted_scope
from agent_runtime._core.run import Run, advance, file, lease_lost, next_try, seconds_of
from agent_runtime._core.scrub import scrubbed
from agent_runtime._model import Answer, Change, NewAttempt, Raised, SendFailure, State
from agent_runtime.config import FunctionTool
from agent_runtime.errors import EntryRefused, LeaseLost, LedgerError, NotRecorded

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential, Steps
    from agent_runtime._model import NewEvidence, Request

UNCOUNTED = frozenset({Verdict.IN_PROGRESS, Verdict.UNAUTHORISED})
WAITS = frozenset({Verdict.NOT_SENT, Verdict.NOT_APPLIED, Verdict.LOST, Verdict.IN_PROGRESS, Verdict.SERVER_ERROR})


def attempt(run: Run, credential: Credential) -> Steps[bool]:
    """Make one attempt under a credential; False = this run has nothing more to try.

    Raises:
        LeaseLost: another worker has the session.
        NotRecorded: the tool answered and the ledger could not take it.
        LedgerError: the attempt could not be written; nothing was sent.
    """
    now = yield from ask(Now())
    limit = _limit(run, now)
    if limit <= 0:
        return False
    resent = run.operation.maybe_applied
    begun = Change(
        state=State.IN_FLIGHT,
        reason=run.operation.reason if resent else None,
        resume_at=None,
        error=None,
        mark_sent=True,
        clear_absent=True,  # what was absent before this attempt says nothing about it
    )
    number = run.operation.attempts + 1
    purpose = "invoke" if isinstance(run.tool, FunctionTool) else ("resend" if resent else "send")
    if not (yield from advance(run, begun, attempt=NewAttempt(number=number, purpose=purpose, deadline=limit))):
        return True
    if not (yield from ask(LeaseHeld())):
        yield from _record(run, SendFailure(maybe_sent=False, error="LeaseEnded"))
        raise lease_lost(run.operation)
    run.token_id, run.token_changed, run.granted = credential.token_id, False, credential.granted
    run.sent, run.resent = True, run.resent or resent
    result = yield from _out(run, credential, limit)
    return (yield from _after(run, credential, result))


def _limit(run: Run, now: float) -> float:
    """Return the seconds that this attempt may last as a whole."""
    own = run.tool.contract.timeouts.attempt
    return min(run.deadline - now, seconds_of(own) if own is not None else math.inf)


def _out(run: Run, credential: Credential, limit: float) -> Steps[Result]:
    operation = run.operation
    if isinstance(run.tool, FunctionTool):
        called = yield from ask(Invoke(run.tool, operation.args, operation.key, operation.label))
        return called
    assert operation.request is not None
    return (yield from send(run, operation.request, credential, limit))


def send(run: Run, request: Request, credential: Credential, limit: float) -> Steps[Answer | SendFailure]:
    """Send a request and follow its redirects by our rule, all under one deadline (seconds)."""
    timeouts = run.tool.contract.timeouts
    begun = yield from ask(Now())
    told: Answer | None = None  # what is returned if the redirects lead nowhere: a 303 stays, it answered the request
    for _ in range(MOST + 1):
        now = yield from ask(Now())
        left = limit - (now - begun)
        if left <= 0 and told is not None:
            return told
        result = yield from ask(
            Send(
                request,
                credential.headers,
                connect=seconds_of(timeouts.connect),
                read=seconds_of(timeouts.read),
                deadline=max(left, 0.001),
                body_limit=run.body_limit,
            )
        )
        if isinstance(result, SendFailure):
            return _lost_on_the_way(result, told)
        result = scrubbed(result, credential)
        following = redirect_of(request, result)
        if following is None:
            return told if told is not None and told.status == 303 and result.status >= 300 else result
        told = told if told is not None and told.status == 303 else result
        request = following
    assert told is not None
    return told


def _lost_on_the_way(failure: SendFailure, told: Answer | None) -> Answer | SendFailure:
    """After a 303 the request itself was answered: what was lost is only the page with its result."""
    if told is None or told.status != 303:
        return failure
    return dataclasses.replace(failure, maybe_sent=True) if failure.interrupted else told


def _after(run: Run, credential: Credential, result: Result) -> Steps[bool]:
    finding = yield from _record(run, result)
    if isinstance(result, SendFailure | Raised) and result.interrupted:
        run.interrupted = True
        return False
    if finding is None:
        return True
    if finding.verdict is Verdict.UNAUTHORISED:
        return (yield from refused_token(run, credential, result, "the tool"))
    if finding.verdict in {Verdict.REFUSED, Verdict.KEY_REUSED}:
        run.refused_later = True
    return True


def _record(run: Run, result: Result) -> Steps[Finding | None]:
    """Write what an attempt's result means; None = the row had moved on, and the answer is filed beside it."""
    now = yield from ask(Now())
    finding = classify(result, run.tool, now=now, request=run.operation.request)
    if finding.verdict in UNCOUNTED:
        run.waits += finding.verdict is Verdict.IN_PROGRESS
    else:
        run.attempts += 1
    resume_at = yield from _resume_at(run, finding, now)
    change = conclude(run.operation, finding, result, run.tool, resume_at=resume_at, last=run.spent)
    change = with_granted_scope(change, result, run.granted)
    seen = evidence_of(result, run.operation.attempts)
    try:
        took = yield from advance(run, change, evidence=(seen,))
    except LeaseLost:
        yield from _file(run, seen)
        raise
    except LedgerError as error:
        raise _not_recorded(run, result, error) from error
    if took:
        return finding
    yield from _file(run, seen)
    return None


def _resume_at(run: Run, finding: Finding, now: float) -> Steps[float | None]:
    if finding.verdict is Verdict.ACCEPTED and finding.handle is not None:
        policy = run.tool.contract.polling
        if asked_at(finding.handle, sent_to(run.operation), policy) is None:
            return None  # there is nothing to look at
        random = yield from ask(Random())
        return now + first_wait(finding.handle, policy, random)
    if finding.verdict not in WAITS:
        return None
    tries = run.waits if finding.verdict is Verdict.IN_PROGRESS else run.attempts
    return (yield from next_try(run, finding.wait, tries, now))


def _file(run: Run, seen: NewEvidence) -> Steps[None]:
    """Keep an answer that came too late to count."""
    try:
        yield from file(run.operation, dataclasses.replace(seen, kind="late"))
    except LedgerError:
        return


def _not_recorded(run: Run, result: Result, error: LedgerError) -> NotRecorded:
    operation = run.operation
    answered = "answered" if isinstance(result, Answer) else "was called"
    because = f"the ledger cannot hold the answer ({error})" if isinstance(error, EntryRefused) else str(error)
    msg = (
        f"session {operation.session_id}, step {operation.label} ({operation.tool}): the tool {answered}, and that was "
        f"NOT recorded: {because}. The request is not sent again by this call. Mend the ledger and open the session "
        "anew: it settles the step under the same key"
    )
    return NotRecorded(
        msg,
        session_id=operation.session_id,
        step=operation.label,
        key=operation.key,
        operation_id=operation.id,
        answer=result if isinstance(result, Answer) else None,
    )
