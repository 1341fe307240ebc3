"""What a following protocol learns of a job from elsewhere: callbacks that were kept, ends that others wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_runtime._core.callbacks import applied, end_by, evidence_of, is_thin, poked, reading_of, serves, tells_less
from agent_runtime._core.effects import Job, Load, ask
from agent_runtime._core.job_end import contradicts
from agent_runtime._core.run import advance, file
from agent_runtime._model import SETTLED

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import CallbackEvent, Change, NewEvidence
    from agent_runtime.config.jobs import JobReading


def told(run: Run) -> Steps[bool]:
    """Apply callbacks that came before their job was known here; True = the operation has ended."""
    identity = run.operation.id
    events: list[CallbackEvent] = yield from ask(Job(lambda ledger: ledger.events_of(identity)))
    for event in events:
        if serves(event, run.tool):
            yield from _apply(run, event)
        if run.operation.state in SETTLED:
            return True
    return False


def _apply(run: Run, event: CallbackEvent) -> Steps[None]:
    reading = reading_of(event, run.operation, run.tool)
    if reading.status == "running":
        yield from applied(event.tenant, event)
    elif tells_less(reading, run.operation, run.tool):
        return
    elif is_thin(reading, run.operation):
        yield from advance(run, poked(run.operation, event.received_at), evidence=(evidence_of(event),))
        yield from applied(event.tenant, event)
    else:
        yield from end(run, reading, end_by(reading, run.operation, run.tool), evidence_of(event))
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
