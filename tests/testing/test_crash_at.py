"""Crashes without a kill, at every point of a step, in both sessions, on both stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import respx

from agent_runtime import AsyncRuntime, AsyncSession, Key, Runtime, Session, StepUnknown, tool
from agent_runtime.config import Idempotency, ToolContract
from agent_runtime.errors import ConfigError
from agent_runtime.ledger import open_ledger
from agent_runtime.testing import CRASH_POINTS, Crash, SimulatedCrash, ToolMock, VirtualClock, crash_at
from tests.testing.conftest import DEBIT, KEYLESS, URL

LEFT = {
    "before_reserve": (None, 0),
    "ready": ("ready", 0),
    "in_flight": ("in_flight", 0),
    "sent": ("in_flight", 1),
    "answered": ("in_flight", 1),
    "recorded": ("succeeded", 1),
}
"""What a crash at each point leaves of a step: its state, and how many requests the tool got."""


def plan(url: str, probe: Crash | None = None, tools=(DEBIT,), **settings: Any) -> list[Any]:
    """Run a plan of two calls, as a program does from its top."""
    with Runtime(url, tools=tools, probe=probe, **settings) as runtime, runtime.open("orders") as session:
        return [session.call(tools[0], {"amount": amount}).value for amount in (1, 2)]


def plan_async(url: str, probe: Crash | None = None, tools=(DEBIT,), **settings: Any) -> list[Any]:
    """Run the same plan under asyncio, in a loop of its own."""

    async def run() -> list[Any]:
        async with (
            AsyncRuntime(url, tools=tools, probe=probe, **settings) as runtime,
            runtime.open("orders") as session,
        ):
            return [(await session.call(tools[0], {"amount": amount})).value for amount in (1, 2)]

    return asyncio.run(run())


both = pytest.mark.parametrize("plan", [plan, plan_async], ids=["sync", "async"])


@both
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_crash_leaves_what_stood_and_is_resumed(backend, plan, point):
    """A crash at a point of the second step leaves that step as it then stood; run again, each step has one effect."""
    crash = crash_at(point, n=2)
    with respx.mock(assert_all_called=False) as router:
        api = ToolMock(URL, reply=lambda request: request.json).mount(router)
        with pytest.raises(SimulatedCrash):
            plan(backend.url, crash)
        with Runtime(backend.url, tools=[DEBIT]) as runtime:
            steps = {view.step: view.state for view in runtime.explain("orders")}
        state, requests = LEFT[point]
        assert (crash.crashed, steps["step_001"], steps.get("step_002")) == (True, "succeeded", state)
        assert api.requests == requests + 1
        assert plan(backend.url) == [{"amount": 1}, {"amount": 2}]
    assert sorted(api.effects_by_key.values()) == [1, 1]


@both
@pytest.mark.parametrize("point", ["in_flight", "sent", "answered"])
def test_crash_on_a_tool_without_keys_ends_unknown(backend, plan, point):
    """Where no key is honoured, what a crash left in flight is not sent again: it is unknown."""
    with respx.mock(assert_all_called=False) as router:
        api = ToolMock(URL, honours_keys=False).mount(router)
        with pytest.raises(SimulatedCrash):
            plan(backend.url, crash_at(point), tools=(KEYLESS,))
        with pytest.raises(StepUnknown):
            plan(backend.url, tools=(KEYLESS,))
    assert api.requests == LEFT[point][1]


@both
@respx.mock
def test_crash_releases_no_lease(backend, plan, elsewhere):
    """The ends of with blocks give nothing back after a crash: for another machine the session stays busy."""
    ToolMock(URL).mount()
    with pytest.raises(SimulatedCrash):
        plan(backend.url, crash_at("sent"))
    assert elsewhere("orders") == "busy"


@both
@respx.mock
def test_lease_of_a_crash_runs_out(backend, plan, elsewhere):
    """Nobody renews the lease of a dead runtime: another machine takes over when it ends."""
    clock = VirtualClock()
    ToolMock(URL).mount()
    with pytest.raises(SimulatedCrash):
        plan(backend.url, crash_at("sent"), clock=clock)
    clock.advance(29)
    assert elsewhere("orders", clock) == "busy"
    clock.advance(2)
    assert elsewhere("orders", clock) == "taken"


@respx.mock
def test_dead_runtime_does_nothing_more(backend):
    """After a crash every call, read and close of that runtime raises, on its other sessions too; nothing is sent."""
    api = ToolMock(URL).mount()
    crash = crash_at("recorded")
    runtime = Runtime(backend.url, tools=[DEBIT], probe=crash)
    session, other = runtime.open("orders"), runtime.open("others")
    with pytest.raises(SimulatedCrash):
        session.call(DEBIT, {"amount": 1})
    for again in (
        lambda: session.call(DEBIT, {"amount": 2}),
        lambda: other.call(DEBIT, {"amount": 3}),
        other.close,
        runtime.sessions,
        lambda: runtime.open("third"),
    ):
        with pytest.raises(SimulatedCrash, match="died at 'recorded'"):
            again()
    runtime.close()
    assert api.requests == 1
    with Runtime(backend.url, tools=[DEBIT]) as survivor:
        assert sorted(record.alias for record in survivor.sessions()) == ["orders", "others"]
        assert [view.attempts for view in survivor.explain("orders")] == [1]
        assert not survivor.explain("others")


@respx.mock
def test_all_sessions_of_a_dead_runtime_can_be_taken_over(backend):
    """A process dies with all its sessions: another runtime gets each of them at once."""
    ToolMock(URL).mount()
    runtime = Runtime(backend.url, tools=[DEBIT], probe=crash_at("sent"))
    session, other = runtime.open("orders"), runtime.open("others")
    with pytest.raises(SimulatedCrash):
        session.call(DEBIT, {"amount": 1})
    with Runtime(backend.url, tools=[DEBIT]) as survivor:
        for name in ("orders", "others"):
            survivor.resume(name, wait=0).close()
    assert other.id
    runtime.close()


@respx.mock
async def test_tasks_beside_a_crash_die_too(backend):
    """One of two gathered calls crashes: the other records nothing more, and a resume gives each one effect."""
    api = ToolMock(URL, reply=lambda request: request.json).mount()

    async def run(probe: Crash | None) -> list[Any]:
        async with AsyncRuntime(backend.url, tools=[DEBIT], probe=probe) as runtime, runtime.open("orders") as session:
            calls = [session.call(DEBIT, {"amount": amount}) for amount in (1, 2)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with pytest.raises(SimulatedCrash):
        await run(crash_at("answered"))
    async with AsyncRuntime(backend.url, tools=[DEBIT]) as runtime:
        assert {view.state for view in await runtime.explain("orders")} <= {"ready", "in_flight"}
    assert [result.value for result in await run(None)] == [{"amount": 1}, {"amount": 2}]
    assert sorted(api.effects_by_key.values()) == [1, 1]


@respx.mock
def test_crash_on_a_ledger_in_memory():
    """Two runtimes on one open ledger in memory are enough to crash and resume."""
    api = ToolMock(URL).mount()
    ledger = open_ledger("sqlite:///:memory:")
    with pytest.raises(SimulatedCrash):
        plan(ledger, crash_at("sent"))
    assert plan(ledger) == [{}, {}]
    ledger.close()
    assert sorted(api.effects_by_key.values()) == [1, 1]


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_function_tools_crash_at_the_same_points(backend, point):
    """A function tool reaches the same points; called again under its key, it has one effect by that key."""
    done: set[str] = set()

    @tool(contract=ToolContract(idempotency=Idempotency()))
    def debit(amount: int, key: Key) -> int:
        done.add(key)
        return amount

    with pytest.raises(SimulatedCrash):
        plan(backend.url, crash_at(point), tools=(debit,))
    assert len(done) == (point in {"sent", "answered", "recorded"})
    assert plan(backend.url, tools=(debit,)) == [1, 2]
    assert len(done) == 2


@respx.mock
def test_lost_answer_is_a_point_too(backend):
    """A crash between a timeout and its record leaves the step in flight, and the resume settles it."""
    api = ToolMock(URL).lose_answer().mount()
    with pytest.raises(SimulatedCrash):
        plan(backend.url, crash_at("answered"))
    plan(backend.url)
    assert sorted(api.effects_by_key.values()) == [1, 1]


@respx.mock
def test_refused_connection_is_not_sent(backend):
    """An attempt whose connection was refused does not count as sent; the next one does."""
    api = ToolMock(URL).refuse_connection().mount()
    with pytest.raises(SimulatedCrash):
        plan(backend.url, crash_at("sent"), clock=VirtualClock())
    assert (api.requests, api.effects) == (2, 1)


@respx.mock
def test_point_that_is_never_reached(backend):
    """A crash that was not reached has not happened, and says so."""
    ToolMock(URL).mount()
    crash = crash_at("sent", 3)
    plan(backend.url, crash)
    assert not crash.crashed


@pytest.mark.parametrize(("point", "n"), [("nowhere", 1), ("sent", 0)])
def test_crash_is_checked_when_it_is_made(point, n):
    """A point that does not exist, or a count that is never reached, is a mistake of the test."""
    with pytest.raises(ConfigError):
        crash_at(point, n)


@respx.mock
def test_no_code_under_test_takes_a_crash_for_a_failure(tmp_path):
    """An agent that catches every `Exception` dies all the same."""
    ToolMock(URL).mount()

    def agent(session: Session) -> str:
        try:
            session.call(DEBIT, {"amount": 1})
        except Exception:
            return "the agent goes on"
        return "the agent goes on"

    with Runtime(f"sqlite:///{tmp_path}/agent.db", tools=[DEBIT], probe=crash_at("recorded")) as runtime:
        session = runtime.open("orders")
        with pytest.raises(SimulatedCrash):
            agent(session)


def test_sessions_of_both_kinds_take_a_probe(tmp_path):
    """`Session.open` and `AsyncSession.open` on a runtime with a probe are watched like the runtime's own."""
    url = f"sqlite:///{tmp_path}/agent.db"
    with (
        respx.mock(assert_all_called=False) as router,
        Runtime(url, tools=[DEBIT], probe=crash_at("before_reserve")) as runtime,
    ):
        api = ToolMock(URL).mount(router)
        session = Session.open("orders", runtime=runtime)
        with pytest.raises(SimulatedCrash):
            session.call(DEBIT, {"amount": 1})

    async def run() -> None:
        async with AsyncRuntime(url, tools=[DEBIT], probe=crash_at("before_reserve")) as runtime:
            session = await AsyncSession.open("orders", runtime=runtime)
            await session.call(DEBIT, {"amount": 1})

    with pytest.raises(SimulatedCrash):
        asyncio.run(run())
    assert api.requests == 0


@pytest.mark.parametrize("probe", [None, crash_at("sent", 9)], ids=["without", "with"])
@respx.mock
def test_interruptions_pass_through_a_probe(tmp_path, probe):
    """Ctrl-C in a wait comes out of the call and leaves the step ready, with a probe as without one."""

    class Interrupting(VirtualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    ToolMock(URL).rate_limit(retry_after=20).mount()
    with Runtime(f"sqlite:///{tmp_path}/agent.db", tools=[DEBIT], clock=Interrupting(), probe=probe) as runtime:
        with pytest.raises(KeyboardInterrupt), runtime.open("orders") as session:
            session.call(DEBIT, {"amount": 1})
        assert [(view.state, view.reason) for view in runtime.explain("orders")] == [("ready", "retry_after")]
