"""The protocol of a callback: kept under its id first, then applied to its operation, once.

A callback may come before the answer that names the job, twice, late, out of order, or beside a poll that sees the same
end. Whatever comes first ends the operation; all that comes later is filed as evidence.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Final

from agent_runtime._core.conclude import KEPT_BODY
from agent_runtime._core.effects import Job, NewId, Persist, ask
from agent_runtime._core.handles import handle_of, written
from agent_runtime._core.job_end import contradicts, ended
from agent_runtime._core.job_reading import GOOD, read_job
from agent_runtime._core.job_start import job_answer, json_of
from agent_runtime._core.reach import asked_at, sent_to
from agent_runtime._core.run import file
from agent_runtime._model import SETTLED, Advance, Answer, Change, NewEvidence, Reason, State, Took
from agent_runtime._model.naming import bounded_id
from agent_runtime.config.jobs import JobReading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._core.effects import Steps
    from agent_runtime._model import CallbackEvent, OperationRecord
    from agent_runtime.config import AnyTool

TRIES: Final = 5
OPEN: Final = frozenset({State.ACCEPTED, State.UNKNOWN})


def receive(tenant: str, event: CallbackEvent, tools: Mapping[str, AnyTool]) -> Steps[str]:
    """Keep a verified event and apply it; return what became of it: ``applied``, ``kept``, ``seen`` or ``noted``.

    ``kept``: its operation is not known yet, is still in flight, or is not one of these tools; the step applies it when
    it gets there. ``noted``: its operation had ended, or it tells of no end, or has to be asked for the result.

    Raises:
        LedgerError: it could not be kept; the sender has to try again.
    """
    new = yield from ask(Job(lambda ledger: ledger.keep_event(tenant=tenant, event=event)))
    if not new:
        return "seen"
    found: list[OperationRecord] = yield from ask(
        Job(lambda ledger: ledger.operations_of_event(tenant=tenant, event=event))
    )
    said = "kept"
    for operation in _meant(found, event, tools):
        said = yield from _apply(tenant, event, operation, tools[operation.tool])
    return said


def _meant(found: list[OperationRecord], event: CallbackEvent, tools: Mapping[str, AnyTool]) -> list[OperationRecord]:
    """Return the operations that an event may end: of tools that believe its sender.

    A key names one operation. A job id that jobs of several such tools have names none: a poll tells their end.
    """
    believing = [one for one in found if one.tool in tools and serves(event, tools[one.tool])]
    keyed = [one for one in believing if event.key is not None and one.key == event.key]
    if keyed:
        return keyed
    return believing if len({one.tool for one in believing}) == 1 else []


def serves(event: CallbackEvent, tool: AnyTool) -> bool:
    """Whether a tool believes the sender of an event: a signature of one sender says nothing about another's jobs."""
    return tool.contract.polling.source == event.source


def _apply(tenant: str, event: CallbackEvent, operation: OperationRecord, tool: AnyTool) -> Steps[str]:
    """Apply an event, whoever holds the session; a row that moves meanwhile is looked at again."""
    for _ in range(TRIES):
        reading = reading_of(event, operation, tool)
        if operation.state in SETTLED or (operation.state in OPEN and reading.status == "running"):
            yield from file_beside(tenant, event, operation, reading)
            return "noted"
        thin = is_thin(reading, operation, tool)
        if operation.state not in OPEN or tells_less(reading, operation, tool):
            return "kept"
        write_id = yield from ask(NewId())
        entry = Advance(
            write_id=write_id,
            session_id=operation.session_id,
            fence=None,
            operation_id=operation.id,
            expect_version=operation.version,
            change=poked(operation, event.received_at) if thin else end_by(reading, operation, tool),
            evidence=(evidence_of(event),),
        )
        outcome = yield from ask(Persist(entry))
        if outcome.took is Took.TOOK:
            yield from applied(tenant, event)
            return "noted" if thin else "applied"
        if outcome.operation is None:
            return "kept"
        operation = outcome.operation
    return "kept"


def reading_of(event: CallbackEvent, operation: OperationRecord, tool: AnyTool) -> JobReading:
    """Return what an event says about its job: its body, or the ``data`` in it, read like the answer to a poll.

    One that the tool's own adapter cannot read says nothing.
    """
    policy, answer = tool.contract.polling, Answer(status=200, body=event.body)
    if policy.adapter is not None and policy.adapter.callback is not None:
        try:
            return policy.adapter.callback(job_answer(answer, ""))
        except Exception:  # noqa: BLE001  the user's code; the job's own state tells the end
            return JobReading()
    body = json_of(answer)
    inner = body.get("data")
    members = inner if isinstance(inner, dict) and "status" not in body else body
    handle = dataclasses.replace(handle_of(operation), protocol="body")
    return read_job(Answer(status=200, body=json.dumps(members).encode()), handle, policy, now=event.received_at)


def is_thin(reading: JobReading, operation: OperationRecord, tool: AnyTool) -> bool:
    """Whether a reading says that a job succeeded, and its result has to be asked for at the job's own URL."""
    if reading.status not in GOOD or reading.has_result:
        return False
    handle = handle_of(operation)
    return handle.obstacle is None and asked_at(handle, sent_to(operation), tool.contract.polling) is not None


def tells_less(reading: JobReading, operation: OperationRecord, tool: AnyTool) -> bool:
    """Whether an event without a result is left until an operation whose answer was lost has been sent again.

    A tool that honours keys then says what the result is, or where its job is.
    """
    lost = operation.state is not State.ACCEPTED and tool.contract.honours_keys and not operation.no_resend
    return lost and reading.status in GOOD and not reading.has_result


def poked(operation: OperationRecord, now: float) -> Change:
    """Return the change that makes a job due at once: whoever follows it looks now (UTC epoch seconds)."""
    handle = dataclasses.replace(handle_of(operation), not_before=None, looked_at=None)
    return Change(state=State.ACCEPTED, resume_at=now, handle=written(handle))


def end_by(reading: JobReading, operation: OperationRecord, tool: AnyTool) -> Change:
    """Return the change that an event's end makes.

    An event without a result proves the effect of an operation whose answer was lost, and of a job whose URL nobody can
    ask; what the result is nobody knows.
    """
    handle = handle_of(operation)
    missing = not reading.has_result and (operation.state is not State.ACCEPTED or handle.url is not None)
    return dataclasses.replace(ended(reading, handle, tool, None, missing=missing), reason=Reason.CALLBACK)


def evidence_of(event: CallbackEvent) -> NewEvidence:
    """Return an event as evidence, under the id that it is kept by."""
    detail = f"{event.source}:{bounded_id(event.event_id)}"
    return NewEvidence(kind="webhook", body=event.body[:KEPT_BODY], detail=detail)


def file_beside(tenant: str, event: CallbackEvent, operation: OperationRecord, reading: JobReading) -> Steps[None]:
    """Keep what an event says beside its operation; another end than the recorded one contradicts it.

    One that stands there already, since whoever filed it died before that was noted, is not filed again.
    """
    against, seen = operation.state in SETTLED and contradicts(reading, operation), evidence_of(event)
    filed = yield from ask(Job(lambda ledger: ledger.evidence(operation.id)))
    if against or (seen.kind, seen.detail) not in {(one.kind, one.detail) for one in filed}:
        yield from file(operation, seen, contradicts=against)
    yield from applied(tenant, event)


def applied(tenant: str, event: CallbackEvent) -> Steps[None]:
    """Note that an event's operation has been told."""
    yield from ask(Job(lambda ledger: ledger.event_applied(tenant=tenant, event=event)))
