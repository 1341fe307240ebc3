"""One stage for both faces: the same words drive `Session` and `AsyncSession`, over SQLite and over Postgres."""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from agent_runtime import AsyncRuntime, AsyncSession, Idempotency, Runtime, Tool, ToolContract
from agent_runtime.testing import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.config import HttpTool
    from agent_runtime.ledger import Ledger, SqlLedger

ORIGIN = "https://tools.example.com"
WAIT = 20.0
"""Seconds that a test waits for what must come; only a failing test waits as long."""

KEYED = ToolContract(idempotency=Idempotency())
PLAIN = ToolContract()


def http_tool(name: str, contract: ToolContract = KEYED, **settings: Any) -> HttpTool:
    return Tool(name, url=f"{ORIGIN}/tools/{name}", contract=contract, **settings)


provision = http_tool("provision")
debit = http_tool("debit")
notify = http_tool("notify", PLAIN)
ship = http_tool("ship", PLAIN)
inspect_stock = http_tool("stock", ToolContract(kind="read"), method="GET")
TOOLS = (provision, debit, notify, ship, inspect_stock)


class Killed(BaseException):
    """Ends the caller where it stands, as SIGKILL would: nothing is written after it."""


class Clock(VirtualClock):
    """The kit's clock, with something that happens when somebody sleeps on it."""

    def __init__(self) -> None:
        super().__init__()
        self.on_sleep: Callable[[], None] | None = None

    def sleep(self, seconds: float) -> None:
        if self.on_sleep is not None:
            self.on_sleep()
        super().sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        if self.on_sleep is not None:
            self.on_sleep()
        await super().sleep_async(seconds)


@dataclass(frozen=True)
class Seen:
    """One request as it came to the tools."""

    tool: str
    key: str | None
    body: bytes
    headers: httpx.Headers


class Tools:
    """The tools' side: counts requests and effects; its bad days are scripted, one entry for each request.

    ``lost``: the effect stands, the answer is lost. ``silence``: no effect and no answer. ``down``: no connection.
    A number: that status, no effect. A response: itself. A function: is called with the request and answers.
    """

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.effects: Counter[str] = Counter()
        self._stored: dict[tuple[str, str | None], httpx.Response] = {}
        self._scripts: defaultdict[str, deque[Any]] = defaultdict(deque)

    def script(self, tool: str, *entries: Any) -> None:
        self._scripts[tool].extend(entries)

    def forget_scripts(self) -> None:
        self._scripts.clear()

    def names(self) -> list[str]:
        return [seen.tool for seen in self.requests]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        key = request.headers.get("Idempotency-Key")
        self.requests.append(Seen(name, key, request.content, request.headers))
        entry = self._scripts[name].popleft() if self._scripts[name] else "ok"
        if entry == "down":
            raise httpx.ConnectError("refused", request=request)
        if entry == "silence":
            raise httpx.ReadTimeout("no answer", request=request)
        if isinstance(entry, int):
            return httpx.Response(entry, json={"error": f"said {entry}"})
        if isinstance(entry, httpx.Response):
            return entry
        if callable(entry):
            return entry(request)
        answer = self.apply(name, key, request.content)
        if entry == "lost":
            raise httpx.ReadTimeout("no answer", request=request)
        return answer

    def apply(self, name: str, key: str | None, body: bytes) -> httpx.Response:
        """Do what the tool does; one that honours keys does it once for each key."""
        keyed = name in {"provision", "debit"}
        if keyed and (name, key) in self._stored:
            stored = self._stored[name, key]
            return httpx.Response(stored.status_code, content=stored.content, headers={"Idempotent-Replayed": "true"})
        self.effects[name] += 1
        value = {"tool": name, "effect": self.effects[name], **(json.loads(body) if body else {})}
        answer = httpx.Response(200, json=value)
        if keyed:
            self._stored[name, key] = answer
        return answer


