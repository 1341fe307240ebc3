"""A gateway in front of the tool server: it notes each request, and holds one back until it is told to let go."""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from acceptance_kit.quiet import QuietHandler, QuietServer

ARRIVES_WITHIN = 30.0
HELD_AT_MOST = 60.0
ANSWERS_WITHIN = 30.0


@dataclass(frozen=True)
class Request:
    """A request as it came; ``at`` is monotonic."""

    method: str
    path: str
    key: str
    at: float


@dataclass(eq=False)
class Hold:
    """A request that is to be held: on its way there, or its answer on the way back."""

    what: Literal["request", "answer"]
    match: str
    method: str = "POST"
    path: str = ""
    here: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    served: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until it is held."""
        assert self.here.wait(ARRIVES_WITHIN), f"no {self.what} of a {self.method} with {self.match!r} came"

    def release(self) -> None:
        """Let it go."""
        self.gone.set()

    def release_and_wait(self) -> None:
        """Let it go, and wait until the server has served it."""
        self.gone.set()
        assert self.served.wait(ARRIVES_WITHIN), "the server did not serve it"

    def keep(self) -> None:
        """Hold until released."""
        self.here.set()
        self.gone.wait(HELD_AT_MOST)


class Gateway:
    """Relays to ``upstream``; ``url`` is where agents reach it."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream).netloc
        self._guard = threading.Lock()
        self._requests: list[Request] = []
        self._holds: list[Hold] = []
        self._all_holds: list[Hold] = []
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def hold(
        self, what: Literal["request", "answer"], match: str = "", *, method: str = "POST", path: str = ""
    ) -> Hold:
        """Hold the next request of a method whose key contains ``match`` and whose path contains ``path``."""
        hold = Hold(what, match, method, path)
        with self._guard:
            self._holds.append(hold)
            self._all_holds.append(hold)
        return hold

    def requests(self, match: str = "", *, method: str = "POST", path: str = "") -> list[Request]:
        """Return the requests so far whose key contains ``match`` and whose path ``path``, in order of arrival."""
        with self._guard:
            found = [one for one in self._requests if match in one.key and path in one.path]
        return [one for one in found if one.method == method]

    def close(self) -> None:
        """Let everything go and stop."""
        for hold in self._all_holds:
            hold.release()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def relay(self, handler: QuietHandler) -> None:
        """Take one request to the server and its answer back."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        hold = self._note(handler)
        if hold is not None and hold.what == "request":
            hold.keep()
        answer = self._ask(handler, body)
        if hold is not None:
            hold.served.set()
        if hold is not None and hold.what == "answer":
            hold.keep()
        if answer is None:  # the server gave none, so the client gets none
            handler.close_connection = True
            return
        with suppress(ConnectionError):  # the agent is gone
            status, headers, content = answer
            handler.send_response_only(status)
            for name, value in headers:
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)

    def _note(self, handler: QuietHandler) -> Hold | None:
        key = handler.headers.get("Idempotency-Key", "")
        with self._guard:
            self._requests.append(Request(handler.command, handler.path, key, time.monotonic()))
            hold = next(
                (one for one in self._holds if one.method == handler.command and _fits(one, handler, key)), None
            )
            if hold is not None:
                self._holds.remove(hold)
        return hold

    def _ask(self, handler: QuietHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
        upstream = http.client.HTTPConnection(self._upstream, timeout=ANSWERS_WITHIN)
        try:
            upstream.request(handler.command, handler.path, body, {**handler.headers, "Host": self._upstream})
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except (ConnectionError, http.client.HTTPException):
            return None
        finally:
            upstream.close()


def _fits(hold: Hold, handler: QuietHandler, key: str) -> bool:
    return hold.match in key and hold.path in handler.path


class _Server(QuietServer):
    def __init__(self, address: tuple[str, int], gateway: Gateway) -> None:
        self.gateway = gateway
        super().__init__(address, _Handler)


class _Handler(QuietHandler):
    server: _Server

    def do_POST(self) -> None:
        self.server.gateway.relay(self)

    def do_GET(self) -> None:
        self.server.gateway.relay(self)
