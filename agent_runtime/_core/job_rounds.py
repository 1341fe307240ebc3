"""The protocol of a job that nobody waits for: taken by whoever follows jobs, looked at once, left again.

No lease is needed, as for a callback: each write names the version of the row that it saw, nothing but GETs goes out,
and a session's holder finds the row as it then is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.effects import Now, ask
from agent_runtime._core.job_news import heard_beside
from agent_runtime._core.polling import follow
from agent_runtime._core.run import Run, advance
from agent_runtime._model import Change, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import Subject
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import AnyTool

TAKEN: Final = 90.0
"""Seconds for which others leave a job alone that somebody looks at; longer than a look."""


def look_at(
    operation: OperationRecord, tool: AnyTool, subject: Subject, body_limit: int
) -> Steps[OperationRecord | None]:
    """Look once at a job that is due; return its operation as it then is, or None if somebody else has it.

    Raises:
        LedgerError: the ledger could not be written.
    """
    run = Run(operation=operation, tool=tool, fence=None, body_limit=body_limit, subject=subject, follow="once")
    now = yield from ask(Now())
    if not (yield from advance(run, Change(state=State.ACCEPTED, resume_at=now + TAKEN))):
        return None
    going = True
    while going and not run.interrupted and run.operation.state is State.ACCEPTED:
        going = yield from follow(run)
    return (yield from heard_beside(run.operation, tool))