class Blocking:
    """An async object whose methods are called without ``await``, so that one scenario serves both faces."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        return self._called(found) if callable(found) else found

    def __enter__(self) -> Any:
        return self._called(self.target.__aenter__)()

    def __exit__(self, *how: object) -> None:
        self._called(self.target.__aexit__)(*how)

    def _called(self, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            async def go() -> Any:
                made = method(*args, **kwargs)
                return await made if inspect.isawaitable(made) else made

            value = self._runner.run(go())
            if value is self.target:
                return self
            return Blocking(value, self._runner) if isinstance(value, AsyncSession | AsyncRuntime) else value

        return call


class Stage:
    """One face over one database, with the tools behind it. ``runtime()`` makes another worker of this process."""

    def __init__(self, face: str, ledger: SqlLedger, clock: Clock, url: str) -> None:
        self.face = face
        self.ledger = ledger
        self.clock = clock
        self.url = url
        self.tenant = uuid.uuid4().hex
        self.tools = Tools()
        self._runner = asyncio.Runner() if face == "async" else None
        self._made: list[Any] = []
        self._own: Any = None

    @property
    def is_async(self) -> bool:
        return self.face == "async"

    def runtime(self, *tools: Any, ledger: Ledger | str | None = None, **settings: Any) -> Any:
        """Make a runtime of this face; without tools it has all of the stage's."""
        given = {"tools": tools or TOOLS, "tenant": self.tenant, "clock": self.clock, "random": lambda: 0.5}
        where = ledger if ledger is not None else self.ledger
        client = httpx.AsyncClient if self.is_async else httpx.Client
        given = {"client": client(transport=httpx.MockTransport(self.tools)), **given, **settings}
        made: Any = Runtime(where, **given) if self._runner is None else None
        if self._runner is not None:
            made = Blocking(AsyncRuntime(where, **given), self._runner)
        self._made.append(made)
        return made

    def open(self, alias: str = "orders", **settings: Any) -> Any:
        """Open a session of the stage's own runtime."""
        if self._own is None:
            self._own = self.runtime()
        return self._own.open(alias, **settings)

    @property
    def own(self) -> Any:
        """The stage's own runtime."""
        if self._own is None:
            self._own = self.runtime()
        return self._own

    def run(self, work: Any) -> Any:
        """Run a coroutine of an async test on the stage's loop."""
        assert self._runner is not None
        return self._runner.run(work)

    def loaded(self, name: str = "orders") -> Any:
        """Read a session's rows without a lease."""
        return self.ledger.load(name=name, tenant=self.tenant).result(WAIT)

    def states(self, name: str = "orders") -> list[str]:
        """Return the states of a session's operations, in the order they were made."""
        operations = sorted(self.loaded(name).operations, key=lambda one: (one.created_at, one.label))
        return [str(operation.state) for operation in operations]

    def step_kinds(self, name: str = "orders") -> list[tuple[str, str]]:
        """Return label and kind of a session's steps, in the order they were reserved."""
        return [(step.label, step.kind) for step in sorted(self.loaded(name).steps, key=lambda one: one.seq)]

    def close(self) -> None:
        for made in self._made:
            made.close()
        if self._runner is not None:
            self._runner.close()


class BrokenLedger:
    """A ledger whose writes can fail: ``fail(entry)`` returns what to raise instead of writing, or None."""

    def __init__(self, ledger: SqlLedger, fail: Callable[[Any], BaseException | None]) -> None:
        self._ledger = ledger
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def write(self, entries: Any) -> Any:
        for entry in entries:
            error = self._fail(entry)
            if error is not None:
                raise error
        return self._ledger.write(entries)


class KillSwitch:
    """Ends the worker for good: from the moment it is thrown, every write of this worker's ledger is refused.

    ``before`` names the write in front of which it throws itself, by a test of the entry.
    """

    def __init__(self, before: Callable[[Any], bool] | None = None) -> None:
        self.thrown = False
        self._before = before

    def __call__(self, entry: Any) -> BaseException | None:
        if self._before is not None and self._before(entry):
            self.thrown = True
        return Killed() if self.thrown else None
