"""A loop that catches the timeout and calls again, with no crash and no new plan: unchanged, and reworded."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from acceptance_kit.agents import PROVISION, tools_at

from agent_runtime import AsyncRuntime, AsyncSession, Runtime, Session, StepUnknown, UnsettledStep

if TYPE_CHECKING:
    from acceptance_kit.gateway import Gateway

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

READ = 0.3  # seconds that the agent waits for an answer
SLOW = 0.9  # seconds that the server takes where it is slow: longer than `READ`, and than a second try
REWORDED = {"region": "eu-central-1", "storage_gb": 20}
FAULTS = {
    "slow_before_effect": {"fault": "slow", "seconds": SLOW, "when": "before_effect"},
    "slow_after_effect": {"fault": "slow", "seconds": SLOW, "when": "after_effect"},
    "lost_answer": {"fault": "lost_answer"},
}
faults = pytest.mark.parametrize("fault", FAULTS)
both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


async def told(done: Any) -> Any:
    """Return what a call of either kind of session delivers."""
    return await done if asyncio.iscoroutine(done) else done


async def call_again(session: Session | AsyncSession, args: dict[str, Any]) -> tuple[StepUnknown, Any]:
    """Catch the timeout of a call, as an agent's loop does, and call again with these args."""
    with pytest.raises(StepUnknown) as caught:
        await told(session.call("provision_database", PROVISION[1]))
    return caught.value, await told(session.try_call("provision_database", args))


async def settled(session: Session | AsyncSession) -> list[Any]:
    """Settle until nothing is left: the server may still be at work."""
    for _ in range(20):
        outcomes = await told(session.settle())
        if all(outcome.done for outcome in outcomes):
            return outcomes
    raise AssertionError(outcomes)


@faults
@both_loops
async def test_the_same_call_again_after_a_timeout_has_one_effect(
    fault: str, is_async: bool, ledger: str, gateway: Gateway, tool_server: ToolServer, alias: str
) -> None:
    """(a) The loop calls again, unchanged: the second call settles the first one under its key."""
    tool_server.script("provision-database", **FAULTS[fault])
    tools = tools_at(gateway.url, read=READ, attempts=1, has_lookup=False)
    if is_async:
        async with AsyncRuntime(ledger, tools=tools) as runtime, runtime.open(alias) as session:
            await _same_again(session)
    else:
        with Runtime(ledger, tools=tools) as runtime, runtime.open(alias) as session:
            await _same_again(session)
    assert len(tool_server.effects()) == 1
    assert len({request.key for request in gateway.requests()}) == 1


async def _same_again(session: Session | AsyncSession) -> None:
    unknown, outcome = await call_again(session, PROVISION[1])
    while not outcome.done:  # the server was still at work
        assert outcome.status == "unknown"
        outcome = await told(session.try_call("provision_database", PROVISION[1]))
    assert outcome.key == unknown.key
    assert outcome.value["region"] == PROVISION[1]["region"]


@faults
@both_loops
async def test_a_reworded_call_after_a_timeout_is_refused_and_told_why(
    fault: str, is_async: bool, ledger: str, gateway: Gateway, tool_server: ToolServer, alias: str
) -> None:
    """(b) The loop calls again with another region: nothing is sent, and the caller reads what stands in the way."""
    tool_server.script("provision-database", **FAULTS[fault])
    tools = tools_at(gateway.url, read=READ, attempts=1, has_lookup=False)
    if is_async:
        async with AsyncRuntime(ledger, tools=tools) as runtime, runtime.open(alias) as session:
            await _reworded(session, tool_server)
    else:
        with Runtime(ledger, tools=tools) as runtime, runtime.open(alias) as session:
            await _reworded(session, tool_server)
    assert Counter(effect["args"]["region"] for effect in tool_server.effects()) == {PROVISION[1]["region"]: 1}
    assert len({request.key for request in gateway.requests()}) == 1


async def _reworded(session: Session | AsyncSession, tool_server: ToolServer) -> None:
    unknown, outcome = await call_again(session, REWORDED)
    assert unknown.step == "step_001"
    assert (outcome.status, outcome.reason) == ("not_started", "unsettled")
    assert "step_001 is not settled yet" in outcome.message
    said = outcome.for_model()
    assert said["status"] == "not_started"
    assert said["done"] is False
    with pytest.raises(UnsettledStep) as refused:
        await told(session.call("provision_database", REWORDED))
    assert refused.value.blocking == "step_001"
    assert "step_001 is not settled yet" in str(refused.value)
    assert "othing was sent" in str(refused.value)
    (first,) = await settled(session)
    assert (first.step, first.value["region"]) == ("step_001", PROVISION[1]["region"])
    assert len(tool_server.effects()) == 1


def test_a_loop_without_a_ledger_doubles_the_effect(tool_server: ToolServer) -> None:
    """The same loop over plain httpx with a key from a counter and the args leaves two databases: the fault is real."""
    tool_server.script("provision-database", "lost_answer")
    session = uuid.uuid4()

    def call(step: int, args: dict[str, Any]) -> httpx.Response:
        headers = {"Idempotency-Key": f"{session}-{step}", "Content-Type": "application/json"}
        url = f"{tool_server.url}/tools/provision-database"
        return httpx.post(url, content=json.dumps(args), headers=headers, trust_env=False)

    with pytest.raises(httpx.TransportError):
        call(1, PROVISION[1])
    call(2, REWORDED)
    assert len(tool_server.effects()) == 2
