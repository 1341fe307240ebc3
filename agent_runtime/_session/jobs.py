"""Jobs in flight as a reader sees them, for people and for a model at the start of its run."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent_runtime._core.handles import handle_of
from agent_runtime._model import Reason
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
    """One job in flight.

    Attributes:
        session_id, session, step: where it was started; ``session`` is the alias, or the id.
        owner: on whose behalf, or None.
        tool, task: what was asked for; the args, cut.
        job_id, status_url: the tool's names for it.
        started_at, next_look_at: UTC epoch seconds.
        progress: per cent, or None.
        timed_out: following it has ended at the poll bound; the job has not.
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
    operation_id: str

    COLUMNS: ClassVar[tuple[str, ...]] = ("session", "step", "owner", "tool", "task", "job", "started", "progress")


class JobTable(list[JobView]):
    """A list of jobs that prints as a table, and tells a model what runs."""

    words: Mapping[str, str] | None = None

    def __str__(self) -> str:
        return render(JobView.COLUMNS, [_row(view) for view in self])

    def for_model(self) -> dict[str, Any]:
        """Return the jobs as plain JSON values for a model to read at the start of its run."""
        if not self:
            return {"jobs": [], "message": say(self.words, "jobs.none")}
        message = say(self.words, "jobs.some", count=str(len(self)))
        return {"jobs": [_told(view) for view in self], "message": message}


def job_table(jobs: Iterable[RunningJob], words: Mapping[str, str] | None = None) -> JobTable:
    """Return jobs that run as a table."""
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
        operation_id=operation.id,
    )


def _row(view: JobView) -> list[str]:
    progress = "" if view.progress is None else f"{view.progress:g} %"
    job = quoted(view.job_id or view.status_url or "untracked", JOB_LENGTH)
    return [view.session, view.step, view.owner or "", view.tool, view.task, job, _time(view.started_at), progress]


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
        "status": "timed_out" if view.timed_out else "pending",
        "done": False,
    }
    return {name: value for name, value in told.items() if value is not None}
