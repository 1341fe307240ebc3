"""Ctrl-C in a real process while a request is out."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from acceptance_kit.agents import Halt, Order
from acceptance_kit.looks import effects, session_state, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from acceptance_kit.children import Agent
    from acceptance_kit.gateway import Gateway

    from examples.tool_backend.process import Backend as ToolServer

pytestmark = pytest.mark.acceptance

ALL = {"step_001": 1, "step_002": 1, "step_003": 1}
QUICKLY = 4.0  # seconds: less than an interrupted caller would wait for the ledger, far less than for the answer

both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both_loops
def test_an_interrupt_while_a_request_is_out_is_recorded_and_ends_the_process(
    is_async: bool,
    start: Callable[[Order], Agent],
    gateway: Gateway,
    ledger: str,
    alias: str,
    tool_server: ToolServer,
) -> None:
    """Ctrl-C leaves the step unknown in the ledger and goes on at once; a resume settles it with one effect."""
    hold = gateway.hold("answer", ":step_002:")
    agent = start(Order(ledger=ledger, server=gateway.url, session=alias, is_async=is_async))
    agent.expect("opened")
    hold.wait()
    pressed = time.monotonic()
    agent.signal(signal.SIGINT)
    assert agent.expect("raised")["type"] == "KeyboardInterrupt"
    agent.ended()
    assert time.monotonic() - pressed < QUICKLY
    assert states(agent)["step_002"] == "unknown"
    hold.release()
    again = start(Order(ledger=ledger, server=gateway.url, session=agent.session_id, is_async=is_async, resumes=True))
    again.expect("done")
    assert effects(tool_server, agent) == ALL
    assert session_state(agent) == "finished"


@both_loops
def test_a_second_interrupt_leaves_at_once(
    is_async: bool,
    start: Callable[[Order], Agent],
    gateway: Gateway,
    ledger: str,
    alias: str,
    tool_server: ToolServer,
) -> None:
    """Ctrl-C again, while the ledger does not answer, waits for nothing: the row stays in flight until a resume."""
    hold = gateway.hold("answer", ":step_002:")
    halt = Halt(boundary="answered", label="step_002", is_stuck=True)
    agent = start(Order(ledger=ledger, server=gateway.url, session=alias, is_async=is_async, halt=halt))
    agent.expect("opened")
    hold.wait()
    agent.signal(signal.SIGINT)
    agent.expect("halted")
    pressed = time.monotonic()
    agent.signal(signal.SIGINT)
    assert agent.expect("raised")["type"] == "KeyboardInterrupt"
    agent.ended()
    assert time.monotonic() - pressed < QUICKLY
    assert states(agent)["step_002"] == "in_flight"
    hold.release()
    again = start(Order(ledger=ledger, server=gateway.url, session=agent.session_id, is_async=is_async, resumes=True))
    again.expect("done")
    assert effects(tool_server, agent) == ALL
    assert session_state(agent) == "finished"
