"""Server-sent events of one request, one at a time; what breaks a stream ends it, and is no error.

``httpx-sse`` reads the format; it comes with the extra ``sse``.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from agent_runtime._http import _quiet
from agent_runtime._http._deadline import guard, until
from agent_runtime._http._exchange import Exchange
from agent_runtime._model import ServerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from agent_runtime._core.effects import EventStream

KIND = "text/event-stream"
LONGEST_EVENT = 1024 * 1024
"""Characters of one event; a longer one breaks the stream."""


def is_available() -> bool:
    """Whether the extra ``sse`` is installed."""
    try:
        import httpx_sse  # noqa: F401, PLC0415  an extra that only streams need
    except ImportError:
        return False
    return True


class _Lines:
    """A response as ``httpx-sse`` wants one, under our own limits."""

    def __init__(self, response: Any) -> None:
        self.headers = response.headers
        self._response = response
        self._since_event = 0

    def iter_text(self) -> Iterator[str]:
        for text in self._response.iter_text():
            self._count(text)
            yield text

    async def aiter_text(self) -> AsyncIterator[str]:
        async with aclosing(self._response.aiter_text()) as texts:
            async for text in texts:
                self._count(text)
                yield text

    def _count(self, text: str) -> None:
        self._since_event += len(text)
        if "\n\n" in text or "\r\n\r\n" in text or "\r\r" in text:
            self._since_event = 0
        if self._since_event > LONGEST_EVENT:
            msg = "an event is too long"
            raise ValueError(msg)


class _Stream:
    """What both kinds share. Strictly private."""

    def __init__(self, client: Any, library: Any, stream: EventStream) -> None:
        self._client = client
        self._stream = stream
        self._exchange = Exchange(
            stream.request, extra_headers=stream.headers, deadline=stream.seconds, body_limit=stream.body_limit
        )
        self._library = library
        self._response: Any = None
        self._events: Any = None

    def _refused(self, response: Any) -> bool:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind == KIND:
            return False
        self._stream.problem = f"HTTP {response.status_code} {kind}".rstrip()
        return True

    def _over(self, error: Exception) -> None:
        told = "DeadlineExceeded" if self._exchange.left <= 0 else type(error).__name__
        self._stream.problem = self._stream.problem or told


class Events(_Stream):
    """A stream over a blocking client."""

    def next(self) -> ServerEvent | None:
        """Return the next event, or None once the stream is over."""
        with _quiet.quiet(), until(self._exchange.ends_at):
            try:
                if self._events is None and not self._open():
                    return None
                return _event(next(self._events))
            except StopIteration:
                self._stream.problem = self._stream.problem or "it ended"
            except Exception as error:  # noqa: BLE001  a stream may break in any way; the polls go on
                self._over(error)
        return None

    def _open(self) -> bool:
        from httpx_sse import EventSource  # noqa: PLC0415  an extra

        timeouts = {"connect": self._stream.connect, "read": self._stream.idle}
        built = self._exchange.build(self._library, **timeouts, trace=self._exchange.on_event)
        self._response = self._client.send(built, stream=True, auth=None, follow_redirects=False)
        if self._refused(self._response):
            return False
        guard(self._response.extensions.get("network_stream"))
        self._events = EventSource(_Lines(self._response)).iter_sse()  # type: ignore[arg-type]
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._response is not None:
            with suppress(Exception):
                self._response.close()


class AsyncEvents(_Stream):
    """A stream over an async client."""

    async def next(self) -> ServerEvent | None:
        """Return the next event, or None once the stream is over."""
        with _quiet.quiet():
            try:
                async with asyncio.timeout(self._exchange.left):
                    if self._events is None and not await self._open():
                        return None
                    return _event(await anext(self._events))
            except StopAsyncIteration:
                self._stream.problem = self._stream.problem or "it ended"
            except Exception as error:  # noqa: BLE001  as above
                self._over(error)
        return None

    async def _open(self) -> bool:
        from httpx_sse import EventSource  # noqa: PLC0415  an extra

        timeouts = {"connect": self._stream.connect, "read": self._stream.idle}
        built = self._exchange.build(self._library, **timeouts, trace=self._exchange.on_event_async)
        self._response = await self._client.send(built, stream=True, auth=None, follow_redirects=False)
        if self._refused(self._response):
            return False
        self._events = EventSource(_Lines(self._response)).aiter_sse()  # type: ignore[arg-type]
        return True

    async def close(self) -> None:
        """Close the connection."""
        with suppress(Exception):
            if self._events is not None:
                await self._events.aclose()
        if self._response is not None:
            with suppress(Exception):
                await self._response.aclose()


def _event(told: Any) -> ServerEvent:
    return ServerEvent(data=told.data, event=told.event, id=told.id)
