"""kill -9 at each boundary of a step, and the way on in a new process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from acceptance_kit.agents import DEBIT, LEGACY_DEBIT, PROVISION, WEBHOOK, Halt, Order
from acceptance_kit.looks import effect_id, effect_ids, effects, looking, session_state, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from acceptance_kit.agents import Calls
    from acceptance_kit.children import Agent
    from acceptance_kit.gateway import Gateway

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

# Boundary: state of the step in the ledger when the process is gone, and the requests that were sent for it till then.
BOUNDARIES = {
    "before_reserve": (None, 0),
    "ready": ("ready", 0),
    "in_flight": ("in_flight", 0),
    "sent_not_arrived": ("in_flight", 1),
    "sent_not_answered": ("in_flight", 1),
    "answered": ("in_flight", 1),
    "recorded": ("succeeded", 1),
}
HELD = {"sent_not_arrived": "request", "sent_not_answered": "answer"}
KILLED = "step_002"

boundaries = pytest.mark.parametrize("boundary", BOUNDARIES)
both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def kill_at(
    start: Callable[[Order], Agent], gateway: Gateway, ledger: str, alias: str
) -> Callable[[str, Calls, bool], Agent]:
    """A function that kills an agent at a boundary of its second step, and returns the dead agent."""

    def killer(boundary: str, calls: Calls, is_async: bool) -> Agent:
        hold = gateway.hold(HELD[boundary], f":{KILLED}:") if boundary in HELD else None
        halt = None if hold else Halt(boundary=boundary, label=KILLED)
        order = Order(ledger=ledger, server=gateway.url, session=alias, calls=calls, is_async=is_async, halt=halt)
        agent = start(order)
        agent.expect("opened")
        if hold is not None:
            hold.wait()
        else:
            agent.expect("halted")
        agent.kill()
        if hold is not None:
            hold.release_and_wait()
        state, sent = BOUNDARIES[boundary]
        assert states(agent).get(KILLED) == state
        assert len(gateway.requests(f":{KILLED}:")) == sent
        return agent

    return killer


@boundaries
@both_loops
def test_killed_at_a_boundary_each_step_has_one_effect(
    boundary: str, is_async: bool, kill_at: Callable, start: Callable, gateway: Gateway, tool_server: ToolServer
) -> None:
    """On a tool that honours keys a new process ends the plan: one effect for each step, each result that effect's."""
    dead = kill_at(boundary, (PROVISION, DEBIT, WEBHOOK), is_async)
    again = start(
        Order(ledger=dead.order.ledger, server=gateway.url, session=dead.session_id, is_async=is_async, resumes=True)
    )
    report = again.expect("done")
    assert again.pid != dead.pid
    assert effects(tool_server, dead) == {"step_001": 1, "step_002": 1, "step_003": 1}
    assert [effect_id(step["value"]) for step in again.steps] == effect_ids(tool_server, dead)
    assert states(dead) == dict.fromkeys(("step_001", "step_002", "step_003"), "succeeded")
    assert session_state(dead) == "finished"
    assert (report["resent"] == [KILLED]) is (BOUNDARIES[boundary][0] == "in_flight")
    assert len(gateway.requests(":step_001:")) == 1


@both_loops
def test_a_request_that_arrives_after_the_resume_has_no_second_effect(
    is_async: bool, start: Callable, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """What a dead process sent may reach the tool when its successor is long done: it is the same request."""
    hold = gateway.hold("request", f":{KILLED}:")
    dead = start(Order(ledger=ledger, server=gateway.url, session=alias, is_async=is_async))
    dead.expect("opened")
    hold.wait()
    dead.kill()
    again = start(Order(ledger=ledger, server=gateway.url, session=dead.session_id, is_async=is_async, resumes=True))
    again.expect("done")
    before = tool_server.effects()
    hold.release_and_wait()
    assert tool_server.effects() == before
    assert effects(tool_server, dead) == {"step_001": 1, "step_002": 1, "step_003": 1}
    assert len(gateway.requests(f":{KILLED}:")) == 2


@boundaries
@both_loops
def test_killed_at_a_boundary_a_tool_without_keys_is_unknown_until_a_person_decides(
    boundary: str, is_async: bool, kill_at: Callable, start: Callable, gateway: Gateway, tool_server: ToolServer
) -> None:
    """On a tool that honours no key a request that may be out makes the step unknown, and `decide` is the way on."""
    calls = (PROVISION, LEGACY_DEBIT, WEBHOOK)
    dead = kill_at(boundary, calls, is_async)
    order = Order(
        ledger=dead.order.ledger,
        server=gateway.url,
        session=dead.session_id,
        calls=calls,
        is_async=is_async,
        resumes=True,
    )
    again = start(order)
    state, sent = BOUNDARIES[boundary]
    if state != "in_flight":
        again.expect("done")
        assert effects(tool_server, dead) == {"step_001": 1, "step_002": 1, "step_003": 1}
        assert len(gateway.requests(f":{KILLED}:")) == 1
        return

    told = again.expect("raised")
    assert (told["type"], told["step"], told["status"]) == ("StepUnknown", KILLED, "unknown")
    assert "decide(" in told["message"]
    assert len(gateway.requests(f":{KILLED}:")) == sent
    assert not gateway.requests(":step_003:")

    happened = bool(effects(tool_server, dead).get(KILLED))
    assert happened is (sent == 1)
    with looking(dead) as runtime:
        (operation,) = runtime.attention()
        result = {"seen": True} if happened else None
        runtime.decide(operation.id, succeeded=happened, by="ops", evidence="the list of effects", result=result)
        if not happened:
            with runtime.resume(dead.session_id) as session:
                session.call("provision_database", PROVISION[1])
                session.reissue(KILLED)
                session.close()
    last = start(order)
    last.expect("done")
    assert effects(tool_server, dead) == {"step_001": 1, "step_002" if happened else "step_002.r1": 1, "step_003": 1}
    assert session_state(dead) == "finished"
