"""Asking the tool what became of an operation, and reading what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agent_runtime._core.classify import asked_of, effect_of_end
from agent_runtime._core.job_start import start_of
from agent_runtime._core.results import json_bytes, read_result
from agent_runtime._core.retry_after import retry_after
from agent_runtime._core.urls import resolve
from agent_runtime._model import Answer, BodyState, Effect, Handle, Request, ResultState
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import AnyTool, HttpLookup, Member


class Seen(StrEnum):
    """What a look-up saw."""

    DONE = "done"
    FAILED = "failed"
    ACCEPTED = "accepted"  # a job runs
    RUNNING = "running"
    ABSENT = "absent"
    NOTHING = "nothing"  # no usable answer; it proves nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A reading of one look-up's answer; ``body``, ``status``, ``effect`` and ``handle`` are the stored answer's."""

    seen: Seen
    body: bytes | None = None
    status: int | None = None
    result_state: ResultState = ResultState.OK
    wait: float | None = None
    effect: Effect = Effect.NONE
    handle: Handle | None = None


def lookup_request(lookup: HttpLookup, operation: OperationRecord) -> Request:
    """Build the look-up's GET; it goes to the tool's own origin unless its URL is absolute.

    Raises:
        ConfigError: ``{args.NAME}`` names an arg that the operation does not have.
    """
    url = lookup.url
    fills = {"key": operation.key, "session": operation.session_id, "step": operation.label}
    for name, text in fills.items():
        url = url.replace("{" + name + "}", quote(text, safe=""))
    if "{args." in url:
        url = _fill_args(url, operation)
    base = operation.request.url if operation.request is not None else operation.origin
    target = resolve(base, url)
    if target is None:
        msg = f"the look-up URL {lookup.url!r} leads nowhere from {base!r}"
        raise ConfigError(msg, session_id=operation.session_id, step=operation.label)
    return Request(method="GET", url=target, headers=(("Accept", "application/json"),))


def _fill_args(url: str, operation: OperationRecord) -> str:
    for name, value in json.loads(operation.args).items():
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        url = url.replace("{args." + name + "}", quote(text, safe=""))
    if "{args." in url:
        msg = f"the look-up URL needs an arg that step {operation.label} does not have: {url}"
        raise ConfigError(msg, session_id=operation.session_id, step=operation.label)
    return url


def read_lookup(
    answer: Answer, lookup: HttpLookup, tool: AnyTool, *, now: float, request: Request | None = None
) -> Sight:
    """Return what a look-up's answer says; anything that it was not told how to read says nothing.

    ``request``: what the operation sent, for a stored 202 that tells where its job is.
    """
    wait = retry_after(answer.headers, now=now, status=answer.status)
    body = _json(answer)
    if answer.status == 404 and answer.body_state is BodyState.WHOLE:
        return Sight(seen=Seen.ABSENT)
    if not 200 <= answer.status < 300 or answer.status == 202 or answer.body_state is not BodyState.WHOLE:
        return Sight(seen=Seen.NOTHING, wait=wait)
    if lookup.running is not None and _says(body, lookup.running):
        return Sight(seen=Seen.RUNNING, wait=wait)
    if lookup.absent is not None and _says(body, lookup.absent):
        return Sight(seen=Seen.ABSENT)
    if lookup.done is not None and not _says(body, lookup.done):
        return Sight(seen=Seen.NOTHING, wait=wait)
    return _stored(answer, body, lookup, tool, now, request)


ABSENT: Final = object()


def _stored(  # noqa: PLR0917  what is at hand when a look-up answers
    answer: Answer, body: Any, lookup: HttpLookup, tool: AnyTool, now: float, request: Request | None
) -> Sight:
    status = 200
    if lookup.status is not None:
        told = _member(body, lookup.status)
        if not isinstance(told, int) or isinstance(told, bool) or not (200 <= told < 300 or 400 <= told < 600):
            return Sight(seen=Seen.NOTHING)
        status = told
    stored, absent = answer.body, False
    if lookup.result is not None:
        value = _member(body, lookup.result, ABSENT)
        absent = value is ABSENT
        stored = b"" if value is None or absent else json_bytes(value)
    was = Answer(status=status, body=stored)
    if status >= 400:
        return Sight(seen=Seen.FAILED, body=stored, status=status, effect=effect_of_end(was, tool.contract))
    if status == 202:
        handle = start_of(was, request if request is not None else asked_of(tool), tool.contract.polling, now=now)
        return Sight(seen=Seen.ACCEPTED, body=stored, status=status, handle=handle)
    state = read_result(stored, BodyState.WHOLE, tool).state
    if absent or (state is not ResultState.OK and lookup.result is None):
        state = ResultState.MISSING
    return Sight(seen=Seen.DONE, body=stored, status=status, result_state=state)


def _json(answer: Answer) -> Any:
    try:
        return json.loads(answer.body) if answer.body else None
    except (ValueError, RecursionError):
        return None


def _member(body: Any, path: str, missing: object = None) -> Any:
    for part in path.split("."):
        if not isinstance(body, dict) or part not in body:
            return missing
        body = body[part]
    return body


def _says(body: Any, member: Member) -> bool:
    value = _member(body, member.name)
    return value == member.equals and isinstance(value, bool) == isinstance(member.equals, bool)
