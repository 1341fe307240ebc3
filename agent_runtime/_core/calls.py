"""The protocol of one call: from its place to the outcome that the caller is given."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Load, NewId, Persist, ask
from agent_runtime._core.outcomes import not_started, outcome_of, restored, snapshot
from agent_runtime._core.reserving import reserve
from agent_runtime._core.run import Run, lease_lost
from agent_runtime._core.step import perform
from agent_runtime._model import SETTLED, Deliver, OperationRecord, Outcome, State, Took

if TYPE_CHECKING:
    from agent_runtime._core.book import Place
    from agent_runtime._core.desk import Call, Desk, Report
    from agent_runtime._core.effects import Steps
    from agent_runtime._model import Source
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
            return not_started(place, call.tool.name, desk.session_id)
        case "refuse":
            yield from reserve(desk, [(call, place)])
            desk.report.refused.append(place.label)
            return not_started(place, call.tool.name, desk.session_id)
        case "replay":
            return _replayed(desk, call, place)
        case "new" | "join":
            operation = (yield from reserve(desk, [(call, place)]))[0]
            if isinstance(operation, Outcome):
                return operation
        case _:
            assert place.operation is not None
            operation = desk.book.operations[place.operation.id]
    return (yield from work(desk, call.tool, operation, place.label))


def _refreshed(desk: Desk, call: Call, place: Place) -> Steps[Place]:
    """Look again at an operation that stood unsettled: a person may have decided it since it was read."""
    if place.kind not in {"settle", "join", "refuse"} or place.operation is None:
        return place
    now_there = yield from ask(Load(place.operation.id))
    if now_there is None:
        return place
    desk.book.update(now_there)
    if place.kind == "refuse" and now_there.state in SETTLED:
        return desk.book.place_again(call.ask(), place)
    return dataclasses.replace(place, operation=now_there)


def _replayed(desk: Desk, call: Call, place: Place) -> Outcome:
    step, operation = place.step, place.operation
    assert step is not None
    assert operation is not None
    desk.report.replayed.append(place.label)
    stay = ""
    if step.delivered is not None and desk.book.went_on(step):
        operation, stay = restored(operation, step.delivered)
    return outcome_of(operation, call.tool, place.label, source="ledger", stay=stay)


def work(desk: Desk, tool: AnyTool, operation: OperationRecord, label: str) -> Steps[Outcome]:
    """Take a recorded operation as far as it goes now, and note what is delivered."""
    before = operation.state
    run = Run(operation=operation, tool=tool, fence=desk.fence, body_limit=desk.body_limit)
    try:
        yield from perform(run)
    finally:
        desk.book.update(run.operation)
    source: Source = "sent" if run.sent else "ledger"
    outcome = outcome_of(run.operation, tool, label, source=source, stay=run.stay)
    _note(desk.report, run, label, was_new=before is State.READY and operation.attempts == 0)
    if run.operation.state not in SETTLED and not run.interrupted:
        yield from _deliver(desk, run, label)
    return outcome


def _note(report: Report, run: Run, label: str, *, was_new: bool) -> None:
    state = run.operation.state
    if run.resent:
        report.resent.append(label)
    elif run.sent:
        report.sent.append(label)
    if not was_new and state in SETTLED:
        report.settled.append(label)
    if state is State.UNKNOWN:
        report.unknown.append(label)
    elif state is State.FAILED:
        report.failed.append(label)
    elif state not in SETTLED:
        report.pending.append(label)


def _deliver(desk: Desk, run: Run, label: str) -> Steps[None]:
    """Note the unsettled outcome that the code is given, so that a replay gives it again if the code went on."""
    step = desk.book.step(label)
    if step is None:
        return
    write_id = yield from ask(NewId())
    kept = snapshot(run.operation, run.stay)
    entry = Deliver(
        write_id=write_id,
        session_id=desk.session_id,
        fence=desk.fence,
        label=label,
        delivered=kept,
        delivered_seq=desk.book.seq,
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.FENCE_LOST:
        raise lease_lost(run.operation)
    desk.book.put(dataclasses.replace(step, delivered=kept, delivered_seq=entry.delivered_seq))


def run_reserved(desk: Desk, call: Call, place: Place) -> Steps[Outcome]:
    """Take one call of many, whose row is written, to its outcome."""
    if place.kind == "refuse":
        desk.report.refused.append(place.label)
        return not_started(place, call.tool.name, desk.session_id)
    if place.kind not in {"new", "join"}:
        return (yield from run_call(desk, call, place))
    step = desk.book.step(place.label)
    assert step is not None
    operation = desk.book.operation_of(step)
    assert operation is not None
    return (yield from work(desk, call.tool, operation, place.label))
