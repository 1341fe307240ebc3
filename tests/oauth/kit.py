"""An authorisation server and tools behind one transport, and both APIs behind one set of words."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import httpx
from sqlalchemy import text

from agent_runtime import AsyncRuntime, Idempotency, RefreshToken, Runtime, Tool, ToolContract
from agent_runtime.ledger import open_ledger
from tests.credentials import CLIENT_SECRET, REFRESH, TOKEN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._model.tokens import TokenHold
    from agent_runtime.ledger import SqlLedger
    from agent_runtime.testing import VirtualClock

TOKEN_URL = "https://as.test/token"
TOOL_URL = "https://tools.test/pay"
CLIENT = {"token_url": TOKEN_URL, "client_id": "agent", "client_secret": CLIENT_SECRET}
EXCHANGED = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}


class Site:
    """Issues tokens that run out by the test's clock, and serves a tool that takes only tokens that are good.

    Attributes:
        forms: of the token requests, in order, each a list of pairs; ``token_requests``: as they came.
        calls: of the tool, in order; ``expired``: those whose token was no longer good.
        refresh: the refresh token that is good now; an older one revokes the grant (``revoked``).
        on_token, on_tool: answers to give first, each a response or a function of request and site.
    """

    def __init__(self, clock: VirtualClock, *, lifetime: Any = 300, sends_refresh: bool = True) -> None:
        self.clock = clock
        self.lifetime = lifetime
        self.sends_refresh = sends_refresh
        self.forms: list[list[tuple[str, str]]] = []
        self.token_requests: list[httpx.Request] = []
        self.calls: list[httpx.Request] = []
        self.expired: list[httpx.Request] = []
        self.issued: dict[str, tuple[float, dict[str, str]]] = {}
        self.refresh = REFRESH
        self.revoked = False
        self.on_token: list[Any] = []
        self.on_tool: list[Any] = []
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if request.url.host == "as.test":
            return self._token(request)
        with self._lock:
            self.calls.append(request)
            entry = self.on_tool.pop(0) if self.on_tool else None
        if entry is not None:
            return entry(request, self) if callable(entry) else entry
        return self.serve(request)

    def _token(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            self.token_requests.append(request)
            self.forms.append(parse_qsl(request.content.decode()))
            entry = self.on_token.pop(0) if self.on_token else None
        if entry is not None:
            return entry(request, self) if callable(entry) else entry
        return self.issue(request)

    def issue(self, request: httpx.Request) -> httpx.Response:
        """Answer a token request as a server that rotates and detects reuse."""
        form = dict(parse_qsl(request.content.decode()))
        more: dict[str, Any] = {}
        with self._lock:
            if form["grant_type"] == "refresh_token":
                if form["refresh_token"] != self.refresh or self.revoked:
                    self.revoked = True
                    return httpx.Response(400, json={"error": "invalid_grant"})
                if self.sends_refresh:
                    self.refresh = f"refresh-canary-{len(self.issued) + 1}"
                    more["refresh_token"] = self.refresh
            if form["grant_type"].endswith("token-exchange"):
                more |= EXCHANGED
            value = f"issued-canary-{len(self.issued) + 1}"
            lifetime = 300.0 if self.lifetime in {None, ...} else float(self.lifetime)
            self.issued[value] = (self.clock.wall() + max(lifetime, 1.0), form)
        reply = {"access_token": value, "token_type": "Bearer"} | more
        return httpx.Response(200, json=reply if self.lifetime is ... else reply | {"expires_in": self.lifetime})

    def serve(self, request: httpx.Request) -> httpx.Response:
        """Answer a tool request: 401 unless its token is good now."""
        known = self.issued.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if known is None or known[0] <= self.clock.wall():
            self.expired.append(request)
            return unauthorised()
        subject = known[1].get("subject_token", known[1].get("assertion", ""))
        return httpx.Response(200, json={"for": subject.rpartition("-")[2]})

    def of(self, call: httpx.Request) -> dict[str, str]:
        """Return the form that the token of a call was issued for."""
        return self.issued[call.headers["Authorization"].removeprefix("Bearer ")][1]


def unauthorised(challenge: str = 'Bearer error="invalid_token"') -> httpx.Response:
    """Refuse a token."""
    return httpx.Response(401, headers={"WWW-Authenticate": challenge}, json={"title": "no"})


class Api:
    """The blocking or the async API, used from blocking test code."""

    def __init__(self, name: str, url: str, site: Site) -> None:
        self.name = name
        self.url = url
        self.site = site
        self._loop = asyncio.Runner() if name == "async" else None
        self._opened: list[tuple[Any, Any]] = []

    def do(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a method of either API and return what it gives in the end."""
        if self._loop is None:
            return function(*args, **named)

        async def call() -> Any:
            return await function(*args, **named)

        return self._loop.run(call())

    def gather(self, *calls: Callable[[], Any]) -> list[Any]:
        """Do calls at once: in threads, or in tasks of one loop."""
        if self._loop is not None:

            async def together() -> list[Any]:
                return await asyncio.gather(*(call() for call in calls))

            return self._loop.run(together())
        results: list[Any] = [None] * len(calls)

        def run(index: int) -> None:
            results[index] = calls[index]()

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return results

    def runtime(self, *tools: Any, **settings: Any) -> Any:
        """Open a runtime of its own on the test's ledger, as another process would."""
        kind, make = (httpx.Client, Runtime) if self._loop is None else (httpx.AsyncClient, AsyncRuntime)
        client = kind(transport=httpx.MockTransport(settings.pop("handler", self.site)))
        settings = {"clock": self.site.clock, "random": lambda: 0.5, "token_key": TOKEN_KEY} | settings
        runtime = make(settings.pop("url", self.url), tools=tools, client=client, **settings)
        self._opened.append((runtime, client))
        return runtime

    def open(
        self, *tools: Any, alias: str = "plan", actor: str | None = None, subject_token: Any = None, **settings: Any
    ):
        """Open a session of a runtime of its own."""
        return self.do(self.runtime(*tools, **settings).open, alias, actor=actor, subject_token=subject_token)

    def close_runtimes(self) -> None:
        """Close what was opened so far."""
        while self._opened:
            runtime, client = self._opened.pop()
            self.do(runtime.close)
            self.do(client.close if self._loop is None else client.aclose)

    def close(self) -> None:
        self.close_runtimes()
        if self._loop is not None:
            self._loop.close()


def tool(
    name: str = "pay", *, auth: Any = None, url: str = TOOL_URL, contract: ToolContract | None = None, **more: Any
):
    """Describe a writing tool that honours keys."""
    return Tool(name, url=url, auth=auth, contract=contract or ToolContract(idempotency=Idempotency()), **more)


def rotating(**settings: Any) -> RefreshToken:
    """Describe an account whose refresh tokens rotate."""
    return RefreshToken(**CLIENT | {"account": "alice@crm", "refresh_token": REFRESH} | settings)


def open_ledger_closing(url: str, site: Site) -> Any:
    """Open a ledger by the test's clock; closes at the end of a block."""
    return closing(open_ledger(url, clock=site.clock))


def rows(ledger: SqlLedger) -> list[dict[str, Any]]:
    """Return the rows of refresh tokens."""
    with ledger.engine.connect() as conn:
        return [dict(row._mapping) for row in conn.execute(text("SELECT * FROM agent_runtime_tokens"))]


def take(ledger: SqlLedger, row: str, holder: str, seconds: float = 10) -> TokenHold:
    """Take the row of a token that expires, as another process would."""
    return ledger.hold_token(row, name="n", holder=holder, seconds=seconds, expires=True).result(20)
