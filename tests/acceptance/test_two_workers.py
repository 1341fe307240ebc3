"""Two processes and one session: one owner at a time, and what an owner that lost it may still do."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from acceptance_kit.agents import DEBIT, PROVISION, WEBHOOK, Halt, Order, tools_at
from acceptance_kit.children import first_to_end
from acceptance_kit.looks import effects, evidence, looking, session_record, session_state, states

from agent_runtime import Runtime
from agent_runtime.errors import SessionBusy

if TYPE_CHECKING:
    from collections.abc import Callable

    from acceptance_kit.agents import Calls
    from acceptance_kit.children import Agent
    from acceptance_kit.gateway import Gateway

    from examples.tool_backend.process import Backend as ToolServer

    Start = Callable[[Order], Agent]

pytestmark = pytest.mark.acceptance

FOUR: Calls = (PROVISION, DEBIT, WEBHOOK, DEBIT)
LEASE = 2.0
PAST_THE_LEASE = 0.5  # seconds for which the other worker still finds the session busy after the lease's first end
RETRY_AFTER = 3  # seconds that a tool asks to wait: longer than the lease
POLLS_EVERY = 0.05
RENEWS_WITHIN = 10.0

both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def started_session(ledger: str, server: str, alias: str) -> str:
    """Make a session that nobody holds, and return its id."""
    with Runtime(ledger, tools=tools_at(server)) as runtime:
        session = runtime.start(alias)
        session.close()
        return session.id


@both_loops
def test_A16_two_resumes_at_once_one_owner_and_the_other_is_told_busy(
    is_async: bool, start: Start, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """Of two processes that resume a session at the same moment one owns it; the other raises and sends nothing."""
    session_id = started_session(ledger, gateway.url, alias)
    hold = gateway.hold("answer", ":step_001:")
    order = Order(
        ledger=ledger,
        server=gateway.url,
        session=session_id,
        calls=FOUR,
        is_async=is_async,
        resumes=True,
        on_go=True,
        wait=0.0,
    )
    agents = [start(order), start(order)]
    for agent in agents:
        agent.expect("ready")
    for agent in agents:
        agent.go()
    loser, word, told = first_to_end(agents)
    assert (word, told["type"]) == ("raised", "SessionBusy")
    hold.wait()
    hold.release()
    (winner,) = (agent for agent in agents if agent is not loser)
    winner.expect("done")
    assert loser.ended() == 0
    assert loser.steps == []
    assert len(gateway.requests()) == len(FOUR)
    assert effects(tool_server, winner) == {f"step_{number:03d}": 1 for number in range(1, 5)}


def test_A16_two_resumes_at_once_the_other_waits_and_replays(
    start: Start, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """A process that waits for a busy session gets it when the owner is done, and delivers what is recorded."""
    session_id = started_session(ledger, gateway.url, alias)
    hold = gateway.hold("answer", ":step_001:")
    order = Order(ledger=ledger, server=gateway.url, session=session_id, calls=FOUR, resumes=True, on_go=True)
    agents = [start(order), start(order)]
    for agent in agents:
        agent.expect("ready")
    for agent in agents:
        agent.go()
    hold.wait()
    hold.release()
    winner, word, _ = first_to_end(agents)
    assert word == "done"
    (loser,) = (agent for agent in agents if agent is not winner)
    loser.expect("done")
    assert {step["source"] for step in winner.steps} == {"sent"}
    assert {step["source"] for step in loser.steps} == {"ledger"}
    assert [step["value"] for step in loser.steps] == [step["value"] for step in winner.steps]
    assert len(gateway.requests()) == len(FOUR)
    assert effects(tool_server, winner) == {f"step_{number:03d}": 1 for number in range(1, 5)}


@pytest.mark.parametrize("at_work", ["in_the_call", "waiting_for_retry_after"])
def test_A17_a_worker_keeps_its_lease_while_it_is_at_work(
    at_work: str, start: Start, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """A call that outlasts the lease is not taken over: another worker that asks all the time finds it busy."""
    hold = None
    if at_work == "in_the_call":
        hold = gateway.hold("answer", ":step_001:")
    else:
        headers = {"Retry-After": str(RETRY_AFTER)}
        tool_server.script("provision-database", "status", status=429, headers=headers)
    agent = start(Order(ledger=ledger, server=gateway.url, session=alias, lease=LEASE))
    agent.expect("opened")
    polls = 0
    with looking(agent) as runtime:
        end = session_record(agent).lease_until or 0.0
        while runtime.ledger.now() < end + PAST_THE_LEASE:
            with pytest.raises(SessionBusy):
                runtime.resume(agent.session_id, wait=0.0)
            polls += 1
            time.sleep(POLLS_EVERY)
    assert polls > 1
    if hold is not None:
        hold.release()
    agent.expect("done")
    sent = 1 if at_work == "in_the_call" else 2
    assert [len(gateway.requests(f":step_{number:03d}:")) for number in (1, 2, 3)] == [sent, 1, 1]
    assert effects(tool_server, agent) == {"step_001": 1, "step_002": 1, "step_003": 1}


def stop_after_a_renewal(agent: Agent) -> None:
    """Stop the process when it has just renewed its lease: its ledger thread is idle then."""
    begun = time.monotonic()
    end = session_record(agent).lease_until
    while session_record(agent).lease_until == end:
        assert time.monotonic() < begun + RENEWS_WITHIN, "the lease is not renewed"
        time.sleep(POLLS_EVERY)
    agent.signal(signal.SIGSTOP)


@both_loops
def test_A18_a_late_answer_of_a_worker_that_lost_its_lease_is_filed_and_changes_nothing(
    is_async: bool, start: Start, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """A worker that stalls past its lease with a request out is told so when it wakes, and takes nothing back."""
    hold = gateway.hold("answer", ":step_002:")
    old = start(Order(ledger=ledger, server=gateway.url, session=alias, is_async=is_async, lease=LEASE))
    old.expect("opened")
    hold.wait()
    stop_after_a_renewal(old)
    halt = Halt(boundary="before_reserve", label="step_003")
    order = Order(ledger=ledger, server=gateway.url, session=old.session_id, is_async=is_async, resumes=True, halt=halt)
    new = start(order)
    new.expect("halted")
    before = session_record(new)

    old.signal(signal.SIGCONT)
    hold.release()
    assert old.expect("raised")["type"] == "LeaseLost"
    assert old.ended() == 0
    after = session_record(new)
    assert (after.fence, after.owner) == (before.fence, before.owner)
    assert after.lease_until is not None
    seen = evidence(new, "step_002")
    assert [one.kind for one in seen if one.status == 200] == ["answer", "late"]
    assert seen[-1].kind == "late"
    assert states(new) == {"step_001": "succeeded", "step_002": "succeeded"}

    new.go()
    new.expect("done")
    assert [len(gateway.requests(f":step_{number:03d}:")) for number in (1, 2, 3)] == [1, 2, 1]
    assert effects(tool_server, new) == {"step_001": 1, "step_002": 1, "step_003": 1}
    assert session_state(new) == "finished"


@both_loops
def test_A18_a_worker_that_lost_its_lease_begins_no_attempt(
    is_async: bool, start: Start, gateway: Gateway, ledger: str, alias: str, tool_server: ToolServer
) -> None:
    """A worker that stalls past its lease before it sends has its write refused when it wakes, and sends nothing."""
    halt = Halt(boundary="ready", label="step_002")
    old = start(Order(ledger=ledger, server=gateway.url, session=alias, is_async=is_async, lease=LEASE, halt=halt))
    old.expect("halted")
    stop_after_a_renewal(old)
    new = start(Order(ledger=ledger, server=gateway.url, session=old.session_id, is_async=is_async, resumes=True))
    new.expect("done")

    old.signal(signal.SIGCONT)
    old.go()
    assert old.expect("raised")["type"] == "LeaseLost"
    assert [len(gateway.requests(f":step_{number:03d}:")) for number in (1, 2, 3)] == [1, 1, 1]
    assert effects(tool_server, new) == {"step_001": 1, "step_002": 1, "step_003": 1}
    assert session_state(new) == "finished"
