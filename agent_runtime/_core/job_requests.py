"""The protocols of what is asked about a job beside its state: its errors, and its end before time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from agent_runtime._core.attempt import send
from agent_runtime._core.conclude import answer_evidence
from agent_runtime._core.effects import Now, ask
from agent_runtime._core.handles import handle_of
from agent_runtime._core.job_headers import headers_about
from agent_runtime._core.reach import sent_to
from agent_runtime._core.run import Run, advance, credential_of, file, seconds_of
from agent_runtime._core.urls import resolve, same_origin
from agent_runtime._model import Answer, Change, NewEvidence, Reason, Request, State
from agent_runtime.errors import ConfigError, StepFailed, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._core.desk import Desk
    from agent_runtime._core.effects import Steps
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import AnyTool


def errors_of(desk: Desk, tool: AnyTool, operation: OperationRecord, label: str, limit: int) -> Steps[Any]:
    """Fetch what went wrong in a job that was done in part: the JSON value behind its errors URL.

    Raises:
        ConfigError: the step has no errors URL, or one on another origin.
        TokenUnavailable, StepFailed: it could not be fetched; nothing was changed.
    """
    run = Run(operation=operation, tool=tool, fence=desk.fence, body_limit=desk.body_limit, subject=desk.subject)
    handle = handle_of(operation)
    url = resolve(handle.url or sent_to(run.operation), handle.errors_url) if handle.errors_url else None
    if url is None or not same_origin(url, sent_to(run.operation)):
        msg = f"session {desk.session_id}: step {label} has no errors to fetch on the tool's own origin"
        raise ConfigError(msg, session_id=desk.session_id, step=label)
    url = with_limit(url, limit)
    answer = yield from _ask(run, Request(method="GET", url=url, headers=headers_about(run, url)))
    if not isinstance(answer, Answer) or not 200 <= answer.status < 300:
        told = f"HTTP {answer.status}" if isinstance(answer, Answer) else answer.error
        msg = f"session {desk.session_id}, step {label}: its errors could not be fetched ({told}); ask again"
        raise StepFailed(msg, session_id=desk.session_id, step=label, operation_id=operation.id)
    try:
        return at_most(json.loads(answer.body), limit)
    except (ValueError, RecursionError):
        return answer.body.decode("utf-8", "replace")


def at_most(errors: Any, limit: int) -> Any:
    """Return what a tool told of errors with no more than ``limit`` of them, also where it did not keep to that."""
    if isinstance(errors, list):
        return errors[:limit]
    if isinstance(errors, dict):
        return {name: told[:limit] if isinstance(told, list) else told for name, told in errors.items()}
    return errors


def with_limit(url: str, limit: int) -> str:
    """Return a URL whose query asks for at most ``limit`` items."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "limit"]
    return urlunsplit(parts._replace(query=urlencode([*query, ("limit", str(limit))])))


def cancel(desk: Desk, tool: AnyTool, operation: OperationRecord, label: str) -> Steps[OperationRecord]:
    """Cancel an operation: one that was never sent ends at once; a job is asked to stop, which is no outcome yet.

    Raises:
        ConfigError: it is settled or unknown, or its job cannot be asked to stop.
    """
    run = Run(operation=operation, tool=tool, fence=desk.fence, body_limit=desk.body_limit, subject=desk.subject)
    if operation.state is State.READY:
        yield from advance(run, Change(state=State.CANCELLED, reason=Reason.CALLER, resume_at=None))
        return run.operation
    request = cancel_request(run) if operation.state is State.ACCEPTED else None
    if request is None:
        msg = f"session {desk.session_id}: step {label} is {operation.state} and cannot be cancelled. Nothing was sent"
        raise ConfigError(msg, session_id=desk.session_id, step=label)
    answer = yield from _ask(run, request)
    yield from _note(run, answer)
    return run.operation


def cancel_request(run: Run) -> Request | None:
    """Return the request that asks a job to stop, or None if the tool has none."""
    handle, how = handle_of(run.operation), run.tool.contract.polling.cancel
    if how is None or handle.url is None or not same_origin(handle.url, sent_to(run.operation)):
        return None
    if how == "DELETE":
        return Request(method="DELETE", url=handle.url, headers=headers_about(run, handle.url))
    parts = urlsplit(handle.url)
    url = urlunsplit(parts._replace(path=parts.path + how[4:]))
    return Request(method="POST", url=url, headers=headers_about(run, url))


def _ask(run: Run, request: Request) -> Steps[Any]:
    now = yield from ask(Now())
    run.deadline = now + seconds_of(run.tool.contract.timeouts.step)
    credential = yield from credential_of(run)
    if credential is None:
        told = run.problem.message if run.problem is not None else "the authorisation server cannot serve now"
        msg = f"session {run.operation.session_id}, step {run.operation.label}: {told}. Nothing was sent"
        raise TokenUnavailable(msg, session_id=run.operation.session_id, step=run.operation.label)
    return (yield from send(run, request, credential, seconds_of(run.tool.contract.timeouts.read) * 2))


def _note(run: Run, answer: Any) -> Steps[None]:
    """Keep what the tool said to the request to stop; the job's own state says what became of it."""
    if isinstance(answer, Answer):
        seen = answer_evidence("poll", answer, detail="cancel asked")
    else:
        seen = NewEvidence(kind="poll", detail=f"cancel asked: {answer.error}")
    yield from file(run.operation, seen)
