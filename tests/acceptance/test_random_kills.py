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
    from tests.conftest import Backend as Database

pytestmark = pytest.mark.acceptance

KILLS = 8  # for each store and each loop
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


@pytest.fixture(scope="module")
def whole_runs() -> dict[tuple[str, bool], float]:
    """Seconds that an agent needs for the plan if nobody kills it, by store and loop; measured once for each."""
    return {}


@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_killed_at_any_moment_each_step_has_one_effect(
    is_async: bool,
    seed: int,
    whole_runs: dict[tuple[str, bool], float],
    start: Callable[[Order], Agent],
    backend: Database,
    alias: str,
    tool_server: ToolServer,
) -> None:
    """Whenever a runner dies, the next one ends the plan: six steps, six effects, six results."""

    def started(name: str) -> Agent:
        order = Order(
            ledger=backend.url, server=tool_server.url, session=name, calls=PLAN, is_async=is_async, on_go=True
        )
        agent = start(order)
        agent.expect("ready")
        agent.go()
        return agent

    if (backend.name, is_async) not in whole_runs:
        begun = time.monotonic()
        started(f"{alias}, unhurried").expect("done")
        whole_runs[backend.name, is_async] = time.monotonic() - begun

    victim = started(alias)
    time.sleep(random.Random(seed).uniform(0, LATEST_KILL) * whole_runs[backend.name, is_async])
    victim.kill_if_running()
    last = started(alias)
    last.expect("done")
    assert effects(tool_server, last) == dict.fromkeys(LABELS, 1)
    assert [effect_id(step["value"]) for step in last.steps] == effect_ids(tool_server, last)
    assert session_state(last) == "finished"
