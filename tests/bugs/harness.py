"""Both APIs behind one set of words, a tool that plays a script, a clock that is turned by sleeping."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx
from sqlalchemy import create_engine, inspect, text

from agent_runtime import AsyncRuntime, Idempotency, Runtime, Tool, ToolContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from agent_runtime import Outcome, ToolResult
    from agent_runtime.config import HttpTool

T = TypeVar("T")
URL = "https://tools.test/pay"
NOW = 1_800_000_000
"""Where the tests' clock begins (UTC epoch seconds)."""


class Api:
    """The blocking or the async API, used from blocking test code."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.is_async = name == "async"
        self.url = url
        self._loop = asyncio.Runner() if self.is_async else None
        self._workers: list[Worker] = []

    def do(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a method of either API and return what it gives in the end."""
        if self._loop is None:
            return function(*args, **named)

        async def call() -> Any:
            return await function(*args, **named)

        return self._loop.run(call())

    def worker(self, *tools: Any, url: str | None = None, clock: Any = None, **settings: Any) -> Worker:
        """Open a runtime of its own on the test's ledger, as another process would."""
        settings = {"random": lambda: 0.5} | settings
        if clock is not None:
            settings["clock"] = clock
        if "client" not in settings:
            settings["client"] = self.client()
        make = AsyncRuntime if self.is_async else Runtime
        ledger = settings.pop("ledger", url or self.url)
        worker = Worker(self, make(ledger, tools=tools, **settings), settings["client"])
        self._workers.append(worker)
        return worker

    def client(self, handler: Callable[[httpx.Request], httpx.Response] | None = None) -> Any:
        """Make a user's own client; with a handler it reaches nothing else. Certificates are costly to load."""
        settings: dict[str, Any] = {"trust_env": False, "verify": False}
        if handler is not None:
            settings["transport"] = httpx.MockTransport(handler)
        return (httpx.AsyncClient if self.is_async else httpx.Client)(**settings)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        if self._loop is not None:
            self._loop.close()


class Worker:
    """A runtime of either API."""

    def __init__(self, api: Api, runtime: Any, client: Any) -> None:
        self.api = api
        self.runtime = runtime
        self._client = client
        self._closed = False

    def open(self, alias: str = "plan", **named: Any) -> Plan:
        return Plan(self.api, self.api.do(self.runtime.open, alias, **named))

    def resume(self, name: str = "plan", **named: Any) -> Plan:
        return Plan(self.api, self.api.do(self.runtime.resume, name, **named))

    def do(self, name: str, *args: Any, **named: Any) -> Any:
        """Call a method of the runtime."""
        return self.api.do(getattr(self.runtime, name), *args, **named)

    def evidence(self, operation_id: str) -> list[Any]:
        return self.runtime.ledger.evidence(operation_id).result(20)

    def operation(self, operation_id: str) -> Any:
        return self.runtime.ledger.operation(operation_id).result(20)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.do("close")
            self.api.do(self._client.aclose if self.api.is_async else self._client.close)


