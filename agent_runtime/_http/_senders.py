"""The two senders: the same words, one blocking, one awaiting."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from agent_runtime._http import _quiet
from agent_runtime._http._clients import OwnAsyncClient, OwnClient, library_of
from agent_runtime._http._deadline import guard, until
from agent_runtime._http._events import AsyncEvents, Events
from agent_runtime._http._exchange import Exchange
from agent_runtime._model import Answer

if TYPE_CHECKING:
    from agent_runtime._core.effects import EventStream
    from agent_runtime._http._body import Body
    from agent_runtime._model import Headers, Request, SendFailure, ServerEvent


FAULTS_OF_SETUP = (AssertionError, TypeError, AttributeError, NameError, NotImplementedError)
"""What a mock without a route, or a hook with a bug, raises: its author has to see it. The driver records it first."""


def ends_with_connection(response: Any) -> bool:
    """Whether a body without a length ends with its connection: HTTP/1 over a real one, not a mock's answer."""
    extensions = response.extensions
    return "network_stream" in extensions and extensions.get("http_version", b"").startswith(b"HTTP/1")


class HttpSender:
    """Sends requests over a blocking httpx client.

    Args:
        client: the user's own ``httpx.Client`` (or ``httpx2.Client``); stays the user's to close. Its transport,
            proxies, certificates and event hooks are used; its default headers, parameters, base URL, cookies, auth,
            redirects and timeouts are not.
        trust_env: whether a client made here heeds ``HTTPS_PROXY`` and the like.

    Raises:
        ConfigError: ``client`` is no such client.
    """

    def __init__(self, client: Any = None, *, trust_env: bool = True) -> None:
        self._library = library_of(client, "Client")
        self._client = client
        self._own = OwnClient(trust_env=trust_env)
        _quiet.install()

    def send(
        self,
        request: Request,
        *,
        extra_headers: Headers = (),
        connect: float,
        read: float,
        deadline: float,
        body_limit: int,
    ) -> Answer | SendFailure:
        """Send one request once and return its answer, or what is known where none came.

        Args:
            request: goes out exactly as it stands.
            extra_headers: tokens, keys and signatures; they replace headers of the same name.
            connect: seconds for the connection to stand.
            read: seconds for each read and write.
            deadline: seconds from now in which everything must have come, the body too.
            body_limit: bytes of the decoded body that are kept.

        Returns:
            An `Answer` once a status line was seen, whatever became of the body; else a `SendFailure`.

        Raises:
            ConfigError: URL or headers that cannot be sent; nothing was.
            AssertionError, TypeError and others of `FAULTS_OF_SETUP`: a mock without a route, a hook with a bug. The
                request may have been sent.
            BaseException: interruptions, as they come; the request may have been sent, its connection is closed.
        """
        exchange = Exchange(request, extra_headers=extra_headers, deadline=deadline, body_limit=body_limit)
        built = exchange.build(self._library, connect=connect, read=read, trace=exchange.on_event)
        client = self._own.get() if self._client is None else self._client
        if exchange.left <= 0:
            return exchange.not_begun()
        with _quiet.quiet(), until(exchange.ends_at):
            try:
                response = client.send(built, stream=True, auth=None, follow_redirects=False)
            except FAULTS_OF_SETUP:
                raise
            except Exception as exc:  # noqa: BLE001 - errors nobody has met yet may have been sent too
                return exchange.failed(exc)
            try:
                return self._read(exchange, response)
            finally:
                with suppress(Exception):
                    response.close()

    def _read(self, exchange: Exchange, response: Any) -> Answer:
        head = exchange.head(response)
        body = exchange.body(head, ends_with_connection=ends_with_connection(response))
        try:
            if response.is_stream_consumed:
                body.take(response.content)
            else:
                guard(response.extensions.get("network_stream"))
                for chunk in response.iter_raw():
                    if not body.feed(chunk):
                        break
                    exchange.check_time()
                body.end()
        except Exception:  # noqa: BLE001 - whatever ended it, the status line was seen
            body.cut()
        return _answer(head, body)

    def next_event(self, stream: EventStream) -> ServerEvent | None:
        """Return the next event of a stream, opening it first; None = it is over, ``stream.problem`` says why."""
        if stream.live is None:
            client = self._own.get() if self._client is None else self._client
            stream.live = Events(client, self._library, stream)
        live: Events = stream.live
        return live.next()

    def close_stream(self, stream: EventStream) -> None:
        """Let go of a stream's connection."""
        if stream.live is not None:
            stream.live.close()

    def close(self) -> None:
        """Close the client that was made here; the user's own stays open."""
        self._own.close()


class AsyncHttpSender:
    """Sends requests over an async httpx client, under asyncio; otherwise as `HttpSender`."""

    def __init__(self, client: Any = None, *, trust_env: bool = True) -> None:
        self._library = library_of(client, "AsyncClient")
        self._client = client
        self._own = OwnAsyncClient(trust_env=trust_env)
        _quiet.install()

    async def send(
        self,
        request: Request,
        *,
        extra_headers: Headers = (),
        connect: float,
        read: float,
        deadline: float,
        body_limit: int,
    ) -> Answer | SendFailure:
        """Send one request once and return its answer, or what is known where none came; see `HttpSender.send`."""
        exchange = Exchange(request, extra_headers=extra_headers, deadline=deadline, body_limit=body_limit)
        built = exchange.build(self._library, connect=connect, read=read, trace=exchange.on_event_async)
        client = self._own.get() if self._client is None else self._client
        if exchange.left <= 0:
            return exchange.not_begun()
        with _quiet.quiet():
            try:
                async with asyncio.timeout(exchange.left):
                    response = await client.send(built, stream=True, auth=None, follow_redirects=False)
            except FAULTS_OF_SETUP:
                raise
            except Exception as exc:  # noqa: BLE001 - errors nobody has met yet may have been sent too
                return exchange.failed(exc)
            try:
                return await self._read(exchange, response)
            finally:
                with suppress(Exception):
                    await response.aclose()

    async def _read(self, exchange: Exchange, response: Any) -> Answer:
        head = exchange.head(response)
        body = exchange.body(head, ends_with_connection=ends_with_connection(response))
        try:
            if response.is_stream_consumed:
                body.take(response.content)
            else:
                async with asyncio.timeout(exchange.left), aclosing(response.aiter_raw()) as chunks:
                    async for chunk in chunks:
                        if not body.feed(chunk):
                            break
                        exchange.check_time()
                body.end()
        except Exception:  # noqa: BLE001 - whatever ended it, the status line was seen
            body.cut()
        return _answer(head, body)

    async def next_event(self, stream: EventStream) -> ServerEvent | None:
        """Return the next event of a stream, opening it first; see `HttpSender.next_event`."""
        if stream.live is None:
            client = self._own.get() if self._client is None else self._client
            stream.live = AsyncEvents(client, self._library, stream)
        live: AsyncEvents = stream.live
        return await live.next()

    async def close_stream(self, stream: EventStream) -> None:
        """Let go of a stream's connection."""
        if stream.live is not None:
            await stream.live.close()

    async def close(self) -> None:
        """Close the running loop's client that was made here; the user's own stays open."""
        await self._own.close()


def _answer(head: Answer, body: Body) -> Answer:
    return Answer(status=head.status, headers=head.headers, body=body.data, body_state=body.state)
