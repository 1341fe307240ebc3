"""What an attempt's finding means for its operation.

An answer closes its own attempt, not the operation. An operation goes back to ``ready``, or ends ``failed`` by an
answer, only if every attempt is proven not applied, or if the answer is the stored one for its key, or a declared
half-done mutation. After one ambiguous or in-progress attempt a later refusal leaves it ``unknown``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.classify import Finding, Verdict, effect_of_end
from agent_runtime._core.handles import written
from agent_runtime._core.job_end import ended
from agent_runtime._core.problem import describe_error
from agent_runtime._core.reach import asked_at, sent_to
from agent_runtime._core.results import ascii_json
from agent_runtime._core.states import check
from agent_runtime._model import (
    UNSET,
    Answer,
    Change,
    Effect,
    NewEvidence,
    Raised,
    Reason,
    ResultState,
    Returned,
    SendFailure,
    State,
)

if TYPE_CHECKING:
    from agent_runtime._model import Handle, OperationRecord
    from agent_runtime._model.records import EvidenceKind
    from agent_runtime.config import AnyTool

Result = Answer | SendFailure | Returned | Raised

READY_REASON: Final = {
    Verdict.NOT_SENT: Reason.RETRY_AFTER,
    Verdict.NOT_APPLIED: Reason.RETRY_AFTER,
    Verdict.UNAUTHORISED: Reason.AUTH,
}
FAILED_REASON: Final = {
    Verdict.REFUSED: Reason.REFUSED,
    Verdict.KEY_REUSED: Reason.KEY_CONFLICT,
}
UNKNOWN_REASON: Final = {
    Verdict.LOST: Reason.LOST_ANSWER,
    Verdict.SERVER_ERROR: Reason.SERVER_ERROR,
    Verdict.REDIRECTED: Reason.REDIRECTED,
    Verdict.IN_PROGRESS: Reason.IN_PROGRESS,
}
STORED_ANSWERS: Final = frozenset(
    {Verdict.SUCCESS, Verdict.ACCEPTED, Verdict.JOB_ENDED, Verdict.STORED_END, Verdict.HALF_DONE}
)
NO_RESEND: Final = frozenset({Verdict.SERVER_ERROR, Verdict.REDIRECTED, Verdict.KEY_REUSED})


def conclude(
    operation: OperationRecord,
    finding: Finding,
    result: Result,
    tool: AnyTool,
    *,
    resume_at: float | None,
    last: bool = False,
) -> Change:
    """Return what to write about an operation in flight after its attempt's result.

    Args:
        operation: as it stands, in flight.
        finding: what `classify` made of the result.
        result: what came back.
        tool: its tool.
        resume_at: when it may be tried again at the earliest (UTC epoch seconds), for the verdicts that allow it.
        last: the budget is spent with this attempt; a read ends ``failed`` then.
    """
    change = _conclude(operation, finding, result, tool, None if last and tool.is_read else resume_at)
    assert isinstance(change.state, State)
    check(operation.state, change.state)
    return change


def _conclude(
    operation: OperationRecord, finding: Finding, result: Result, tool: AnyTool, resume_at: float | None
) -> Change:
    verdict = finding.verdict
    error = error_of(result)
    if verdict in STORED_ANSWERS and _is_anothers(operation, finding, tool):
        return _unknown(Reason.KEY_CONFLICT, error, no_resend=True, replayed=True)
    if verdict is Verdict.SUCCESS:
        return _succeeded(finding, result)
    if finding.handle is not None:
        return _job(operation, finding, finding.handle, result, tool, resume_at)
    if verdict is Verdict.STORED_END:
        return _stored_end(finding, result, tool, error)
    if verdict is Verdict.HALF_DONE:
        return _failed(Reason.HALF_DONE, Effect.POSSIBLE, error, result, replayed=finding.replayed)
    if tool.is_read:
        return _read(verdict, error, result, resume_at)
    if verdict in UNKNOWN_REASON:
        reason = Reason.EXCEPTION if isinstance(result, Raised) and not result.transport else UNKNOWN_REASON[verdict]
        return _unknown(reason, error, no_resend=verdict in NO_RESEND, resume_at=resume_at, maybe=True)
    if operation.maybe_applied:
        return _after_ambiguity(operation, verdict, error, resume_at)
    if verdict in READY_REASON:
        return Change(state=State.READY, reason=READY_REASON[verdict], resume_at=resume_at, error=error)
    return _failed(FAILED_REASON[verdict], Effect.NONE, error, result)


def _is_anothers(operation: OperationRecord, finding: Finding, tool: AnyTool) -> bool:
    """Whether a replay mark stands on an operation none of whose attempts can have stored anything."""
    return finding.replayed and not operation.maybe_applied and not tool.is_read


def _succeeded(finding: Finding, result: Result) -> Change:
    return Change(
        state=State.SUCCEEDED,
        reason=None,
        resume_at=None,
        error=None,
        result=body_of(result),
        result_status=status_of(result),
        result_state=finding.result_state,
        server_replayed=finding.replayed,
    )


def _job(  # noqa: PLR0917  what is at hand when a job was started
    operation: OperationRecord,
    finding: Finding,
    handle: Handle,
    result: Result,
    tool: AnyTool,
    resume_at: float | None,
) -> Change:
    """A job runs, or has ended. A stored 202 that has lost where to ask, and its id, leaves nothing to follow."""
    if finding.reading is not None:
        told = ended(finding.reading, handle, tool, None)
        return dataclasses.replace(told, server_replayed=finding.replayed, result_status=status_of(result))
    if finding.replayed and operation.maybe_applied and handle.url is None and handle.job_id is None:
        return _unknown(Reason.JOB_GONE, None, no_resend=True, replayed=True)
    policy = tool.contract.polling
    lost = policy.source is None and asked_at(handle, sent_to(operation), policy) is None
    return Change(
        state=State.ACCEPTED,
        reason=Reason.UNTRACKED if lost else None,
        resume_at=resume_at,
        error=None,
        handle=written(handle),
        result=body_of(result),
        result_status=status_of(result),
        server_replayed=finding.replayed,
    )


def _stored_end(finding: Finding, result: Result, tool: AnyTool, error: bytes | None) -> Change:
    """A tool whose 409 means "done already" has the effect; any other stored refusal is the end of the key."""
    if tool.contract.on_409 == "replay" and status_of(result) in {409, 423}:
        return Change(
            state=State.SUCCEEDED,
            reason=Reason.STORED,
            resume_at=None,
            error=error,
            result=body_of(result),
            result_status=status_of(result),
            result_state=ResultState.MISSING,
            server_replayed=True,
        )
    assert isinstance(result, Answer)
    return _failed(Reason.STORED, effect_of_end(result, tool.contract), error, result, replayed=finding.replayed)


def _read(verdict: Verdict, error: bytes | None, result: Result, resume_at: float | None) -> Change:
    """A read changes nothing, so whatever became of it, it may be asked again until the budget is spent."""
    if verdict in FAILED_REASON or verdict is Verdict.REDIRECTED:
        return _failed(FAILED_REASON.get(verdict, Reason.REFUSED), Effect.NONE, error, result)
    if resume_at is None and verdict is not Verdict.UNAUTHORISED:
        return _failed(Reason.BUDGET, Effect.NONE, error, result)
    reason = READY_REASON.get(verdict, Reason.RETRY_AFTER)
    return Change(state=State.READY, reason=reason, resume_at=resume_at, error=error)


def _after_ambiguity(
    operation: OperationRecord, verdict: Verdict, error: bytes | None, resume_at: float | None
) -> Change:
    """Nothing that a later attempt is told proves anything about the earlier one."""
    if verdict in READY_REASON:
        reason = operation.reason or Reason.LOST_ANSWER
        return Change(state=State.UNKNOWN, reason=reason, resume_at=resume_at, error=error)
    reason = Reason.KEY_CONFLICT if verdict is Verdict.KEY_REUSED else Reason.REFUSED_LATER
    return _unknown(reason, error, no_resend=verdict in NO_RESEND, resume_at=resume_at)


def _unknown(
    reason: Reason,
    error: bytes | None,
    *,
    no_resend: bool = False,
    resume_at: float | None = None,
    maybe: bool = False,
    replayed: bool = False,
) -> Change:
    return Change(
        state=State.UNKNOWN,
        reason=reason,
        error=error,
        resume_at=resume_at,
        no_resend=True if no_resend else UNSET,
        server_replayed=True if replayed else UNSET,
        mark_maybe=maybe,
    )


def _failed(reason: Reason, effect: Effect, error: bytes | None, result: Result, *, replayed: bool = False) -> Change:
    return Change(
        state=State.FAILED,
        reason=reason,
        effect=effect,
        resume_at=None,
        error=error,
        result=body_of(result),
        result_status=status_of(result),
        server_replayed=replayed,
    )


def interrupted(operation: OperationRecord, tool: AnyTool) -> Change:
    """Return what to write about an operation that is found in flight with nobody behind it."""
    if tool.is_read:
        return Change(state=State.READY, reason=Reason.RETRY_AFTER, resume_at=None)
    check(operation.state, State.UNKNOWN)
    return Change(state=State.UNKNOWN, reason=Reason.INTERRUPTED, resume_at=None, mark_maybe=True, mark_taken_over=True)


def evidence_of(result: Result, attempt: int) -> NewEvidence:
    """Return what was seen, to be filed with the conclusion; of a body 64 KiB are kept (the result is kept whole)."""
    if isinstance(result, Answer):
        return answer_evidence("answer", result, attempt=attempt)
    if isinstance(result, Returned):
        return NewEvidence(kind="answer", attempt=attempt, detail="returned")
    return NewEvidence(kind="no_answer", attempt=attempt, detail=failure_text(result))


KEPT_BODY: Final = 65536
"""Bytes of a body that are kept as evidence."""


def answer_evidence(kind: EvidenceKind, answer: Answer, *, attempt: int = 0, detail: str = "") -> NewEvidence:
    """Return an answer as evidence: its status, the headers that may be stored, the start of its body."""
    return NewEvidence(
        kind=kind,
        attempt=attempt,
        status=answer.status,
        headers=kept_headers(answer),
        body=answer.body[:KEPT_BODY],
        detail=detail,
    )


def failure_text(failure: SendFailure | Raised) -> str:
    """Return in one line why no answer came."""
    return f"{failure.error}: {failure.detail}".rstrip(": ")


SECRET_HEADERS: Final = frozenset({"set-cookie", "authorization", "proxy-authorization", "www-authenticate", "cookie"})


def kept_headers(answer: Answer) -> tuple[tuple[str, str], ...]:
    """Return the headers that may be stored: those that can carry no credential."""
    return tuple((name, value) for name, value in answer.headers if name.lower() not in SECRET_HEADERS)


def body_of(result: Result) -> bytes | None:
    """Return the bytes of a result, or None where none came."""
    return result.body if isinstance(result, Answer | Returned) else None


def status_of(result: Result) -> int | None:
    """Return the HTTP status of a result, or None."""
    return result.status if isinstance(result, Answer) else None


def error_of(result: Result) -> bytes | None:
    """Return what went wrong as JSON text, or None where nothing did; our own transport's words are marked as such."""
    if isinstance(result, Returned) or (isinstance(result, Answer) and result.status < 300):
        return None
    seen: dict[str, Any]
    if isinstance(result, Answer):
        seen = describe_error(result)
    else:
        seen = {"error": result.error, "detail": result.detail}
        if isinstance(result, SendFailure) or result.transport:
            sent = result.maybe_sent if isinstance(result, SendFailure) else not result.proof
            seen |= {"seen_by": "transport", "maybe_sent": sent}
    return ascii_json(seen)
