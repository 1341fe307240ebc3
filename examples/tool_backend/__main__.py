"""Run the tool server: ``python -m examples.tool_backend --port 8080``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import uvicorn

from examples.tool_backend.app import create_app
from examples.tool_backend.settings import Settings
from examples.tool_backend.store import connect
from examples.tool_backend.valkey import running_valkey
from examples.tool_backend.wire import CuttableProtocol

if TYPE_CHECKING:
    import socket

_DEFAULTS = Settings()
GRACE_SECONDS = 1


class AnnouncingServer(uvicorn.Server):
    """A uvicorn server that prints one line with its URL once it accepts connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            print(f"tool_backend ready: http://{host}:{port}", flush=True)


def main() -> None:
    """Serve until a signal comes, then clean up."""
    options = _parse_options()
    settings = Settings(
        claim_seconds=options.claim_seconds,
        result_seconds=options.result_seconds,
        retry_after=options.retry_after,
        require_token=options.require_token,
        token_seconds=options.token_seconds,
    )
    # uvicorn raises the signal again after its own shutdown; the default action would then skip ours.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if options.stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, daemon=True).start()
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        url = options.redis_url or stack.enter_context(running_valkey())
        config = uvicorn.Config(
            create_app(connect(url), settings),
            host=options.host,
            port=options.port,
            http=CuttableProtocol,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        AnnouncingServer(config).run()


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.tool_backend", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port (default)")
    parser.add_argument("--redis-url", help="a Redis or Valkey that is already there; without it, one is started")
    parser.add_argument("--claim-seconds", type=float, default=_DEFAULTS.claim_seconds)
    parser.add_argument("--result-seconds", type=float, default=_DEFAULTS.result_seconds)
    parser.add_argument("--retry-after", type=int, default=_DEFAULTS.retry_after, help="what a 409 asks for")
    parser.add_argument("--require-token", action="store_true", help="tools demand a token of POST /oauth/token")
    parser.add_argument("--token-seconds", type=int, default=_DEFAULTS.token_seconds)
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop when standard input ends")
    return parser.parse_args()


def _stop_with_stdin() -> None:
    # Not through sys.stdin: a thread that waits inside its buffer's lock aborts the interpreter's exit.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
