"""What a look at a job says, for whoever wants to see it go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Now, Tell, ask
from agent_runtime._core.handles import handle_of
from agent_runtime._model import State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.run import Run
    from agent_runtime._model import Handle
    from agent_runtime.config.jobs import JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """What is known of a job after a look at it.

    Attributes:
        step, tool, job_id, status_url: which job.
        status: ``running``, or how it ended.
        percent: how far it is, or None where the tool does not tell.
        message: the tool's own words; not to be trusted.
        polls: looks so far.
        elapsed: seconds since the stored start; estimated: seconds that it is said to take, or None.
        next_look_at: UTC epoch seconds, or None.
    """

    step: str
    tool: str
    job_id: str | None
    status_url: str | None
    status: JobStatus
    percent: float | None
    message: str | None
    polls: int
    elapsed: float
    estimated: float | None
    next_look_at: float | None

    @property
    def done(self) -> bool:
        """Whether the job has ended, well or not."""
        return self.status != "running"


def announce(run: Run, handle: Handle) -> Steps[None]:
    """Tell once what is known before this run's first look."""
    if not run.announced:
        run.announced = True
        yield from say(run, handle, "running")


def say_end(run: Run) -> Steps[None]:
    """Tell of an end that came by other ways than a look."""
    operation = run.operation
    if operation.state is State.SUCCEEDED:
        yield from say(run, handle_of(operation), "completed_with_errors" if operation.partial else "succeeded")
    elif operation.state is State.FAILED:
        yield from say(run, handle_of(operation), "failed")


def say(run: Run, handle: Handle, status: JobStatus) -> Steps[None]:
    """Tell whoever listens. What the listener raises goes to the caller; what was seen is written already."""
    if run.on_progress is None:
        return
    now = yield from ask(Now())
    seen = JobProgress(
        step=run.operation.label,
        tool=run.operation.tool,
        job_id=handle.job_id,
        status_url=handle.url,
        status=status,
        percent=handle.progress,
        message=handle.message,
        polls=handle.polls,
        elapsed=now - handle.started_at,
        estimated=handle.estimated,
        next_look_at=run.operation.resume_at,
    )
    yield from ask(Tell(run.on_progress, seen))
