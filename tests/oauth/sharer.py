"""One of several processes that share an account's rotating refresh token.

    python -m tests.oauth.sharer LEDGER TOKEN_URL REFRESH_TOKEN

Reads a number of seconds per line: moves its clock on by as many, calls the tool, and prints the token that the tool
was sent. Its clock is the machine's, moved; so it waits for other processes as long as they really take.
"""

from __future__ import annotations

import sys

import httpx

from agent_runtime import RefreshToken, Runtime
from agent_runtime._drive import SystemClock
from tests.oauth.kit import TOKEN_KEY, tool


class MovedClock(SystemClock):
    """The machine's clock, moved on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def wall(self) -> float:
        return super().wall() + self.ahead

    def boottime(self) -> float:
        return super().boottime() + self.ahead


class Transport(httpx.HTTPTransport):
    """Plays the tool; the authorisation server is asked over the network."""

    token = ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != "tools.test":
            return super().handle_request(request)
        self.token = request.headers["Authorization"].removeprefix("Bearer ")
        return httpx.Response(200, json={})


def main(ledger: str, token_url: str, refresh_token: str) -> None:
    clock, transport = MovedClock(), Transport(trust_env=False)
    auth = RefreshToken(
        token_url=token_url,
        client_id="app",
        client_secret="app-secret",
        account="alice",
        refresh_token=refresh_token,
    )
    with (
        httpx.Client(transport=transport) as client,
        Runtime(ledger, tools=[tool(auth=auth)], client=client, clock=clock, token_key=TOKEN_KEY, lease=1e7) as runtime,
        runtime.start() as session,
    ):
        print("ready", flush=True)
        for line in sys.stdin:
            clock.ahead += float(line)
            outcome = session.try_call("pay", {})
            print(transport.token if outcome.ok else f"{outcome.status} {outcome.error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
