"""What a following protocol learns of a job from elsewhere: callbacks that were kept, ends that others wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_runtime._core.callbacks import (
    applied,
    end_by,
    evidence_of,
    file_beside,
    file_unclear,
    is_thin,
    meant,
    poked,
    reading_of,
    says_nothing_new,
    serves,
    tells_less,
    unclear,
)
from agent_runtime._core.effects import Job, Load, ask
from agent_runtime._core.job_end import contradicts
from agent_runtime._core.run import advance, file
from agent_runtime._model import SETTLED

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import CallbackEvent, Change, NewEvidence, OperationRecord
    from agent_runtime.config import AnyTool
    from agent_runtime.config.jobs import JobReading


def told(run: Run) -> Steps[bool]:
    """Apply callbacks that came before their job was known here; True = the operation has ended.

    The first end counts; those that came after it are left for `heard_beside`.
    """
    for event in (yield from _waiting(run.operation, run.tool)):
        yield from _apply(run, event)
        if run.operation.state in SETTLED:
            return True
    return False


def heard_beside(operation: OperationRecord, tool: AnyTool) -> Steps[OperationRecord]:
    """File callbacks that came while nobody could apply them, of an operation that has ended; one may contradict it.

    Such as a second one before the 202, or one that came while the request was out whose answer was the end. Returns
    the operation as it then is.
    """
    if tool.contract.polling.source is None or operation.state not in SETTLED:
        return operation
    events = yield from _waiting(operation, tool)
    for event in events:
        yield from file_beside(event.tenant, event, operation, reading_of(event, operation, tool))
    current = (yield from ask(Load(operation.id))) if events else None
    return operation if current is None else current


def _waiting(operation: OperationRecord, tool: AnyTool) -> Steps[list[CallbackEvent]]:
    """Read the callbacks that an operation has not been told of, of the sender that its tool believes, as they came.

    One whose job id other jobs have as well is not about this one, unless it says so; nor is one that names another.
    """
    identity = operation.id
    events: list[CallbackEvent] = yield from ask(Job(lambda ledger: ledger.events_of(identity)))
    about = []
    for event in events:
        if not serves(event, tool):
            continue
        found: list[OperationRecord] = yield from ask(_of_event(event))
        named = meant(found, event)
        if identity in {one.id for one in named}:
            about.append(event)
        elif not named:
            yield from file_unclear(event, operation)
            yield from unclear(event.tenant, event)
    return about


def _of_event(event: CallbackEvent) -> Job[list[OperationRecord]]:
    return Job(lambda ledger: ledger.operations_of_event(tenant=event.tenant, event=event))


def _apply(run: Run, event: CallbackEvent) -> Steps[None]:
    operation = run.operation
    reading = reading_of(event, operation, run.tool)
    if says_nothing_new(reading, operation):
        yield from file_beside(event.tenant, event, operation, reading)
    elif tells_less(reading, operation, run.tool):
        return
    elif is_thin(reading, operation, run.tool):
        yield from advance(run, poked(operation, event.received_at), evidence=(evidence_of(event),))
        yield from applied(event.tenant, event)
    else:
        yield from end(run, reading, end_by(reading, operation, run.tool), evidence_of(event))
        if run.operation.state in SETTLED:
            yield from applied(event.tenant, event)


def end(run: Run, reading: JobReading, change: Change, seen: NewEvidence) -> Steps[bool]:
    """Write a job's end; where somebody else has written one, what was seen is filed beside it. True = it was ours."""
    if (yield from advance(run, change, evidence=(seen,))):
        return True
    if run.operation.state in SETTLED:
        yield from file(run.operation, seen, contradicts=contradicts(reading, run.operation))
    return False


def moved(run: Run) -> Steps[bool]:
    """Whether somebody else, such as a callback, changed the operation; then `Run.operation` is what it is now."""
    current = yield from ask(Load(run.operation.id))
    if current is None or current.version == run.operation.version:
        return False
    run.operation = current
    return True
