"""kill -9 at moments that nobody chose."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from acceptance_kit.agents import Order
from acceptance_kit.looks import effect_id, effect_ids, effects, session_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from acceptance_kit.agents import Calls
    from acceptance_kit.children import Agent

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

KILLS = 8  # for each store and each loop
SEED = 20_26
LATEST_KILL = 1.2  # as a share of the time that an unhurried agent needs: some kills come too late

PLAN: Calls = tuple(
    call
    for number in (1, 2)
    for call in (
        ("provision_database", {"region": f"region-{number}", "storage_gb": 20}),
        ("debit", {"account": "acct-7", "amount": 100 + number}),
        ("send_webhook", {"url": "https://ops.example.com/hooks", "event": f"event-{number}"}),
    )
)
LABELS = [f"step_{number:03d}" for number in range(1, len(PLAN) + 1)]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_killed_at_any_moment_each_step_has_one_effect(
    is_async: bool, start: Callable[[Order], Agent], ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """Whenever a runner dies, the next one ends the plan: six steps, six effects, six results."""
    moments = random.Random(SEED + is_async)

    def order(name: str) -> Order:
        return Order(ledger=ledger, server=tool_server.url, session=name, calls=PLAN, is_async=is_async, on_go=True)

    def started(name: str) -> Agent:
        agent = start(order(name))
        agent.expect("ready")
        agent.go()
        return agent

    begun = time.monotonic()
    started(f"{alias} unhurried").expect("done")
    whole = time.monotonic() - begun

    for number in range(KILLS):
        name = f"{alias} {number}"
        victim = started(name)
        time.sleep(moments.uniform(0, LATEST_KILL) * whole)
        victim.kill_if_running()
        last = started(name)
        last.expect("done")
        assert effects(tool_server, last) == dict.fromkeys(LABELS, 1)
        assert [effect_id(step["value"]) for step in last.steps] == effect_ids(tool_server, last)
        assert session_state(last) == "finished"
