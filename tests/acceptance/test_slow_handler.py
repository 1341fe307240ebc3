"""A tool whose handler is slower than its claim on the key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from acceptance_kit.agents import PROVISION
from acceptance_kit.forgetful import CLAIM, ForgetfulServer

from agent_runtime import AsyncRuntime, Idempotency, RetryPolicy, Runtime, Timeouts, Tool, ToolContract
from agent_runtime.config import presets
from examples.tool_backend.process import running_backend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

READ = 0.2  # seconds that the agent waits for an answer
SHORT_CLAIM = 0.6
SLOWER = 1.5  # seconds that the handler takes
LOOKUP = presets.TOOL_BACKEND.lookup
PATIENT = RetryPolicy(attempts=200, base=0.05, cap=0.1)

both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def slow_tool(url: str, idempotency: Idempotency) -> Tool:
    """Return a tool whose caller does not wait for long."""
    contract = ToolContract(idempotency=idempotency, lookup=LOOKUP, timeouts=Timeouts(read=READ), retry=PATIENT)
    return Tool("provision_database", url=url, contract=contract)


def called(tool: Tool, folder: Path, *, is_async: bool) -> Any:
    """Call the tool once in a session of its own and return the result."""
    url = f"sqlite:///{folder}/agent.db"
    if not is_async:
        with Runtime(url, tools=[tool]) as runtime, runtime.open("slow") as session:
            return session.call(tool, PROVISION[1])

    async def call() -> Any:
        async with AsyncRuntime(url, tools=[tool]) as runtime, runtime.open("slow") as session:
            return await session.call(tool, PROVISION[1])

    return asyncio.run(call())


@pytest.fixture
def forgetful() -> Iterator[ForgetfulServer]:
    """A server whose claim ends by itself."""
    server = ForgetfulServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def hasty_server() -> Iterator[ToolServer]:
    """The tool server with a short claim, which it renews while its handler runs."""
    with running_backend(claim_seconds=SHORT_CLAIM, retry_after=0) as server:
        yield server


@both_loops
@pytest.mark.parametrize("longest", [None, 60.0], ids=["ttl", "ttl_and_max_execution"])
def test_a_claim_that_ends_before_its_handler_costs_no_second_effect(
    longest: float | None, is_async: bool, forgetful: ForgetfulServer, tmp_path: Path
) -> None:
    """Where the contract says that a claim ends by itself, what comes after that time is a look-up, never a resend."""
    idempotency = Idempotency(in_progress_ttl=CLAIM, max_execution=longest)
    result = called(slow_tool(f"{forgetful.url}/slow", idempotency), tmp_path, is_async=is_async)
    assert result.value == {"effect": 1}
    assert forgetful.effects == [result.key]
    posts = [at for method, at in forgetful.requests if method == "POST"]
    assert posts[-1] - posts[0] < CLAIM
    assert (len(posts) == 1) is (longest is not None)


def test_a_contract_that_hides_the_end_of_the_claim_has_two_effects(forgetful: ForgetfulServer, tmp_path: Path) -> None:
    """The same tool under a contract that calls its claim endless runs twice: the rule is what prevents it."""
    called(slow_tool(f"{forgetful.url}/slow", Idempotency()), tmp_path, is_async=False)
    assert len(forgetful.effects) == 2


@both_loops
def test_a_handler_slower_than_its_renewed_claim_has_one_effect(
    is_async: bool, hasty_server: ToolServer, tmp_path: Path
) -> None:
    """A server that renews its claim is asked until it is done: one effect, and its stored answer."""
    hasty_server.reset()
    hasty_server.script("provision-database", "slow", seconds=SLOWER, when="after_effect")
    tool = slow_tool(f"{hasty_server.url}/tools/provision-database", Idempotency(in_progress_ttl=SHORT_CLAIM))
    result = called(tool, tmp_path, is_async=is_async)
    (effect,) = hasty_server.effects()
    assert result.value["instance_id"] == f"db-{effect['effect_id']}"
