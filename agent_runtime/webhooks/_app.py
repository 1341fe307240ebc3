"""An ASGI app that takes callbacks: verified over the raw bytes, kept under their ids, applied once."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.job_start import JOB_MEMBERS
from agent_runtime._model.events import CallbackEvent
from agent_runtime.errors import AgentRuntimeError
from agent_runtime.webhooks._verify import CallbackRefused

if TYPE_CHECKING:
    from agent_runtime._session import AsyncRuntime, Runtime
    from agent_runtime.webhooks._verify import Verifier

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

logger = logging.getLogger("agent_runtime")
UNVERIFIED: Final = "a callback of source %s was refused, since its verifier failed: %s"
UNREAD: Final = "a callback of source %s was refused, since its reader failed: %s"

BODY_LIMIT: Final = 1024 * 1024
KEY_MEMBERS: Final = ("idempotency_key", "idempotencyKey")


@dataclass(frozen=True, slots=True)
class About:
    """What a callback is about: the tool's job id, or the idempotency key."""

    job_id: str | None = None
    key: str | None = None


def about(body: Any) -> About:
    """Return what a callback's body is about: a job id or key at its top, or below ``data``.

    A bare ``id`` at the top is the job's only where there is no ``data``: beside it, it is the event's own.
    """
    if not isinstance(body, dict):
        return About()
    data = body.get("data")
    inner = data if isinstance(data, dict) else None
    named = [_found(JOB_MEMBERS, members) for members in (body, inner or {})]
    named.append(_found(("id",), body if inner is None else inner))
    keys = [_found(KEY_MEMBERS, members) for members in (body, inner or {})]
    return About(next((one for one in named if one), None), next((one for one in keys if one), None))


def _found(names: tuple[str, ...], members: dict[str, Any]) -> str | None:
    for name in names:
        value = members.get(name)
        if (isinstance(value, str) and value) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
    return None


class WebhookApp:
    """Takes callbacks by POST; `app` makes it. Answers 200 once an event is kept: till then senders try again."""

    def __init__(
        self, runtime: Runtime | AsyncRuntime, verify: Verifier, source: str, read: Callable[[Any], About]
    ) -> None:
        self._runtime = runtime
        self._verify = verify
        self._source = source
        self._read = read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        status, said = await self._serve(scope, receive)
        text = json.dumps({"status": said}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        if status == 405:
            headers.append((b"allow", b"POST"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _serve(self, scope: Scope, receive: Receive) -> tuple[int, str]:
        if scope["method"] != "POST":
            return 405, "only POST"
        body = await _body(receive)
        if body is None:
            return 413, "too long"
        now = self._runtime.ledger.now()
        try:
            event_id: object = self._verify(_headers(scope), body, now=now)
        except CallbackRefused as refused:
            return 401, refused.message
        except Exception as error:  # noqa: BLE001  the user's code: who cannot be told is not believed
            logger.error(UNVERIFIED, self._source, type(error).__name__)  # noqa: TRY400  its text may hold what was signed
            return 401, "it could not be verified; not taken"
        if not isinstance(event_id, str) or not event_id:
            logger.error(UNVERIFIED, self._source, "it returned no event's id")
            return 401, "it could not be verified; not taken"
        try:
            event = self._event(event_id, body, now)
        except Exception as error:  # noqa: BLE001  the user's code
            logger.error(UNREAD, self._source, type(error).__name__)  # noqa: TRY400  as above
            return 400, "it could not be read; not taken"
        if event is None:  # a test of the endpoint, or of another matter: to refuse it would have it sent for days
            return 200, "ignored"
        try:
            return 200, await self._kept(event)
        except AgentRuntimeError:
            return 503, "not kept, send it again"

    async def _kept(self, event: CallbackEvent) -> str:
        receive = self._runtime.receive
        if inspect.iscoroutinefunction(receive):
            return str(await receive(event))
        return str(await asyncio.to_thread(receive, event))

    def _event(self, event_id: str, body: bytes, now: float) -> CallbackEvent | None:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return None
        named = self._read(value)
        if named.job_id is None and named.key is None:
            return None
        return CallbackEvent(
            source=self._source,
            event_id=event_id,
            job_id=named.job_id,
            key=named.key,
            body=body,
            received_at=now,
        )


async def _body(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_LIMIT:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def app(
    runtime: Runtime | AsyncRuntime,
    *,
    verify: Verifier,
    source: str = "default",
    read: Callable[[Any], About] = about,
) -> WebhookApp:
    """Return an ASGI app that takes a tool's callbacks: a route of FastAPI and Starlette, or by itself.

    ``app.add_route("/hooks/films", webhooks.app(...))`` answers at that very URL. A mount at ``/hooks/films`` would
    answer it with a redirect to the URL with a slash at its end, which senders count as failure.

    Args:
        runtime: whose jobs they are about; either kind.
        verify: says who sent it, such as `StandardWebhook(secret=...)`.
        source: name of the sender. Event ids are unique within it, and only tools whose ``PollPolicy(webhook=)`` names
            it believe it: give each sender a secret and a source of its own.
        read: finds job id or key in the JSON body.
    """
    return WebhookApp(runtime, verify, source, read)
