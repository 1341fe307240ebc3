"""The protocol of taking positions: operations and steps written in one, their keys derived once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, NewId, Persist, ask
from agent_runtime._core.keys import derive_key_from_canonical
from agent_runtime._core.outcomes import outcome_of
from agent_runtime._core.places import matches
from agent_runtime._core.requests import carrier_of, scheme_of, with_key
from agent_runtime._core.run import seconds_of
from agent_runtime._model import SETTLED, NewOperation, NewStep, OperationRecord, Outcome, Reserve, StepRecord, Took
from agent_runtime._model.key_formats import check_key
from agent_runtime.config import FunctionTool, HeaderCarrier, defaults
from agent_runtime.errors import EntryRefused, KeyConflict, LeaseLost, LedgerError, UnsettledStep

if TYPE_CHECKING:
    from agent_runtime._core.desk import Call, Desk
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.places import Place
    from agent_runtime._model import WriteOutcome
    from agent_runtime.config import AnyTool


def reserve(desk: Desk, calls: list[tuple[Call, Place]]) -> Steps[list[OperationRecord | Outcome]]:
    """Write the rows of placed calls in one transaction; return for each its operation, or an outcome without one.

    Raises:
        KeyConflict, UnsettledStep: the caller's own key is in use.
        LeaseLost: another worker has the session.
        LedgerError: nothing was written.
    """
    operations: list[NewOperation] = []
    steps: list[NewStep] = []
    for call, place in calls:
        new = None
        if place.kind == "new":
            identity = yield from ask(NewId())
            new = _new_operation(desk, call, place, identity)
            operations.append(new)
        steps.append(_new_step(call, place, new))
    write_id = yield from ask(NewId())
    entry = Reserve(
        write_id=write_id,
        session_id=desk.session_id,
        fence=desk.fence,
        operations=tuple(operations),
        steps=tuple(steps),
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.POSITION_TAKEN:
        there = yield from _found(desk, calls)
        if there:
            return there
    if outcome.took is not Took.TOOK:
        return [_not_reserved(desk, calls, outcome)]
    try:
        return list(_keep(desk, calls, steps, outcome))
    except BaseException:
        _keep(desk, calls, steps, outcome)  # whole, though it was cut short: some rows of many would be misread
        raise


def _found(desk: Desk, calls: list[tuple[Call, Place]]) -> Steps[list[OperationRecord | Outcome]]:
    """Return the operations that stand at the places of equal calls, or nothing.

    A call that was interrupted while its rows were committed left positions that only the ledger knew of. The session
    is held by this fence, so they are its own, and the same calls made again go on with them.
    """
    session = desk.book.session
    loaded = yield from ask(Job(lambda ledger: ledger.load(name=session.id, tenant=session.tenant)))
    if loaded is None:
        return []
    steps = {step.label: step for step in loaded.steps}
    operations = {operation.id: operation for operation in loaded.operations}
    found: list[tuple[Place, StepRecord, OperationRecord]] = []
    for call, place in calls:
        step = steps.get(place.label)
        operation = operations.get(step.operation_id or "") if step is not None else None
        if step is None or operation is None or not matches(call.ask(), operation, step):
            return []
        found.append((place, step, operation))
    for place, step, operation in found:
        desk.book.update(operation)
        desk.book.began(operation.id, place.label)
        desk.book.put(step)
    return [operation for _, _, operation in found]


def _keep(
    desk: Desk, calls: list[tuple[Call, Place]], steps: list[NewStep], outcome: WriteOutcome
) -> list[OperationRecord]:
    made = iter(outcome.operations)
    result: list[OperationRecord] = []
    for (_, place), step in zip(calls, steps, strict=True):
        operation = next(made) if place.kind == "new" else place.operation
        if operation is not None:
            desk.book.update(operation)
            result.append(operation)
        if place.kind == "new" and operation is not None:
            desk.book.began(operation.id, place.label)
        desk.book.put(_row(desk.session_id, step))
    return result


def _row(session_id: str, step: NewStep) -> StepRecord:
    return StepRecord(
        session_id=session_id,
        label=step.label,
        branch=step.branch,
        index=step.index,
        seq=step.seq,
        kind=step.kind,
        tool=step.tool,
        fingerprint=step.fingerprint,
        args_hash=step.args_hash,
        operation_id=step.operation_id,
        address=step.address,
    )


def _new_step(call: Call, place: Place, new: NewOperation | None) -> NewStep:
    refused = place.kind == "refuse"
    joined = place.operation.id if place.operation is not None and place.kind == "join" else None
    return NewStep(
        label=place.label,
        branch=place.branch,
        index=place.index,
        seq=place.seq,
        kind="refused" if refused else "call",
        tool=call.tool.name,
        fingerprint=call.validated.fingerprint,
        args_hash=call.frozen.args_hash,
        operation_id=new.id if new is not None else joined,
        address=call.at,
        takes_over=place.takes_over,
    )


def _new_operation(desk: Desk, call: Call, place: Place, identity: str) -> NewOperation:
    tool, frozen = call.tool, call.frozen
    idempotency = tool.contract.idempotency
    carrier = carrier_of(tool)
    key = _key(desk, call, place, carrier)
    request = None if frozen.request is None else with_key(frozen.request, key, carrier)
    lifetime = seconds_of(idempotency.lifetime) if idempotency is not None else defaults.KEY_LIFETIME
    return NewOperation(
        id=identity,
        label=place.label,
        tool=tool.name,
        kind=tool.contract.kind,
        args=frozen.args,
        fingerprint=call.validated.fingerprint,
        args_hash=frozen.args_hash,
        scheme=scheme_of(tool),
        key=key,
        key_format=OWN_KEY if call.business_key is not None else format_of(tool),
        carrier=f"header:{carrier.name}:{carrier.style}",
        key_lifetime=lifetime,
        request=request,
        principal=call.principal,
        contract_version=tool.contract.version,
        origin=origin_of(tool),
        business_key=call.business_key,
        expires_at=call.expires_at,
    )


OWN_KEY: Final = "own"


def origin_of(tool: AnyTool) -> str:
    """Return the target that a caller's own key has to be unique at."""
    return f"function:{tool.name}" if isinstance(tool, FunctionTool) else tool.origin


