"""What one answer, or none, says about its own attempt; what follows for the operation is `conclude`'s.

Facts: RFC 9110 section 15, RFC 6585, RFC 8470, the Idempotency-Key draft sections 2.6 and 2.7, RFC 9457.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from agent_runtime._core.challenges import refuses_token
from agent_runtime._core.job_reading import read_start
from agent_runtime._core.job_start import start_of
from agent_runtime._core.problem import read_problem
from agent_runtime._core.results import read_result
from agent_runtime._core.retry_after import retry_after
from agent_runtime._model import (
    Answer,
    BodyState,
    Effect,
    Handle,
    Raised,
    Request,
    ResultState,
    Returned,
    SendFailure,
)
from agent_runtime.config import STANDARD_MARKS, HttpTool

if TYPE_CHECKING:
    from agent_runtime._core.problem import Problem
    from agent_runtime.config import AnyTool, JobReading, PollPolicy, ReplayMark, ToolContract


class Verdict(StrEnum):
    """What is known of one attempt."""

    SUCCESS = "success"
    ACCEPTED = "accepted"  # a job runs
    JOB_ENDED = "job_ended"  # a job ran, and the answer that tells of it tells its end too
    REFUSED = "refused"  # not applied, and asking again would not help
    NOT_SENT = "not_sent"  # the request certainly did not arrive
    NOT_APPLIED = "not_applied"  # not applied, and asking again later may help
    UNAUTHORISED = "unauthorised"  # not applied; a fresh token may help
    IN_PROGRESS = "in_progress"  # a request under this key is running
    LOST = "lost"  # may have been applied; a resend under the key is in order
    SERVER_ERROR = "server_error"  # may have been applied; a resend could double it
    STORED_END = "stored_end"  # the tool's stored end of this key
    KEY_REUSED = "key_reused"  # the key stands for another payload
    HALF_DONE = "half_done"  # the tool stopped in the middle and keeps that as its end
    REDIRECTED = "redirected"  # answered by a redirect that proves nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict with what came with it.

    Attributes:
        replayed: the answer bears a replay mark.
        wait: seconds that the tool asked to wait, or None.
        result_state: of a success, whether its body can be used.
        handle: of an accepted job; reading: what the answer says about it, if it has ended already.
    """

    verdict: Verdict
    replayed: bool = False
    wait: float | None = None
    result_state: ResultState = ResultState.OK
    handle: Handle | None = None
    reading: JobReading | None = None


NOT_APPLIED: Final = frozenset({408, 421, 425, 429})
GATEWAY: Final = frozenset({502, 503, 504})
KEY_REUSED: Final = frozenset(
    {
        "key-reused",
        "idempotency_key_reused",
        "idempotency-key-reused",
        "idempotency_error",
        "IdempotentParameterMismatch",
    }
)
KEY_REUSED_STATUSES: Final = frozenset({400, 409, 417, 422})
"""The Idempotency-Key draft says 422; 400 is what Stripe's and EC2's codes come with."""
TELLS_ITS_END: Final = frozenset({"operation-location", "azure-async", "aip", "body", "bare"})
"""Protocols whose first answer has the form of a status, so that it can be an end already.

Not a job of the tool's own adapter: that reads polls, and a start has a form of its own.
"""
HALF_DONE: Final = frozenset({"partly-applied"})
IN_PROGRESS: Final = frozenset(
    {"in-progress", "idempotency_key_in_use", "request_in_progress", "operation-in-progress"}
)


def classify(
    result: Answer | SendFailure | Returned | Raised, tool: AnyTool, *, now: float, request: Request | None = None
) -> Finding:
    """Return what a result says about its own attempt.

    Args:
        result: what came back, or why nothing did.
        tool: its tool.
        now: UTC epoch seconds of its arrival, by the database's clock.
        request: what was sent, if it is at hand.
    """
    if isinstance(result, SendFailure):
        return Finding(verdict=Verdict.LOST if result.maybe_sent else Verdict.NOT_SENT)
    if isinstance(result, Returned):
        return Finding(verdict=Verdict.SUCCESS, result_state=read_result(result.body, BodyState.WHOLE, tool).state)
    if isinstance(result, Raised):
        return _raised(result, tool.contract)
    return _answer(result, tool, now, request)


def _raised(raised: Raised, contract: ToolContract) -> Finding:
    if raised.proof:
        verdict = Verdict.NOT_SENT if raised.retry_after is None and raised.transport else Verdict.NOT_APPLIED
        if raised.retry_after is None and not raised.transport:
            verdict = Verdict.REFUSED
        return Finding(verdict=verdict, wait=raised.retry_after)
    if raised.transport or raised.interrupted:
        return Finding(verdict=Verdict.LOST)
    return Finding(verdict=_by_5xx_rule(contract))


