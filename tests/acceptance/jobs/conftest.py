"""The tool server with its jobs, and runtimes of both faces before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from acceptance_kit.gateway import Gateway

from agent_runtime import AsyncRuntime, Idempotency, PollPolicy, RetryPolicy, Runtime, Tool, ToolContract
from examples.tool_backend.process import running_backend
from tests.session.stage import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from examples.tool_backend.process import Backend

PATHS = {"transcode": "transcode", "report": "reports", "import": "imports", "build": "builds"}


@pytest.fixture(scope="session")
def standing_server() -> Iterator[Backend]:
    """One tool server for all tests of a worker."""
    with running_backend(retry_after=0) as server:
        yield server


@pytest.fixture
def server(standing_server: Backend) -> Backend:
    """The tool server, with nothing left of earlier tests."""
    standing_server.reset()
    return standing_server


@pytest.fixture
def gateway(server: Backend) -> Iterator[Gateway]:
    """A gateway before the tool server."""
    gateway = Gateway(server.url)
    yield gateway
    gateway.close()


@pytest.fixture
def job_tool(server: Backend) -> Callable[..., Any]:
    """Makes a slow tool of the server, or of a gateway before it; waits are short."""

    def make(name: str = "transcode", *, at: str = server.url, **policy: Any) -> Any:
        polling = PollPolicy(**{"first": 0.05, "cap": 0.2, **policy})
        contract = ToolContract(idempotency=Idempotency(), polling=polling, retry=RetryPolicy(base=0.05, cap=0.2))
        return Tool(name, url=f"{at}/v1/{PATHS[name]}", contract=contract)

    return make


@pytest.fixture(params=["sync", "async"])
def runtime_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes runtimes of either face over one SQLite file."""
    runner = asyncio.Runner() if request.param == "async" else None
    made: list[Any] = []

    def make(*tools: Any, url: str = f"sqlite:///{tmp_path}/agent.db", **settings: Any) -> Any:
        if runner is None:
            made.append(Runtime(url, tools=tools, **settings))
        else:
            made.append(Blocking(AsyncRuntime(url, tools=tools, **settings), runner))
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()
    if runner is not None:
        runner.close()
