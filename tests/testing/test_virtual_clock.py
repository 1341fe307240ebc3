"""The clock that tests move by hand, alone and under sessions."""

from __future__ import annotations

import asyncio
import math
import threading

import httpx
import pytest
import respx

from agent_runtime import AsyncRuntime, Runtime
from agent_runtime._drive import Clock
from agent_runtime.errors import LeaseLost, SessionBusy
from agent_runtime.ledger import LedgerClock, open_ledger
from agent_runtime.testing import VirtualClock
from tests.testing.conftest import DEBIT

LONG = "50"
"""Seconds of a wait that is longer than a lease (30 s), and short enough not to be parked (60 s)."""


def test_clock_serves_as_both_kinds():
    """One object is the driver's clock and the ledger's."""

    def takes(clock: Clock, ledger_clock: LedgerClock) -> float:
        return clock.wall() + ledger_clock.boottime()

    clock = VirtualClock(start=5)
    assert takes(clock, clock) == 1005


def test_sleep_moves_both_times_and_is_noted():
    """A wait returns at once, moves wall and boot-time clock alike, and stands in ``slept``."""
    clock = VirtualClock(start=100)
    booted = clock.boottime()
    clock.sleep(2.5)
    clock.sleep(0)
    assert (clock.wall(), clock.boottime() - booted, clock.slept) == (102.5, 2.5, [2.5, 0])


def test_advance_is_no_sleep():
    """Time that a test moves itself is not noted as a wait."""
    clock = VirtualClock(start=0)
    clock.advance(24 * 3600)
    assert (clock.wall(), clock.slept) == (86400, [])


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_time_goes_forward_by_finite_steps(seconds: float):
    """Time that went back or on for ever would be a test's mistake."""
    with pytest.raises(ValueError, match="0 seconds or more"):
        VirtualClock().advance(seconds)


@pytest.mark.parametrize("wait", [0.1, 1 / 3, 1e-9, 59.999999999])
def test_sleeper_never_wakes_early(wait: float):
    """Who sleeps until a moment finds that moment reached, whatever floats make of the difference."""
    clock = VirtualClock()
    moment = clock.wall() + wait
    clock.sleep(moment - clock.wall())
    assert clock.wall() >= moment


def test_moves_from_many_threads_add_up():
    """No move of one thread is lost under another's."""
    clock = VirtualClock(start=0)

    def work() -> None:
        for _ in range(200):
            clock.sleep(0.5)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (clock.wall(), len(clock.slept)) == (800, 1600)


async def test_async_sleep_lets_others_run_once():
    """An async wait gives the loop one turn, so that tasks beside it get on."""
    clock = VirtualClock(start=0)
    ran = []

    async def other() -> None:
        ran.append(clock.wall())

    task = asyncio.create_task(other())
    await clock.sleep_async(10)
    await task
    assert (ran, clock.wall()) == ([0], 10)


async def test_tasks_sleep_beside_each_other():
    """Two tasks that sleep 10 s and 4 s from one moment on end 10 s later, not 14."""
    clock = VirtualClock(start=0)
    await asyncio.gather(clock.sleep_async(10), clock.sleep_async(4))
    assert clock.wall() == 10


@respx.mock
def test_wait_longer_than_a_lease_keeps_it(backend):
    """A session that waits 50 s as its tool asked is not taken over, on a lease of 30 s, and goes on."""
    clock = VirtualClock()
    seen_busy = []

    def answer(request: httpx.Request) -> httpx.Response:
        if not clock.slept:
            return httpx.Response(429, headers={"Retry-After": LONG})
        with pytest.raises(SessionBusy):
            rival.resume("orders", wait=0)
        seen_busy.append(True)
        return httpx.Response(200, json={"balance": 5})

    respx.post(DEBIT.url).mock(side_effect=answer)
    with (
        Runtime(backend.url, tools=[DEBIT], clock=clock) as runtime,
        Runtime(backend.url, tools=[DEBIT], clock=clock) as rival,
        runtime.open("orders") as session,
    ):
        assert session.call(DEBIT, {"amount": 1}).value == {"balance": 5}
    assert seen_busy == [True]
    assert clock.slept[0] >= 50


@respx.mock
async def test_async_wait_longer_than_a_lease_keeps_it(backend):
    """The same under asyncio."""
    clock = VirtualClock()
    seen_busy = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if not clock.slept:
            return httpx.Response(429, headers={"Retry-After": LONG})
        with pytest.raises(SessionBusy):
            await rival.resume("orders", wait=0)
        seen_busy.append(True)
        return httpx.Response(200, json={"balance": 5})

    respx.post(DEBIT.url).mock(side_effect=answer)
    async with (
        AsyncRuntime(backend.url, tools=[DEBIT], clock=clock) as runtime,
        AsyncRuntime(backend.url, tools=[DEBIT], clock=clock) as rival,
        runtime.open("orders") as session,
    ):
        assert (await session.call(DEBIT, {"amount": 1})).value == {"balance": 5}
    assert seen_busy == [True]


def test_a_day_passes_over_a_living_session(backend, elsewhere):
    """Time that a test moves by a day leaves the leases of living sessions as real time would."""
    clock = VirtualClock()
    with Runtime(backend.url, tools=[DEBIT], clock=clock) as runtime, runtime.open("orders"):
        clock.advance(24 * 3600)
        assert elsewhere("orders", clock) == "busy"


def test_stalled_process_loses_its_lease(backend, elsewhere):
    """Time in which the process stood still ends its lease: another worker takes over, and the first sends nothing."""
    clock = VirtualClock()
    with Runtime(backend.url, tools=[DEBIT], clock=clock) as runtime, respx.mock(assert_all_called=False) as router:
        route = router.post(DEBIT.url).respond(200, json={})
        session = runtime.open("orders")
        clock.advance(31, stalled=True)
        assert elsewhere("orders", clock) == "taken"
        with pytest.raises(LeaseLost):
            session.call(DEBIT, {"amount": 1})
        assert not route.called


def test_clock_moves_on_the_ledgers_own_thread(tmp_path):
    """A hook of the ledger that moves the clock does not wait for the thread it runs on."""
    clock = VirtualClock(start=0)
    ledger = open_ledger(f"sqlite:///{tmp_path}/agent.db", clock=clock, after_commit=lambda: clock.advance(40))
    with Runtime(ledger, tools=[DEBIT], clock=clock) as runtime, runtime.open("orders"):
        pass
    ledger.close()
    assert clock.wall() >= 80


def test_closed_ledgers_are_forgotten(tmp_path):
    """A clock outlives the ledgers that it was given to."""
    clock = VirtualClock(start=0)
    for name in "ab":
        with Runtime(f"sqlite:///{tmp_path}/{name}.db", clock=clock) as runtime:
            runtime.start().close()
    clock.advance(60)
    assert clock.wall() == 60