def format_of(tool: AnyTool) -> Any:
    if tool.contract.idempotency is not None:
        return tool.contract.idempotency.format
    return "uuid" if tool.sensitive else "composite"


def _key(desk: Desk, call: Call, place: Place, carrier: HeaderCarrier) -> str:
    key = call.business_key
    if key is None:
        key = derive_key_from_canonical(
            session_id=desk.session_id,
            step=place.label,
            tool=call.tool.name,
            canonical=call.frozen.hashed,
            format=format_of(call.tool),
            secret=desk.secret,
        )
    check_key(key, max_length=carrier.max_length, pattern=carrier.pattern)
    return key


def _not_reserved(desk: Desk, calls: list[tuple[Call, Place]], outcome: WriteOutcome) -> Outcome:
    """Return the outcome of a call whose own key stands for a settled equal operation, or raise what is in the way."""
    call, place = calls[0]
    where = f"session {desk.session_id}, step {place.label} ({call.tool.name})"
    ids = {"session_id": desk.session_id, "step": place.label}
    if outcome.took is Took.FENCE_LOST:
        msg = f"{where}: another worker took the session over. Nothing was written or sent. Open the session anew"
        raise LeaseLost(msg, **ids)
    if outcome.took is Took.REFUSED:
        msg = f"{where}: the ledger cannot hold this call ({outcome.error}). Nothing was written or sent"
        raise EntryRefused(msg, **ids)
    holder = outcome.operation
    if outcome.took is not Took.KEY_IN_USE or holder is None:
        msg = f"{where}: the position is taken in the ledger. Nothing was written or sent. Open the session anew"
        raise LedgerError(msg, **ids)
    call, place = next((pair for pair in calls if pair[0].business_key == holder.key), calls[0])
    if call.at is None:  # a call with an address is found by it, and leaves its index to others
        desk.keyed.add(place.label)
    same = holder.tool == call.tool.name and holder.fingerprint == call.validated.fingerprint
    if not same:
        msg = (
            f"{where}: key {holder.key!r} stands for step {holder.label} of session {holder.session_id}, another call. "
            "Nothing was written or sent. Use a key of its own for each intended effect"
        )
        raise KeyConflict(msg, key=holder.key, operation_id=holder.id, **ids)
    if holder.state not in SETTLED:
        msg = (
            f"{where}: key {holder.key!r} is that of step {holder.label} of session {holder.session_id}, which is "
            f"{holder.state}. Nothing was written or sent. Settle it there: runtime.settle({holder.session_id!r})"
        )
        raise UnsettledStep(msg, key=holder.key, blocking=holder.label, blocking_session=holder.session_id, **ids)
    desk.report.replayed.append(place.label)
    return outcome_of(holder, call.tool, place.label, source="ledger", words=desk.words)


def refuse_unawaited(desk: Desk, calls: list[tuple[Call, Place]]) -> Steps[None]:
    """Record calls that were placed and never awaited as not started."""
    refused = [
        (call, dataclasses.replace(place, kind="refuse")) for call, place in calls if place.kind in {"new", "join"}
    ]
    if refused:
        yield from reserve(desk, refused)
