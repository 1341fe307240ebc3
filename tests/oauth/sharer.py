"""One of several processes that share tokens.

    python -m tests.oauth.sharer LEDGER PROVIDER...

Each provider is JSON: the name of its class and its settings. Reads a number of seconds per line: moves its clock on by
as many, calls a tool under each provider, and prints the tokens that the tools were sent. Its clock is the machine's,
moved; so it waits for other processes as long as they really take.
"""

from __future__ import annotations

import json
import os
import sys

import httpx

import agent_runtime
from agent_runtime import Runtime
from agent_runtime._drive import SystemClock
from tests import leaks
from tests.credentials import TOKEN_KEY, secret
from tests.oauth.authority import user_token
from tests.oauth.kit import tool


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


def main(ledger: str, *providers: str) -> None:
    clock, transport = MovedClock(), Transport(trust_env=False)
    leaks.watch_requests()
    tools = []
    for at, (name, settings) in enumerate(map(json.loads, providers)):
        leaks.AUTHORISATION_SERVERS.add(settings["token_url"].removesuffix("/token"))
        if "refresh_token" in settings:
            secret(settings["refresh_token"])
        tools.append(tool(f"tool-{at}", auth=getattr(agent_runtime, name)(**settings)))
    with (
        httpx.Client(transport=transport) as client,
        Runtime(ledger, tools=tools, client=client, clock=clock, token_key=TOKEN_KEY, lease=1e7) as runtime,
        runtime.open(f"plan-{os.getpid()}", actor="alice", subject_token=user_token("alice")) as session,
    ):
        print("ready", flush=True)
        for line in sys.stdin:
            clock.ahead += float(line)
            sent = []
            for one in tools:
                outcome = session.try_call(one, {})
                sent.append(transport.token if outcome.ok else f"{outcome.status} {outcome.error}")
            print(*sent, sep="\t", flush=True)
    leaks.tell_parent()


if __name__ == "__main__":
    main(*sys.argv[1:])
