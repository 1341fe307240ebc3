"""One tool server for a worker's tests, a gateway before it, agents as child processes."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from acceptance_kit.children import Agent
from acceptance_kit.gateway import Gateway

from examples.tool_backend.process import running_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acceptance_kit.agents import Order

    from examples.tool_backend.process import Backend as ToolServer
    from tests.conftest import Backend as Database

RETRY_AFTER = 0  # what a 409 asks for: the tests' waits are the agents' own, short ones


@pytest.fixture(scope="session")
def standing_tool_server() -> Iterator[ToolServer]:
    """One tool server for all tests of a worker."""
    with running_backend(retry_after=RETRY_AFTER) as server:
        yield server


@pytest.fixture
def tool_server(standing_tool_server: ToolServer) -> ToolServer:
    """The tool server, with nothing left of earlier tests."""
    standing_tool_server.reset()
    return standing_tool_server


@pytest.fixture
def gateway(tool_server: ToolServer) -> Iterator[Gateway]:
    """A gateway before the tool server."""
    gateway = Gateway(tool_server.url)
    yield gateway
    gateway.close()


@pytest.fixture
def ledger(backend: Database) -> str:
    """URL of a ledger, once on SQLite and once on Postgres."""
    return backend.url


@pytest.fixture
def start() -> Iterator[Callable[[Order], Agent]]:
    """Starts agents, and ends those that a test leaves behind."""
    agents: list[Agent] = []

    def starter(order: Order) -> Agent:
        agents.append(Agent(order))
        return agents[-1]

    yield starter
    for agent in agents:
        agent.close()


@pytest.fixture
def alias() -> str:
    """A name for a session."""
    return f"plan {uuid.uuid4().hex}"
