"""The protocol of a callback: kept under its id first, then applied to its operation, once.

A callback may come before the answer that names the job, twice, late, out of order, or beside a poll that sees the same
end. Whatever comes first ends the operation; all that comes later is filed as evidence.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, NewId, Persist, ask
from agent_runtime._core.handles import handle_of
from agent_runtime._core.job_end import ended
from agent_runtime._core.job_reading import read_job
from agent_runtime._model import SETTLED, Advance, Answer, File, NewEvidence, Reason, State, Took

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._core.effects import Steps
    from agent_runtime._model import CallbackEvent, Change, OperationRecord
    from agent_runtime.config import AnyTool, JobReading

TRIES: Final = 5
OPEN: Final = frozenset({State.ACCEPTED, State.UNKNOWN})


def receive(tenant: str, event: CallbackEvent, tools: Mapping[str, AnyTool]) -> Steps[str]:
    """Keep a verified event and apply it; return what became of it: ``applied``, ``kept``, ``seen`` or ``noted``.

    ``kept``: its operation is not known yet, or still in flight; the step applies it when it gets there.

    Raises:
        LedgerError: it could not be kept; the sender has to try again.
    """
    new = yield from ask(Job(lambda ledger: ledger.keep_event(tenant=tenant, event=event)))
    if not new:
        return "seen"
    found = yield from ask(Job(lambda ledger: ledger.operations_of_event(tenant=tenant, event=event)))
    said = "kept"
    for operation in found:
        tool = tools.get(operation.tool)
        if tool is not None:
            said = yield from _apply(tenant, event, operation, tool)
    return said


def _apply(tenant: str, event: CallbackEvent, operation: OperationRecord, tool: AnyTool) -> Steps[str]:
    """End an operation by an event, whoever holds its session; a row that moves meanwhile is looked at again."""
    for _ in range(TRIES):
        reading = reading_of(event, operation, tool)
        if operation.state in SETTLED:
            yield from _file(event, operation, reading)
            yield from _applied(tenant, event)
            return "noted"
        if operation.state not in OPEN:
            return "kept"
        if reading.status == "running":
            yield from _file(event, operation, None)
            yield from _applied(tenant, event)
            return "noted"
        write_id = yield from ask(NewId())
        entry = Advance(
            write_id=write_id,
            session_id=operation.session_id,
            fence=None,
            operation_id=operation.id,
            expect_version=operation.version,
            change=end_by(reading, operation, tool),
            evidence=(evidence_of(event),),
        )
        outcome = yield from ask(Persist(entry))
        if outcome.took is Took.TOOK:
            yield from _applied(tenant, event)
            return "applied"
        if outcome.operation is None:
            return "kept"
        operation = outcome.operation
    return "kept"


def reading_of(event: CallbackEvent, operation: OperationRecord, tool: AnyTool) -> JobReading:
    """Return what an event says about its job: its body, or the ``data`` in it, read like the answer to a poll."""
    body = _object(event.body)
    inner = body.get("data")
    members = inner if isinstance(inner, dict) and "status" not in body else body
    text = json.dumps(members).encode()
    handle = dataclasses.replace(handle_of(operation), protocol="body")
    return read_job(Answer(status=200, body=text), handle, tool.contract.polling, now=event.received_at)


def end_by(reading: JobReading, operation: OperationRecord, tool: AnyTool) -> Change:
    """Return the change that an event's end makes."""
    return dataclasses.replace(ended(reading, handle_of(operation), tool, None), reason=Reason.CALLBACK)


def evidence_of(event: CallbackEvent) -> NewEvidence:
    """Return an event as evidence."""
    return NewEvidence(kind="webhook", body=event.body[:65536], detail=f"{event.source}:{event.event_id}")


def _file(event: CallbackEvent, operation: OperationRecord, reading: JobReading | None) -> Steps[None]:
    """Keep what an event says about an operation that has ended; another end than the recorded one contradicts it."""
    write_id = yield from ask(NewId())
    entry = File(
        write_id=write_id,
        session_id=operation.session_id,
        operation_id=operation.id,
        evidence=evidence_of(event),
        contradicts=reading is not None and contradicts(reading, operation),
    )
    yield from ask(Persist(entry))


def contradicts(reading: JobReading, operation: OperationRecord) -> bool:
    """Whether a late end is another one than the recorded end."""
    if reading.status == "running":
        return False
    good = reading.status in {"succeeded", "completed_with_errors"}
    return good is not (operation.state is State.SUCCEEDED)


def _applied(tenant: str, event: CallbackEvent) -> Steps[None]:
    yield from ask(Job(lambda ledger: ledger.event_applied(tenant=tenant, event=event)))


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
