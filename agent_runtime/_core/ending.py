"""The protocol of a session's end, and of a person's decision about an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pydantic_core

from agent_runtime._core.canonical import canonical_json
from agent_runtime._core.effects import Job, Load, NewId, Persist, ask
from agent_runtime._core.requests import refuse_sets
from agent_runtime._model import (
    SETTLED,
    Advance,
    Change,
    Effect,
    EndSession,
    NewEvidence,
    OperationRecord,
    Reason,
    ResultState,
    SessionState,
    State,
    Took,
)
from agent_runtime.config._checks import flag, one_of, text
from agent_runtime.errors import ArgumentsRefused, ConfigError, LeaseLost, LedgerError, UnsettledStep

if TYPE_CHECKING:
    from agent_runtime._core.desk import Desk
    from agent_runtime._core.effects import Steps

DECIDABLE = frozenset({State.UNKNOWN, State.ACCEPTED})


def finish(desk: Desk, state: SessionState) -> Steps[None]:
    """End a session.

    Raises:
        UnsettledStep: an operation of it is not settled; nothing was changed.
        LeaseLost: another worker has the session.
    """
    write_id = yield from ask(NewId())
    entry = EndSession(write_id=write_id, session_id=desk.session_id, fence=desk.fence, state=state)
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.TOOK:
        return
    if outcome.took is Took.FENCE_LOST:
        msg = f"session {desk.session_id}: another worker took it over; it was not ended by this object"
        raise LeaseLost(msg, session_id=desk.session_id)
    left = desk.book.unsettled()
    names = ", ".join(f"{operation.label} ({operation.state})" for operation in left) or "a step"
    msg = (
        f"session {desk.session_id} is not ended: {names} is not settled. Nothing was changed. Settle it: the same "
        "call, session.settle() or runtime.decide()"
    )
    raise UnsettledStep(msg, session_id=desk.session_id, blocking=left[0].label if left else None)


def decide(  # noqa: PLR0917  what a person says, in the order of the call
    tenant: str,
    operation_id: str,
    succeeded: bool,
    result: Any,
    by: str,
    evidence: str,
    effect: Literal["none", "possible"],
) -> Steps[OperationRecord]:
    """Settle an operation by a person's word; final. The same word again changes nothing.

    Raises:
        ConfigError: no such operation, it is not one that a person decides, or what is said of it is no decision: a
            wrong type, an empty name or evidence, a result without a JSON form. Nothing was written.
        LedgerError: it was not written.
    """
    text("operation", operation_id)
    text("by", by)
    text("evidence", evidence)
    change = _said(result, effect, succeeded=succeeded)
    operation = yield from ask(Load(operation_id))
    if operation is not None:
        session_id = operation.session_id
        seen = yield from ask(Job(lambda ledger: ledger.load(name=session_id, tenant=tenant)))
        operation = operation if seen is not None else None
    if operation is not None and _said_before(operation, change):
        return operation
    if operation is None or operation.state not in DECIDABLE:
        raise _not_decidable(operation_id, operation)
    write_id = yield from ask(NewId())
    entry = Advance(
        write_id=write_id,
        session_id=operation.session_id,
        fence=None,
        operation_id=operation.id,
        expect_version=operation.version,
        change=change,
        evidence=(NewEvidence(kind="decision", detail=evidence, by=by),),
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.STATE_CONFLICT:
        raise _not_decidable(operation_id, outcome.operation)
    if outcome.took is not Took.TOOK or outcome.operation is None:
        msg = f"operation {operation_id}: the decision was not written ({outcome.took} {outcome.error}); say it again"
        raise LedgerError(msg)
    return outcome.operation


def _said(result: Any, effect: Literal["none", "possible"], *, succeeded: bool) -> Change:
    if not flag("succeeded", succeeded):
        one_of("effect", effect, ("none", "possible"))
        if result is not None:
            raise ConfigError("result= is of an effect that stands, and succeeded=False says that none does")
        return Change(state=State.FAILED, reason=Reason.DECIDED, effect=Effect(effect), resume_at=None)
    if effect != "none":
        one_of("effect", effect, ("none", "possible"))
        raise ConfigError("effect='possible' is said of a failed operation, and succeeded=True says that it stands")
    if result is None:
        body, state = b"", ResultState.MISSING
    else:
        body, state = canonical_json(_as_json(result)), ResultState.OK
    return Change(
        state=State.SUCCEEDED, reason=Reason.DECIDED, resume_at=None, error=None, result=body, result_state=state
    )


def _as_json(result: Any) -> Any:
    refuse_sets(result, "result", done="Nothing was written")
    try:
        return pydantic_core.to_jsonable_python(result, inf_nan_mode="constants")
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        msg = f"result has no JSON form ({error}). Nothing was written; give plain JSON values"
        raise ArgumentsRefused(msg) from None


def _said_before(operation: OperationRecord, change: Change) -> bool:
    """Whether the same was decided already: a plan that decides by itself says so again in every replay."""
    if operation.reason is not Reason.DECIDED or operation.state is not change.state:
        return False
    if operation.state is State.FAILED:
        return operation.effect == change.effect
    return operation.result == change.result


def _not_decidable(operation_id: str, operation: OperationRecord | None) -> ConfigError:
    if operation is None:
        return ConfigError(f"no operation {operation_id!r} in this ledger; runtime.attention() lists those that wait")
    if operation.state in SETTLED:
        why = "settled, and that is final"
    else:
        why = "at work or waiting; resume its session first, then decide if it stays unknown"
    msg = f"operation {operation_id} (step {operation.label}) is {operation.state}: {why}. Nothing was changed"
    return ConfigError(msg, session_id=operation.session_id, step=operation.label, operation_id=operation.id)
