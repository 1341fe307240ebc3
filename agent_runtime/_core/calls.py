"""The protocol of one call: from its place to the outcome that the caller is given."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agent_runtime._core.desk import WAITING
from agent_runtime._core.effects import Job, Load, NewId, Persist, ask
from agent_runtime._core.job_news import heard_beside
from agent_runtime._core.outcomes import not_started, outcome_of, restored, snapshot
from agent_runtime._core.reissue import reissue
from agent_runtime._core.reserving import reserve
from agent_runtime._core.run import Run, lease_lost
from agent_runtime._core.step import perform
from agent_runtime._model import SETTLED, Deliver, OperationRecord, Outcome, SessionState, State, Took

if TYPE_CHECKING:
    from agent_runtime._core.desk import Call, Desk, Following
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.places import Place
    from agent_runtime._model import Source, StepRecord
    from agent_runtime.config import AnyTool


def run_call(desk: Desk, call: Call, place: Place) -> Steps[Outcome]:
    """Take one placed call to its outcome.

    Raises:
        KeyConflict, UnsettledStep: the caller's own key stands for another operation, or for one that is unsettled.
        LeaseLost, NotRecorded, LedgerError: as `perform`.
    """
    place = yield from _refreshed(desk, call, place)
    match place.kind:
        case "diverged" | "again":
            return not_started(place, call.tool.name, desk.session_id, desk.words)
        case "refuse":
            yield from reserve(desk, [(call, place)])
            desk.report.refused.append(place.label)
            return not_started(place, call.tool.name, desk.session_id, desk.words)
        case "replay" if place.operation is not None and place.operation.id in desk.again:
            desk.again.discard(place.operation.id)
            again = yield from reissue(desk, call.tool, place.label)
            return (yield from work(desk, call.tool, again, place.label))
        case "replay":
            return (yield from _replayed(desk, call, place))
        case "new" | "join":
            operation = (yield from reserve(desk, [(call, place)]))[0]
            if isinstance(operation, Outcome):
                return operation
        case _:
            assert place.operation is not None
            operation = desk.book.operations[place.operation.id]
    return (yield from work(desk, call.tool, operation, place.label, call.following))


def _refreshed(desk: Desk, call: Call, place: Place) -> Steps[Place]:
    """Look again at an operation that stood unsettled: a person may have decided it since it was read."""
    while place.kind in {"settle", "join", "refuse"} and place.operation is not None:
        now_there = yield from ask(Load(place.operation.id))
        if now_there is None:
            return place
        desk.book.update(now_there)
        if place.kind != "refuse" or now_there.state not in SETTLED:
            return dataclasses.replace(place, operation=now_there)
        place = desk.book.place_again(call.ask(), place)
    return place


def _replayed(desk: Desk, call: Call, place: Place) -> Steps[Outcome]:
    step, operation = place.step, place.operation
    assert step is not None
    assert operation is not None
    desk.report.replayed.append(place.label)
    stay, since = "", None
    if desk.book.session.state is SessionState.OPEN:  # a crash may have come between an end and what speaks against it
        operation = yield from heard_beside(operation, call.tool)
        desk.book.update(operation)
    if place.as_delivered and step.delivered is not None:
        since = operation.state if operation.state in SETTLED else None
        operation, stay = restored(operation, step.delivered)
    else:
        yield from _tell_end(desk, operation, step)
    return outcome_of(operation, call.tool, place.label, source="ledger", stay=stay, since=since, words=desk.words)


def work(
    desk: Desk,
    tool: AnyTool,
    operation: OperationRecord,
    label: str,
    following: Following = WAITING,
    *,
    delivers: bool = True,
) -> Steps[Outcome]:
    """Take a recorded operation as far as it goes now, and note what is delivered at a step.

    ``delivers`` is False where the outcome is not given to the code as that of the step.
    """
    before = operation.state
    run = Run(
        operation=operation,
        tool=tool,
        fence=desk.fence,
        body_limit=desk.body_limit,
        subject=desk.subject,
        follow=following.mode,
        patience=following.patience,
        on_progress=following.listener,
    )
    try:
        yield from perform(run)
    finally:
        desk.book.update(run.operation)
    source: Source = "sent" if run.sent else "ledger"
    outcome = outcome_of(run.operation, tool, label, source=source, stay=run.stay, words=desk.words)
    _note(desk, run, label, was_new=before is State.READY and operation.attempts == 0)
    step = desk.book.step(label)
    if step is None or not delivers:
        return outcome
    desk.book.told(run.operation)
    if run.interrupted:
        return outcome
    if run.operation.state in SETTLED:
        yield from _tell_end(desk, run.operation, step)
    else:
        if run.operation.state is State.UNKNOWN:
            yield from _told_of_its_job(desk, run.operation)
        yield from _deliver(desk, run.operation, step, snapshot(run.operation, run.stay))
    return outcome


def work_afresh(
    desk: Desk,
    tool: AnyTool,
    operation: OperationRecord,
    label: str,
    following: Following = WAITING,
    *,
    delivers: bool = True,
) -> Steps[Outcome]:
    """Take a recorded operation as far as it goes now, from where the ledger has it: others may have moved it."""
    if operation.state not in SETTLED:
        there = yield from ask(Load(operation.id))
        operation = operation if there is None else there
        desk.book.update(operation)
    return (yield from work(desk, tool, operation, label, following, delivers=delivers))


def _note(desk: Desk, run: Run, label: str, *, was_new: bool) -> None:
    report, state, ident = desk.report, run.operation.state, run.operation.id
    if run.resent:
        report.resent.append(label)
    elif run.sent:
        report.sent.append(label)
    if not was_new and state in SETTLED:
        report.settled.append(label)
    stood, label = desk.standing.pop(ident, ([], label))  # an operation stands once, under its first label
    if label in stood:
        stood.remove(label)
    stands = {State.UNKNOWN: report.unknown, State.FAILED: report.failed}.get(state)
    if stands is None and state not in SETTLED:
        stands = report.pending
    if stands is not None:
        stands.append(label)
        desk.standing[ident] = stands, label


def _tell_end(desk: Desk, operation: OperationRecord, step: StepRecord) -> Steps[None]:
    """Where an earlier run was given an unsettled outcome, note that the code is given the end now."""
    desk.book.told(operation)
    yield from _told_of_its_job(desk, operation)
    if step.delivered is not None and desk.book.session.state is SessionState.OPEN:
        yield from _deliver(desk, operation, step, None)


def _told_of_its_job(desk: Desk, operation: OperationRecord) -> Steps[None]:
    """Note that the code is told how a job ended, or that it is gone: nobody else has to hear of it from now on."""
    if operation.untold:
        identity = operation.id
        yield from ask(Job(lambda ledger: ledger.note_told(identity)))
        desk.book.update(dataclasses.replace(operation, untold=False))


def _deliver(desk: Desk, operation: OperationRecord, step: StepRecord, kept: bytes | None) -> Steps[None]:
    """Note the unsettled outcome that the code is given, so that a replay gives it again if the code went on."""
    write_id = yield from ask(NewId())
    entry = Deliver(
        write_id=write_id,
        session_id=desk.session_id,
        fence=desk.fence,
        label=step.label,
        delivered=kept,
        delivered_seq=None if kept is None else desk.book.seq,
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.FENCE_LOST:
        raise lease_lost(operation)
    desk.book.put(dataclasses.replace(step, delivered=kept, delivered_seq=entry.delivered_seq))


def reserve_many(desk: Desk, calls: list[tuple[Call, Place]]) -> Steps[list[Place]]:
    """Write the rows of all calls that need one, in one transaction, and return their places; raises as `reserve`."""
    places: list[Place] = []
    for call, place in calls:
        places.append((yield from _refreshed(desk, call, place)))
    pairs = [(call, place) for (call, _), place in zip(calls, places, strict=True)]
    wanted = [(call, place) for call, place in pairs if place.is_fresh]
    if wanted:
        yield from reserve(desk, wanted)
    return places


def run_reserved(desk: Desk, call: Call, place: Place) -> Steps[Outcome]:
    """Take one call of many, whose row is written, to its outcome."""
    if place.kind == "refuse":
        desk.report.refused.append(place.label)
        return not_started(place, call.tool.name, desk.session_id, desk.words)
    if place.kind not in {"new", "join"}:
        return (yield from run_call(desk, call, place))
    step = desk.book.step(place.label)
    assert step is not None
    operation = desk.book.operation_of(step)
    assert operation is not None
    return (yield from work(desk, call.tool, operation, place.label, call.following))
