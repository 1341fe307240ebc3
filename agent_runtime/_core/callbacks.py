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
from agent_runtime._core.job_reading import GOOD, UNCLEAR, checked_reading, names_another, read_job
from agent_runtime._core.job_start import job_answer, json_of, named_urls
from agent_runtime._core.reach import asked_at, sent_to
from agent_runtime._core.run import file
from agent_runtime._core.urls import resolve
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
    it gets there. So is one whose key or status URL fits no job with its id. ``noted``: its operation had ended, or it
    tells of no end, or has to be asked for the result; or several jobs bear its job id, so that it ends none of them.

    Raises:
        LedgerError: it could not be kept; the sender has to try again.
    """
    new = yield from ask(Job(lambda ledger: ledger.keep_event(tenant=tenant, event=event)))
    if not new:
        return "seen"
    found: list[OperationRecord] = yield from ask(
        Job(lambda ledger: ledger.operations_of_event(tenant=tenant, event=event))
    )
    believing = [one for one in found if one.tool in tools and serves(event, tools[one.tool])]
    named = meant(believing, event)
    said = "kept"
    for operation in named:
        said = yield from _apply(tenant, event, operation, tools[operation.tool])
    if named or not believing:
        return said
    for operation in believing:
        yield from file_unclear(event, operation)
    return (yield from unclear(tenant, event))


def meant(found: list[OperationRecord], event: CallbackEvent) -> list[OperationRecord]:
    """Return the operations that an event is about, of those that bear its key or its job id.

    A key names one operation. A job id names a job where only one bears it: many tools number their jobs anew for each
    customer. What else the event names has to fit, also where only one job of the id is known: the answer that names
    the job it means may be on its way. Without key and status URL an id that several bear ends none, and polls tell.
    """
    if event.key is not None:
        return [one for one in found if one.key == bounded_id(event.key)]
    urls, placed = _urls_in(event), [one for one in found if handle_of(one).url is not None]
    if urls and placed:  # a job without a URL has nothing to compare
        found = [one for one in placed if handle_of(one).url in {resolve(sent_to(one), url) for url in urls}]
    return found if len({_job_of(one) for one in found}) == 1 else []


def _job_of(operation: OperationRecord) -> tuple[str, str]:
    """Return what tells jobs of one id apart: the tool, and where it is asked (without that, the operation)."""
    return operation.tool, handle_of(operation).url or operation.id


def _urls_in(event: CallbackEvent) -> list[str]:
    body = json_of(Answer(status=200, body=event.body))
    inner = body.get("data")
    return [url for one in (body, inner) if isinstance(one, dict) for urls in named_urls(one) for url in urls]


def unclear(tenant: str, event: CallbackEvent) -> Steps[str]:
    """Close an event that no job can be told for; one that names a key or URL may be about one not known yet."""
    if _names_its_job(event):
        return "kept"
    yield from applied(tenant, event)
    return "noted"


def file_unclear(event: CallbackEvent, operation: OperationRecord) -> Steps[None]:
    """Say beside an open operation why an event with its job id was not applied; the event's body may be another's."""
    why = "several jobs have its job id and it does not say which"
    if _names_its_job(event):
        why = "its key or status URL fits no job that is known here; it is kept"
    if operation.state not in SETTLED:
        detail = f"{event.source}:{bounded_id(event.event_id)}: not applied, since {why}"
        yield from _file_once(operation, NewEvidence(kind="webhook", detail=detail))


def _names_its_job(event: CallbackEvent) -> bool:
    return event.key is not None or bool(_urls_in(event))


def serves(event: CallbackEvent, tool: AnyTool) -> bool:
    """Whether a tool believes the sender of an event: a signature of one sender says nothing about another's jobs."""
    return tool.contract.polling.source == event.source


def _apply(tenant: str, event: CallbackEvent, operation: OperationRecord, tool: AnyTool) -> Steps[str]:
    """Apply an event, whoever holds the session; a row that moves meanwhile is looked at again."""
    for _ in range(TRIES):
        reading = reading_of(event, operation, tool)
        if operation.state in SETTLED or says_nothing_new(reading, operation):
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

    One that the tool's own adapter cannot read says nothing, nor does one that names another job.
    """
    policy, answer = tool.contract.polling, Answer(status=200, body=event.body)
    if policy.adapter is not None and policy.adapter.callback is not None:
        try:
            return checked_reading(policy.adapter.callback(job_answer(answer, "")), "callback")
        except Exception:  # noqa: BLE001  the user's code; the job's own state tells the end
            return JobReading()
    body = json_of(answer)
    inner = body.get("data")
    members = inner if isinstance(inner, dict) and "status" not in body else body
    handle = dataclasses.replace(handle_of(operation), protocol="body")
    if names_another(body, handle):
        return JobReading()
    return read_job(Answer(status=200, body=json.dumps(members).encode()), handle, policy, now=event.received_at)


def says_nothing_new(reading: JobReading, operation: OperationRecord) -> bool:
    """Whether an event changes nothing about an open operation: its job runs, or ended, and nobody knows how."""
    if operation.state not in OPEN:
        return False
    unclear_end = reading.status == "unknown" and operation.state is State.UNKNOWN
    return unclear_end or reading.status == "running"


def is_thin(reading: JobReading, operation: OperationRecord, tool: AnyTool) -> bool:
    """Whether a reading says that a job ended, and how, or its result, has to be asked for at the job's own URL."""
    if reading.status not in UNCLEAR or reading.has_result:
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
    change = ended(reading, handle, tool, None, missing=missing)
    return change if reading.status == "unknown" else dataclasses.replace(change, reason=Reason.CALLBACK)


def evidence_of(event: CallbackEvent) -> NewEvidence:
    """Return an event as evidence, under the id that it is kept by."""
    detail = f"{event.source}:{bounded_id(event.event_id)}"
    return NewEvidence(kind="webhook", body=event.body[:KEPT_BODY], detail=detail)


def file_beside(tenant: str, event: CallbackEvent, operation: OperationRecord, reading: JobReading) -> Steps[None]:
    """Keep what an event says beside its operation; another end than the recorded one contradicts it.

    One that stands there already, since whoever filed it died before that was noted, is not filed again.
    """
    against, seen = operation.state in SETTLED and contradicts(reading, operation), evidence_of(event)
    yield from _file_once(operation, seen, contradicts=against)
    yield from applied(tenant, event)


def _file_once(operation: OperationRecord, seen: NewEvidence, *, contradicts: bool = False) -> Steps[None]:
    filed = yield from ask(Job(lambda ledger: ledger.evidence(operation.id)))
    if contradicts or (seen.kind, seen.detail) not in {(one.kind, one.detail) for one in filed}:
        yield from file(operation, seen, contradicts=contradicts)


def applied(tenant: str, event: CallbackEvent) -> Steps[None]:
    """Note that an event's operation has been told."""
    yield from ask(Job(lambda ledger: ledger.event_applied(tenant=tenant, event=event)))
