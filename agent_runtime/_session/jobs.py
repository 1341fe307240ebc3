"""Jobs in flight, and ended ones that nobody picked up: for people, and for a model at the start of its run."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent_runtime._core.handles import handle_of
from agent_runtime._model import Reason, State
from agent_runtime._model.quoting import CELL, JOB_ID, quoted
from agent_runtime._model.words import say
from agent_runtime._session.table import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_runtime._model import RunningJob

TASK_LENGTH = 80
JOB_LENGTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job in flight, or one that has ended and was not picked up.

    Attributes:
        session_id, session, step: where it was started; ``session`` is the alias, or the id.
        owner: on whose behalf, or None.
        tool, task: what was asked for; the args, cut.
        job_id, status_url: the tool's names for it.
        started_at, next_look_at: UTC epoch seconds.
        progress: per cent, or None.
        timed_out: following it has ended at the poll bound; the job has not.
        ended: it is over, well or not, and the code was not told yet: ``session.check(step)`` tells.
    """

    session_id: str
    session: str
    step: str
    owner: str | None
    tool: str
    task: str
    job_id: str | None
    status_url: str | None
    started_at: float
    next_look_at: float | None
    progress: float | None
    timed_out: bool
    ended: bool
    operation_id: str

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("session", "step", "owner", "tool", "task", "job", "started", "progress"),
        "ended",
    )


class JobTable(list[JobView]):
    """A list of jobs that prints as a table, and tells a model what runs."""

    words: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return render(JobView.COLUMNS, [_row(view) for view in self])

    def for_model(self) -> dict[str, Any]:
        """Return the jobs as plain JSON values for a model to read at the start of its run."""
        ended = sum(view.ended for view in self)
        counted = {"jobs.some": len(self) - ended, "jobs.ended": ended}
        said = [say(self.words, name, count=str(count)) for name, count in counted.items() if count]
        message = " ".join(said) or say(self.words, "jobs.none")
        return {"jobs": [_told(view) for view in self], "message": message}


def job_table(jobs: Iterable[RunningJob], words: Mapping[str, str] | None = None) -> JobTable:
    """Return jobs as a table."""
    table = JobTable(map(_view, jobs))
    table.words = words
    return table


def _view(job: RunningJob) -> JobView:
    operation, session = job.operation, job.session
    handle = handle_of(operation)
    args = operation.args.decode("utf-8", "replace")
    return JobView(
        session_id=operation.session_id,
        session=session.alias or session.id,
        step=operation.label,
        owner=session.actor,
        tool=operation.tool,
        task=args if len(args) <= TASK_LENGTH else args[: TASK_LENGTH - 1] + "…",
        job_id=handle.job_id,
        status_url=handle.url,
        started_at=handle.started_at,
        next_look_at=operation.resume_at,
        progress=handle.progress,
        timed_out=operation.reason is Reason.POLL_BOUND,
        ended=operation.state is not State.ACCEPTED,
        operation_id=operation.id,
    )


def _row(view: JobView) -> list[str]:
    progress = "" if view.progress is None else f"{view.progress:g} %"
    job = quoted(view.job_id or view.status_url or "untracked", JOB_LENGTH)
    ended = "not picked up yet" if view.ended else ""
    begun = _time(view.started_at)
    return [view.session, view.step, view.owner or "", view.tool, view.task, job, begun, progress, ended]


def _time(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _told(view: JobView) -> dict[str, Any]:
    told = {
        "session": quoted(view.session, CELL),
        "owner": None if view.owner is None else quoted(view.owner, CELL),
        "step": view.step,
        "tool": view.tool,
        "task": quoted(view.task, TASK_LENGTH),
        "job_id": None if view.job_id is None else quoted(view.job_id, JOB_ID),
        "started_at": _time(view.started_at),
        "progress_percent": view.progress,
        "status": "ended_not_picked_up" if view.ended else "timed_out" if view.timed_out else "pending",
        "done": False,
    }
    return {name: value for name, value in told.items() if value is not None}