def _answer(answer: Answer, tool: AnyTool, now: float, request: Request | None) -> Finding:
    contract = tool.contract
    replayed = is_replayed(answer, contract)
    wait = retry_after(answer.headers, now=now, status=answer.status)
    if answer.status < 300:
        return _success(answer, tool, now, request, replayed=replayed, wait=wait)
    if answer.status < 400:
        return Finding(verdict=Verdict.REDIRECTED, replayed=replayed)
    codes = _codes(read_problem(answer))
    if _half_done(codes, contract):
        return Finding(verdict=Verdict.HALF_DONE, replayed=replayed)
    if replayed or answer.status in contract.stored_failures:
        return Finding(verdict=Verdict.STORED_END, replayed=replayed)
    if answer.status in KEY_REUSED_STATUSES and codes & (KEY_REUSED | set(contract.key_reused_codes)):
        return Finding(verdict=Verdict.KEY_REUSED)
    if refuses_token(answer):
        return Finding(verdict=Verdict.UNAUTHORISED, wait=wait)
    verdict = _plain_refusal(answer.status, codes, contract)
    # A 409 that is declared to mean "done already" says the same as a replay mark.
    return Finding(verdict=verdict, replayed=verdict is Verdict.STORED_END, wait=wait)


def _success(
    answer: Answer, tool: AnyTool, now: float, request: Request | None, *, replayed: bool, wait: float | None
) -> Finding:
    policy = tool.contract.polling
    handle = start_of(answer, request if request is not None else asked_of(tool), policy, now=now)
    if handle is not None:
        reading = _first_reading(answer, handle, policy, now)
        if reading is not None and reading.status != "running":
            return Finding(verdict=Verdict.JOB_ENDED, replayed=replayed, handle=handle, reading=reading)
        return Finding(verdict=Verdict.ACCEPTED, replayed=replayed, handle=handle, wait=wait)
    if answer.status == 206:  # a part, though none was asked for
        return Finding(verdict=Verdict.SUCCESS, replayed=replayed, result_state=ResultState.UNREADABLE)
    state = read_result(answer.body, answer.body_state, tool).state
    return Finding(verdict=Verdict.SUCCESS, replayed=replayed, result_state=state)


def asked_of(tool: AnyTool) -> Request:
    """Return the form of a tool's requests, where the one that was sent is not at hand."""
    if isinstance(tool, HttpTool):
        return Request(method=tool.method, url=tool.url)
    return Request(method="POST", url="")


def _first_reading(answer: Answer, handle: Handle, policy: PollPolicy, now: float) -> JobReading | None:
    if handle.protocol not in TELLS_ITS_END:
        return None
    return read_start(answer, handle, policy, now=now)


def _plain_refusal(status: int, codes: frozenset[str], contract: ToolContract) -> Verdict:
    if status in NOT_APPLIED:
        return Verdict.NOT_APPLIED
    if status in {409, 423}:
        return _conflict(codes, contract)
    if status < 500:
        return Verdict.REFUSED
    if status in GATEWAY:  # whoever stands before the tool says so: no promise of the tool covers it
        return Verdict.LOST if contract.honours_keys else Verdict.SERVER_ERROR
    return _by_5xx_rule(contract)


def _conflict(codes: frozenset[str], contract: ToolContract) -> Verdict:
    if codes & (IN_PROGRESS | set(contract.in_progress_codes)):
        return Verdict.IN_PROGRESS
    if contract.on_409 == "replay":
        return Verdict.STORED_END
    if contract.on_409 == "in_progress" or (contract.on_409 is None and contract.honours_keys):
        return Verdict.IN_PROGRESS
    return Verdict.REFUSED


def _by_5xx_rule(contract: ToolContract) -> Verdict:
    if contract.on_5xx == "not_applied":
        return Verdict.NOT_APPLIED
    return Verdict.LOST if contract.on_5xx == "stored" else Verdict.SERVER_ERROR


def effect_of_end(answer: Answer, contract: ToolContract) -> Effect:
    """Return whether a failure that the tool stored as its end may have left something behind."""
    if _half_done(_codes(read_problem(answer)), contract):
        return Effect.POSSIBLE
    return Effect.POSSIBLE if answer.status >= 500 and contract.on_5xx != "not_applied" else Effect.NONE


def _codes(problem: Problem | None) -> frozenset[str]:
    """Return what identifies a problem: its type, the last part of its type, its vendor code."""
    if problem is None:
        return frozenset()
    last = problem.type.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].rsplit("#", 1)[-1]
    return frozenset(filter(None, (problem.type, last, problem.code)))


def _half_done(codes: frozenset[str], contract: ToolContract) -> bool:
    """Whether an answer's codes say that the tool stopped in the middle and keeps that as its end."""
    return bool(codes & (HALF_DONE | set(contract.half_done_codes)))


def is_replayed(answer: Answer, contract: ToolContract) -> bool:
    """Whether the VALUE of a replay mark says that the answer is the stored one; a missing mark proves nothing."""
    declared: tuple[ReplayMark, ...] = contract.idempotency.replay_marks if contract.idempotency else ()
    for mark in (*STANDARD_MARKS, *declared):
        values = {value.strip().lower() for value in answer.header_list(mark.header)}
        if mark.value.lower() in values or (mark.value == "true" and values & {"?1", "1"}):
            return True
    return False
