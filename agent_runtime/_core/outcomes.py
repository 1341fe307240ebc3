"""From a row of the ledger to what a caller is told: one of eight words, or the error that says the same."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.handles import handle_of
from agent_runtime._core.reach import obstacle_of
from agent_runtime._core.results import ascii_json, read_result
from agent_runtime._core.settle import only_a_decision
from agent_runtime._model import (
    SETTLED,
    BodyState,
    Effect,
    Outcome,
    Reason,
    ResultState,
    State,
    Status,
    ToolResult,
)
from agent_runtime._model.quoting import quoted, quoted_json
from agent_runtime._model.words import BECAUSE as BECAUSE  # noqa: PLC0414  the table belongs to this module's readers too
from agent_runtime._model.words import OURS, Sentence, granted_of, seen_by_transport, sentences, since_settled, why_of
from agent_runtime.errors import (
    KeyConflict,
    PartialResult,
    PlanDiverged,
    ResultInvalid,
    StepCancelled,
    StepError,
    StepFailed,
    StepPending,
    StepUnknown,
    UnsettledStep,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._core.places import Place
    from agent_runtime._model import OperationRecord, Source
    from agent_runtime.config import AnyTool

STATUS: Final = {
    State.READY: Status.PENDING,
    State.IN_FLIGHT: Status.UNKNOWN,
    State.ACCEPTED: Status.PENDING,
    State.UNKNOWN: Status.UNKNOWN,
    State.SUCCEEDED: Status.SUCCEEDED,
    State.FAILED: Status.FAILED,
    State.CANCELLED: Status.CANCELLED,
}
SAID: Final = 600
"""Characters of what a tool said that a message quotes."""
KIND: Final = {Reason.APPROVAL: "approval", Reason.AUTH: "auth"}


def outcome_of(
    operation: OperationRecord,
    tool: AnyTool,
    step: str,
    *,
    source: Source,
    stay: str = "",
    since: State | None = None,
    words: Mapping[str, str] | None = None,
) -> Outcome:
    """Return what a caller is told of an operation at a step.

    Args:
        operation: as the ledger has it.
        tool: its tool.
        step: the label.
        source: ``sent`` if this process sent it.
        stay: why nothing more could be done.
        since: the state in which it ended after it was delivered as it stands in ``operation``.
        words: sentences for a model in place of the English ones.
    """
    status = _status(operation)
    value, result_state, unusable = _value(operation, tool)
    why = why_of(
        operation.state,
        operation.reason,
        operation.effect,
        unusable=unusable,
        stay=stay,
        obstacle=obstacle_of(operation) if operation.reason in {Reason.UNTRACKED, Reason.JOB_UNCLEAR} else None,
    )
    settled = operation.state in SETTLED
    return Outcome(
        status=status,
        step=step,
        tool=operation.tool,
        session_id=operation.session_id,
        key=operation.key,
        operation_id=operation.id,
        state=operation.state,
        reason=operation.reason,
        effect=operation.effect,
        result_state=result_state,
        value=value,
        raw=operation.result if settled else None,
        error=_error(operation),
        kind=_kind(operation),
        source=source,
        server_replayed=operation.server_replayed,
        attempts=operation.attempts,
        resume_at=operation.resume_at,
        http_status=operation.result_status if settled else None,
        decide_only=status is Status.UNKNOWN and only_a_decision(operation, tool.contract, stay=stay),
        since=since,
        message=sentences(None, why),
        why=why,
        words=words,
        **_job(operation),
    )


def _status(operation: OperationRecord) -> Status:
    if operation.state is State.SUCCEEDED and operation.partial:
        return Status.COMPLETED_WITH_ERRORS
    if operation.state is State.ACCEPTED and operation.reason is Reason.POLL_BOUND:
        return Status.TIMED_OUT
    return STATUS[operation.state]


def _job(operation: OperationRecord) -> dict[str, Any]:
    """Return what is known of the job that an operation started."""
    if not operation.handle:
        return {}
    handle = handle_of(operation)
    names = ("job_id", "started_at", "progress", "counts", "errors_url")
    return {name: getattr(handle, name) for name in names} | {"status_url": handle.url}


def _value(operation: OperationRecord, tool: AnyTool) -> tuple[Any, ResultState | None, str]:
    if operation.state is not State.SUCCEEDED:
        return None, None, ""
    if operation.result_state in {ResultState.UNREADABLE, ResultState.MISSING}:
        return None, operation.result_state, ""
    reading = read_result(operation.result or b"", BodyState.WHOLE, tool)
    return reading.value, reading.state, reading.problem


def _error(operation: OperationRecord) -> dict[str, Any] | None:
    if not operation.error:
        return None
    error: dict[str, Any] = json.loads(operation.error)
    if error.get("seen_by") == "transport" and operation.request is not None:
        error["target"] = operation.origin
    return error


def _kind(operation: OperationRecord) -> str | None:
    if operation.state is State.ACCEPTED:
        return "job"
    if operation.state is not State.READY:
        return None
    return KIND.get(operation.reason, "parked") if operation.reason is not None else "parked"


def not_started(place: Place, tool: str, session_id: str, words: Mapping[str, str] | None = None) -> Outcome:
    """Return the outcome of a call that was recorded as not started, or that met another one at its position."""
    operation = place.operation
    diverged = place.kind == "diverged"
    blocking = operation.label if operation is not None else "an earlier step"
    why: Sentence = ("unsettled", (("blocking", blocking),))
    if diverged:
        there = operation.tool if operation is not None else "?"
        why = (
            ("strayed", (("step", place.strayed), ("tool", there)))
            if place.strayed
            else ("diverged", (("tool", there),))
        )
    return Outcome(
        status=Status.NOT_STARTED,
        step=place.label,
        tool=tool,
        session_id=session_id,
        reason="diverged" if diverged else "unsettled",
        blocking=operation.label if operation is not None and not diverged else None,
        message=sentences(None, (why,)),
        why=(why,),
        words=words,
    )


def result_of(outcome: Outcome) -> ToolResult[Any]:
    """Return the result of an outcome that has one."""
    assert outcome.key is not None
    assert outcome.source is not None
    return ToolResult(
        value=outcome.value,
        key=outcome.key,
        step=outcome.step,
        source=outcome.source,
        server_replayed=outcome.server_replayed,
        attempts=outcome.attempts,
        partial=outcome.status is Status.COMPLETED_WITH_ERRORS,
    )


def error_of(outcome: Outcome, *, allow_partial: bool = False, now: float | None = None) -> StepError | None:
    """Return the error that says what an outcome says, or None if it has a result that can be used.

    ``now``: UTC epoch seconds, for how long a wait still is.
    """
    if outcome.ok or (allow_partial and outcome.status is Status.COMPLETED_WITH_ERRORS):
        return None
    build = _BUILD[outcome.status]
    if outcome.status is Status.SUCCEEDED:
        build = _result_invalid
    if outcome.reason == Reason.KEY_CONFLICT and outcome.status is Status.FAILED:
        build = _key_conflict
    if build is _pending:
        return _pending(outcome, now)
    return build(outcome)


def _ids(outcome: Outcome) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "session_id": outcome.session_id,
        "step": outcome.step,
        "key": outcome.key,
        "operation_id": outcome.operation_id,
    }


def _where(outcome: Outcome) -> str:
    return f"session {outcome.session_id}, step {outcome.step} ({outcome.tool})"


def _text(*parts: str) -> str:
    """Return sentences one after another, without those that are empty."""
    return " ".join(part for part in parts if part)


def _said(outcome: Outcome) -> str:
    """Return who said what: the tool, or our own side of the connection."""
    error = outcome.error
    if not error:
        return ""
    if error.get("seen_by") == "transport":
        detail = str(error.get("detail") or "")
        return _text(seen_by_transport(outcome), f"Its text: {quoted(detail, SAID)}" if detail else "")
    who = "There is no token that can be used" if error.get("seen_by") == "authorisation" else "It said"
    told = {name: value for name, value in error.items() if name not in OURS}
    return _text(f"{who}: {quoted_json(told, SAID)}", granted_of(outcome))


def moment_text(moment: float, now: float | None) -> str:
    """Return a moment (UTC epoch seconds) as text, with the seconds until then where ``now`` is known."""
    text = dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return text if now is None else f"{text} (in {max(0.0, moment - now):.0f} s)"


def _failed(outcome: Outcome) -> StepError:
    effect = outcome.effect or Effect.NONE
    stands = "nothing took effect" if effect is Effect.NONE else "PART of it may have taken effect"
    msg = _text(f"{_where(outcome)}: failed, {stands}.", outcome.message, _said(outcome))
    return StepFailed(msg, effect=str(effect), **_ids(outcome))


def _key_conflict(outcome: Outcome) -> StepError:
    msg = _text(
        f"{_where(outcome)}: the tool says that key {outcome.key} was used with another payload. Nothing took effect "
        "by this call, and no new key is made. Look for what else sends this key.",
        _said(outcome),
    )
    return KeyConflict(msg, **_ids(outcome))


ENDED_SINCE: Final = (
    "The code is given this again because it went on after it. There is nothing to decide: session.steps() shows how "
    "it ended"
)


def _unknown(outcome: Outcome) -> StepError:
    decide = f"runtime.decide({outcome.operation_id!r}, succeeded=True, result=..., by=..., evidence=...)"
    if outcome.since is not None:
        happened, ways = "it was NOT known whether it took effect.", _text(since_settled(outcome), ENDED_SINCE)
    elif outcome.decide_only:
        happened = "it is NOT known whether it took effect."
        ways = (
            "Do not call it again, under this key or another. Nothing settles it by itself: look at the target, then "
            f"say what you saw: {decide}"
        )
    else:
        happened = "it is NOT known whether it took effect."
        ways = (
            "Do not call it again under another key. The same call, session.settle() or a resume settles it by "
            f"evidence; if you have seen what became of it, say so: {decide}"
        )
    return StepUnknown(_text(f"{_where(outcome)}: {happened}", outcome.message, _said(outcome), ways), **_ids(outcome))


def _pending(outcome: Outcome, now: float | None = None) -> StepError:
    next_ = {
        "job": "It is followed by its job id; do not start it again.",
        "parked": "The same call goes on with it later, under the same key.",
        "auth": "Bring new credentials, then the same call goes on with it under the same key.",
        "approval": "Once it is granted, the same call goes on with it.",
    }[outcome.kind or "parked"]
    when = f"Not before {moment_text(outcome.resume_at, now)}." if outcome.resume_at else ""
    happened = "not finished."
    if outcome.since is not None:
        happened, when, next_ = "it was not finished.", since_settled(outcome), ENDED_SINCE
    msg = _text(f"{_where(outcome)}: {happened}", outcome.message, _said(outcome), when, next_)
    return StepPending(msg, kind=outcome.kind or "parked", resume_at=outcome.resume_at, **_ids(outcome))


def _partial(outcome: Outcome) -> StepError:
    msg = _text(f"{_where(outcome)}: done, with errors in it.", outcome.message, "outcome.value holds what was done")
    return PartialResult(msg, **_ids(outcome))


def _result_invalid(outcome: Outcome) -> StepError:
    msg = _text(
        f"{_where(outcome)}: it took effect, and its result is {outcome.result_state}.",
        outcome.message,
        "It is never sent again; .raw holds the bytes that came",
    )
    return ResultInvalid(msg, result_state=str(outcome.result_state), raw=outcome.raw or b"", **_ids(outcome))


def _not_started(outcome: Outcome) -> StepError:
    msg = _text(f"{_where(outcome)}: NOT started, nothing was sent.", outcome.message)
    if outcome.reason == "diverged" and any(name == "strayed" for name, _ in outcome.why):
        return PlanDiverged(msg, **_ids(outcome))
    if outcome.reason == "diverged":
        msg += (
            " Call what is recorded here, or give this call a branch() or an address (at=) of its own; another plan is "
            "another session"
        )
        return PlanDiverged(msg, **_ids(outcome))
    msg += (
        " Settle it first (the same call, session.settle() or runtime.decide()), or use another branch or "
        "after_unknown='continue'"
    )
    return UnsettledStep(msg, blocking=outcome.blocking, blocking_session=outcome.session_id, **_ids(outcome))


def _cancelled(outcome: Outcome) -> StepError:
    msg = _text(f"{_where(outcome)}: cancelled, nothing took effect.", outcome.message)
    return StepCancelled(msg, **_ids(outcome))


_BUILD: Final = {
    Status.SUCCEEDED: _result_invalid,
    Status.COMPLETED_WITH_ERRORS: _partial,
    Status.FAILED: _failed,
    Status.PENDING: _pending,
    Status.TIMED_OUT: _pending,
    Status.UNKNOWN: _unknown,
    Status.NOT_STARTED: _not_started,
    Status.CANCELLED: _cancelled,
}

KEPT: Final = ("state", "reason", "attempts", "resume_at", "server_replayed")


def snapshot(operation: OperationRecord, stay: str = "") -> bytes:
    """Return what has to be kept of an unsettled operation so that the same outcome can be delivered again.

    ``stay``: why nothing more could be done when it was delivered.
    """
    kept = {name: getattr(operation, name) for name in KEPT} | {"stay": stay}
    kept["error"] = json.loads(operation.error) if operation.error else None
    kept["handle"] = json.loads(operation.handle) if operation.handle else None
    return ascii_json(kept)


def restored(operation: OperationRecord, kept: bytes) -> tuple[OperationRecord, str]:
    """Return the operation as it stood when a snapshot was taken, and why nothing more could be done then."""
    told = json.loads(kept)
    before = dataclasses.replace(
        operation,
        state=State(told["state"]),
        reason=Reason(told["reason"]) if told["reason"] is not None else None,
        attempts=told["attempts"],
        resume_at=told["resume_at"],
        server_replayed=told["server_replayed"],
        error=json.dumps(told["error"]).encode() if told["error"] is not None else None,
        handle=json.dumps(told["handle"]).encode() if told["handle"] is not None else None,
        effect=None,
        result_state=None,
        partial=False,
    )
    return before, told["stay"]
