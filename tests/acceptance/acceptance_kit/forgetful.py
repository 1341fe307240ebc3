"""A tool server as printed examples have it: its claim on a key ends by itself, while its handler still runs."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field

from acceptance_kit.quiet import QuietHandler, QuietServer

CLAIM = 0.6  # seconds after which it forgets that it is running
HANDLER_AT_MOST = 30.0


@dataclass
class _Operation:
    claimed_until: float = 0.0
    running: int = 0
    answer: bytes | None = None


@dataclass
class ForgetfulServer:
    """Runs a handler that ends once somebody looked the operation up, or once it runs twice.

    Attributes:
        effects: one key for each run that ended.
        requests: method and time (monotonic) of each request.
    """

    effects: list[str] = field(default_factory=list)
    requests: list[tuple[str, float]] = field(default_factory=list)
    _operations: dict[str, _Operation] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _may_end: bool = False

    def __post_init__(self) -> None:
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let handlers end, and stop."""
        with self._changed:
            self._may_end = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def run(self, key: str) -> tuple[int, dict[str, str], bytes]:
        """Serve a request under a key: claim and run, replay, or say that it runs."""
        with self._changed:
            now = time.monotonic()
            self.requests.append(("POST", now))
            operation = self._operations.setdefault(key, _Operation())
            if operation.answer is not None:
                return 200, {"Idempotent-Replayed": "true"}, operation.answer
            if operation.claimed_until > now:
                return 409, {}, b"{}"
            operation.claimed_until = now + CLAIM
            operation.running += 1
            self._may_end = self._may_end or operation.running > 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._may_end, HANDLER_AT_MOST)
            operation.running -= 1
            self.effects.append(key)
            operation.answer = operation.answer or json.dumps({"effect": len(self.effects)}).encode()
            return 200, {}, operation.answer

    def look_up(self, key: str) -> tuple[int, dict[str, str], bytes]:
        """Say how an operation stands, and let its handler end."""
        with self._changed:
            self.requests.append(("GET", time.monotonic()))
            operation = self._operations.get(key, _Operation())
            self._may_end = True
            self._changed.notify_all()
            if operation.answer is not None:
                return 200, {}, b'{"state": "done", "status": 200, "body": %s}' % operation.answer
            return (200, {}, b'{"state": "running"}') if operation.running else (404, {}, b'{"state": "absent"}')


class _Server(QuietServer):
    def __init__(self, address: tuple[str, int], tool: ForgetfulServer) -> None:
        self.tool = tool
        super().__init__(address, _Handler)


class _Handler(QuietHandler):
    server: _Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(*self.server.tool.run(self.headers["Idempotency-Key"]))

    def do_GET(self) -> None:
        self._answer(*self.server.tool.look_up(self.path.rpartition("/")[2].replace("%3A", ":")))

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