class Plan:
    """A session of either API."""

    def __init__(self, api: Api, session: Any) -> None:
        self.api = api
        self.session = session

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def report(self) -> Any:
        return self.session.report

    def call(self, *args: Any, **named: Any) -> ToolResult[Any]:
        return self.api.do(self.session.call, *args, **named)

    def try_call(self, *args: Any, **named: Any) -> Outcome:
        return self.api.do(self.session.try_call, *args, **named)

    def call_many(self, calls: Sequence[Any]) -> list[Outcome]:
        return self.api.do(self.session.call_many, calls)

    def settle(self) -> list[Outcome]:
        return self.api.do(self.session.settle)

    def reissue(self, step: str) -> ToolResult[Any]:
        return self.api.do(self.session.reissue, step)

    def branch(self, name: str) -> Plan:
        return Plan(self.api, self.session.branch(name))

    def each(self, entries: Iterable[T]) -> Iterator[tuple[Plan, T]]:
        """Give each entry of a table a branch of its own, so that an unsettled step stands in nobody's way."""
        for number, entry in enumerate(entries):
            yield self.branch(f"entry_{number}"), entry

    def steps(self) -> Any:
        return self.session.steps()

    def states(self) -> dict[str, str]:
        return {step.step: step.state for step in self.session.steps()}

    def close(self) -> None:
        self.api.do(self.session.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tool(name: str = "pay", *, url: str = URL, contract: ToolContract | None = None, **settings: Any) -> HttpTool:
    """Describe a writing tool that honours keys, unless another contract is given."""
    return Tool(name, url=url, contract=contract or keyed(), **settings)


def keyed(**settings: Any) -> ToolContract:
    """Return the contract of a write that honours keys."""
    return ToolContract(idempotency=Idempotency(), **settings)


Step = "Callable[[Target, httpx.Request], httpx.Response]"


class Target:
    """A tool that plays a script, its last entry for ever, and counts requests and effects.

    Attributes:
        requests: what came, in order.
        effects: the key of each effect that was performed.
        honours: it performs a key once, and answers it again with the stored answer and a replay mark.
    """

    def __init__(self, *script: Any, honours: bool = True) -> None:
        self.script = list(script)
        self.honours = honours
        self.requests: list[httpx.Request] = []
        self.effects: list[str] = []
        self._stored: dict[str, httpx.Response] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        entry = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return entry(self, request)

    def perform(self, request: httpx.Request, status: int, value: Any) -> httpx.Response:
        key = request.headers["Idempotency-Key"]
        if self.honours and key in self._stored:
            stored = self._stored[key]
            return httpx.Response(stored.status_code, content=stored.content, headers={"Idempotent-Replayed": "true"})
        self.effects.append(key)
        self._stored[key] = httpx.Response(status, json=value)
        return httpx.Response(status, json=value)

    @property
    def sends(self) -> int:
        return len(self.requests)

    @property
    def keys(self) -> set[str]:
        return {request.headers["Idempotency-Key"] for request in self.requests}

    @property
    def bodies(self) -> set[bytes]:
        return {request.content for request in self.requests}


def does(value: Any = None, status: int = 200) -> Any:
    """Perform the effect and say so."""
    return lambda target, request: target.perform(request, status, {"id": "x"} if value is None else value)


def loses(error: type[Exception] = httpx.ReadTimeout) -> Any:
    """Perform the effect; the answer is lost on its way."""

    def step(target: Target, request: httpx.Request) -> httpx.Response:
        target.perform(request, 200, {"id": "x"})
        raise error("lost", request=request)

    return step


def breaks(error: type[BaseException]) -> Any:
    """Raise, without an effect."""

    def step(target: Target, request: httpx.Request) -> httpx.Response:
        raise error("broken", request=request) if issubclass(error, httpx.RequestError) else error

    return step


def says(status: int, json: Any = None, **named: Any) -> Any:
    """Answer without an effect; keywords are those of `httpx.Response`."""
    return lambda target, request: httpx.Response(status, json=json, **named)


def tables(url: str, tmp_path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of a ledger."""
    engine = create_engine(_plain(url))
    try:
        with engine.connect() as connection:
            return {
                name: [tuple(row) for row in connection.execute(text(f'SELECT * FROM "{name}"'))]
                for name in inspect(engine).get_table_names()
            }
    finally:
        engine.dispose()


def dump(url: str, tmp_path: Path) -> bytes:
    """Return all that a ledger holds as bytes: its rows, and for SQLite its whole file as well."""
    parts = [
        value if isinstance(value, bytes) else repr(value).encode()
        for rows in tables(url, tmp_path).values()
        for row in rows
        for value in (bytes(one) if isinstance(one, memoryview) else one for one in row)
    ]
    if url.startswith("sqlite"):
        copy = tmp_path / "copy.db"
        with closing(sqlite3.connect(_file(url))) as conn:
            conn.execute("VACUUM INTO ?", (str(copy),))
        parts += [copy.read_bytes()]
        parts += [one.read_bytes() for one in tmp_path.glob("agent.db*") if one.suffix != ".lock"]
    return b"\n".join(parts)


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///")


def _plain(url: str) -> str:
    return url if url.startswith("sqlite") else url.replace("postgresql://", "postgresql+psycopg://", 1)
