"""What a mocked tool may do to one request, as data; and the answers that tools give."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PROBLEMS: Final = "https://agent-runtime.example/problems/"
REPLAYED: Final = ("Idempotent-Replayed", "true")
NEVER_KEPT: Final = frozenset({401, 403, 408, 409, 425, 429})
"""Answers that are no end of a key: a server that kept them would repeat them for ever."""


class Kind(StrEnum):
    """Kinds of days."""

    WORK = "work"
    LOSE_ANSWER = "lose_answer"
    CUT_BODY = "cut_body"
    FAIL_AFTER = "fail_after"
    ANSWER = "answer"
    REFUSE_TOKEN = "refuse_token"  # noqa: S105  the name of a day
    REFUSE_CONNECTION = "refuse_connection"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, complete: status, headers in order, body bytes."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def marked(self) -> Reply:
        """Return the same answer as a server sends it that had kept it."""
        return replace(self, headers=(*self.headers, REPLAYED))

    def response(self) -> httpx.Response:
        """Return it for httpx."""
        return httpx.Response(self.status, headers=list(self.headers), content=self.body)

    def cut_response(self) -> httpx.Response:
        """Return it with the connection ending after half of the body."""
        headers = [*self.headers, ("Content-Length", str(len(self.body)))]
        return httpx.Response(self.status, headers=headers, stream=_Cut(self.body[: len(self.body) // 2]))


@dataclass(frozen=True, slots=True)
class Day:
    """What happens to one request.

    Attributes:
        reply: the answer that is sent without the tool's work, or instead of its answer.
        kept: whether the server still has the tool's answer for the key afterwards.
    """

    kind: Kind
    reply: Reply | None = None
    kept: bool = True


class _Cut(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, part: bytes) -> None:
        self._part = part

    def __iter__(self) -> Iterator[bytes]:
        yield self._part
        raise _closed()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._part
        raise _closed()


def _closed() -> httpx.RemoteProtocolError:
    return httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def json_reply(value: Any, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """Return an answer with a JSON body."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Reply(status, body, (("Content-Type", "application/json"), *headers))


def problem(status: int, name: str, detail: str, *, retry_after: float | None = None) -> Reply:
    """Return a problem document (RFC 9457)."""
    body = json.dumps({"type": PROBLEMS + name, "status": status, "detail": detail}).encode()
    wait = () if retry_after is None else (("Retry-After", f"{retry_after:g}"),)
    return Reply(status, body, (("Content-Type", "application/problem+json"), *wait))


def reply_of(value: Any, status: int) -> Reply:
    """Return what a tool's own code gave: a whole answer, or a value for one."""
    if isinstance(value, httpx.Response):
        value.read()
        return Reply(value.status_code, value.content, tuple(value.headers.multi_items()))
    return json_reply(value, status=status)
