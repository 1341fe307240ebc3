"""Answers that go wrong on the way: cut before the first byte, cut in the body, dripped.

ASGI has no word for "hang up". ``CuttableProtocol`` hands each request its connection's transport, and the answers
below use it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Literal

from fastapi import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from examples.tool_backend.answers import Answer

Cut = Literal["close", "reset"]
_TRANSPORT = "tool_backend.transport"
# Linger on, for zero seconds: closing the socket then sends RST instead of FIN.
_NO_LINGER = struct.pack("ii", 1, 0)


class CuttableProtocol(H11Protocol):
    """uvicorn's HTTP protocol, with the transport in each request's scope."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wrap the application for this connection."""
        super().connection_made(transport)
        inner = self.app

        async def with_transport(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("extensions", {})[_TRANSPORT] = transport
            await inner(scope, receive, send)

        self.app = with_transport


class WireAnswer(Response):
    """An answer sent just as it is: its headers in order, its body bytes untouched."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(content=answer.body, status_code=answer.status)
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
        if answer.status >= 200 and answer.status not in (204, 304):
            self.raw_headers.append((b"content-length", str(len(answer.body)).encode()))

    async def start(self, send: Send) -> None:
        """Send the status line and the headers."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})


class LostAnswer(WireAnswer):
    """Not a byte of it arrives: the connection ends."""

    def __init__(self, answer: Answer, *, cut: Cut) -> None:
        super().__init__(answer)
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Hang up instead of answering."""
        await _hang_up(scope, receive, self._cut)


class CutBody(WireAnswer):
    """All headers and half of the body arrive, then the connection ends."""

    def __init__(self, answer: Answer, *, cut: Cut) -> None:
        super().__init__(answer)
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a part, then hang up."""
        await self.start(send)
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})
        # A reset discards what the peer has not read yet; give the part time to be read.
        await asyncio.sleep(0.05)
        await _hang_up(scope, receive, self._cut)


class DrippedBody(WireAnswer):
    """Headers at once, then one byte of the body each so many seconds."""

    def __init__(self, answer: Answer, *, seconds: float) -> None:
        super().__init__(answer)
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Drip until the body has ended or the client has left."""
        await self.start(send)
        transport = _transport(scope)
        for byte in bytes(self.body):
            await asyncio.sleep(self._seconds)
            if transport.is_closing():
                return
            await send({"type": "http.response.body", "body": bytes([byte]), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _hang_up(scope: Scope, receive: Receive, cut: Cut) -> None:
    transport = _transport(scope)
    if cut == "reset":
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


def _transport(scope: Scope) -> asyncio.Transport:
    try:
        return scope["extensions"][_TRANSPORT]
    except KeyError:
        raise RuntimeError("faults on the wire need uvicorn with http=CuttableProtocol") from None
