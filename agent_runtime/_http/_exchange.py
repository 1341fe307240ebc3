"""One request and what is known of it, whatever loop sends it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from agent_runtime._core.headers import check_headers
from agent_runtime._core.transport_errors import transport_error_kind
from agent_runtime._core.urls import check_url
from agent_runtime._http._body import Body
from agent_runtime._http._deadline import DeadlineExceeded, guard
from agent_runtime._model import Answer, SendFailure
from agent_runtime.config.auth import Secretive
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import Headers, Request

# Not the release: a resend by a newer one should look the same.
_USER_AGENT = ("User-Agent", "agent-runtime")
# Identity: a compressed body that was cut is the one kind that transports take for whole.
_ACCEPT_ENCODING = ("Accept-Encoding", "identity")

# Their texts come from the operating system or from a server; others may hold what was sent.
_TEXT_IS_SAFE = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ProxyError",
        "ReadError",
        "ReadTimeout",
        "RemoteProtocolError",
        "WriteError",
        "WriteTimeout",
    },
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_DETAIL = 300
_SHORTEST_SECRET = 4


class Exchange(Secretive):
    """Builds one request for httpx, watches it on its way, and says what its end means.

    httpcore's ``trace`` extension reports each step of a connection. It is believed only where it makes matters
    worse: bytes that were seen going out outrank an exception that says "not sent" (a user's transport may send,
    lose the answer, retry, and then fail to connect). The one exception is the deadline, see `failed`.
    """

    def __init__(self, request: Request, *, extra_headers: Headers, deadline: float, body_limit: int) -> None:
        if request.method.upper() == "CONNECT":
            raise ConfigError("CONNECT opens a tunnel, it calls no tool")
        check_url(request.url)
        check_headers(request.headers)
        check_headers(extra_headers)
        self._request = request
        self._headers = request.with_headers(extra_headers).headers
        self._body_limit = body_limit
        self.ends_at = time.monotonic() + deadline
        self._traced = False
        self._connecting = False
        self._began = False
        self._head: Answer | None = None

    @property
    def left(self) -> float:
        """Seconds until the deadline; may be negative."""
        return self.ends_at - time.monotonic()

    def build(self, library: Any, *, connect: float, read: float, trace: Any) -> Any:
        """Return the library's request: our headers, bytes and URL, nothing of the client's defaults.

        Raises:
            ConfigError: the library cannot read the URL.
        """
        headers = list(self._headers)
        names = {name.lower() for name, _ in headers}
        headers += [pair for pair in (_USER_AGENT, _ACCEPT_ENCODING) if pair[0].lower() not in names]
        left = max(self.left, 0.001)
        extensions: dict[str, Any] = {
            "trace": trace,
            "timeout": {
                "connect": min(connect, left),
                "read": min(read, left),
                "write": min(read, left),
                # A little early: waiting for a free connection then ends as "not sent", never at the deadline.
                "pool": left * 0.9,
            },
        }
        try:
            url = library.URL(self._request.url)
        except library.InvalidURL:
            raise ConfigError("the URL's host or port is not valid") from None
        target = _target(self._request.url)
        if url.raw_path != target:
            # The library tidies URLs up ("/a/../b", quotes). What was recorded, and perhaps signed, goes out.
            extensions["target"] = target
        return library.Request(
            self._request.method,
            url,
            headers=headers,
            content=self._request.body,
            extensions=extensions,
        )

    def on_event(self, name: str, info: dict[str, Any]) -> None:
        """Take one event of httpcore's ``trace`` extension."""
        self._traced = True
        _, _, event = name.partition(".")
        match event:
            case "connect_tcp.complete" | "connect_unix_socket.complete" | "start_tls.complete":
                guard(info.get("return_value"))
            case "send_request_headers.started":
                # A proxy's tunnel is asked for with the same extensions; that is not our request.
                self._connecting = getattr(info.get("request"), "method", b"") == b"CONNECT"
            case "send_request_headers.complete":
                self._began = self._began or not self._connecting
            case "send_request_headers.failed":
                refused = type(info.get("exception")).__name__ == "LocalProtocolError"
                self._began = self._began or not (self._connecting or refused)
            case "receive_response_headers.complete" if not self._connecting:
                self._head = _traced_head(info.get("return_value")) or self._head
            case _:
                pass

    async def on_event_async(self, name: str, info: dict[str, Any]) -> None:
        """Take one event in an async client, whose streams need no guard."""
        if not isinstance(info.get("return_value"), tuple | None):
            info = {}
        self.on_event(name, info)

    def head(self, response: Any) -> Answer:
        """Return status and headers of a response, the body still empty."""
        return Answer(status=response.status_code, headers=_decoded(response.headers.raw))

    def body(self, head: Answer, *, ends_with_connection: bool = False) -> Body:
        """Return what collects the body; of one without a length, the end of an HTTP/1 connection is its end."""
        method = self._request.method.upper()
        return Body(head, method=method, limit=self._body_limit, ends_with_connection=ends_with_connection)

    def check_time(self) -> None:
        """Raise `DeadlineExceeded` once the time is over."""
        if self.left <= 0:
            raise DeadlineExceeded

    def not_begun(self) -> SendFailure:
        """Say that the time was over before anything was tried."""
        return SendFailure(maybe_sent=False, error="DeadlineExceeded")

    def failed(self, exc: Exception) -> Answer | SendFailure:
        """Say what an exception means that came instead of a response."""
        head = self._head or self._head_of(exc)
        if head is not None:
            # The client stumbled over an answer: a redirect to an invalid URL, a hook that raises for a status.
            body = self.body(head)
            body.cut()
            return Answer(status=head.status, headers=head.headers, body_state=body.state)
        name = type(exc).__name__
        kind = transport_error_kind(exc)
        # InvalidURL can only be a redirect's here: ours was parsed before.
        not_sent = kind == "not_sent" and name != "InvalidURL" and not self._began
        if name == "LocalProtocolError":
            not_sent = not_sent or (self._traced and not self._began)
        if not not_sent and self.left <= 0:
            # httpcore reported every step up to here, and none sent a byte: still connecting.
            return SendFailure(maybe_sent=self._began or not self._traced, error="DeadlineExceeded")
        return SendFailure(maybe_sent=not not_sent, error=name, detail=self._detail(exc, name, kind))

    def _head_of(self, exc: Exception) -> Answer | None:
        response = getattr(exc, "response", None)
        if response is None or transport_error_kind(exc) is None:
            return None
        return self.head(response)

    def _detail(self, exc: Exception, name: str, kind: str | None) -> str:
        if kind is None or name not in _TEXT_IS_SAFE:
            return ""
        text = _URL.sub("(URL)", str(exc))
        # A server may echo what it was sent.
        for _, value in self._headers:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, "(value)")
        return text[:_DETAIL]


def _target(url: str) -> bytes:
    """Return path and query exactly as they stand in a URL that `check_url` took."""
    start = url.index("://") + 3
    cut = min((at for at in (url.find("/", start), url.find("?", start)) if at >= 0), default=len(url))
    target = url[cut:]
    return (target if target.startswith("/") else "/" + target).encode("ascii")


def _traced_head(value: Any) -> Answer | None:
    """Return status and headers from what httpcore reports: (version, status, reason, headers) or (status, headers)."""
    match value:
        case (_, int(status), _, list(raw)) | (int(status), list(raw)):
            return Answer(status=status, headers=_decoded(raw))
        case _:
            return None


def _decoded(raw: Any) -> Headers:
    # Latin-1 loses nothing; httpx guesses, and lower-cases names.
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)
