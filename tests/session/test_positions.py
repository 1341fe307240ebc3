"""Where a call stands: counters, branches, addresses, and who may call at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic import BaseModel

from agent_runtime import ConfigError, PlanDiverged
from agent_runtime._model import Advance
from agent_runtime.errors import ArgumentsRefused, ConcurrentCall
from tests.session.stage import BrokenLedger, Killed, KillSwitch, http_tool, notify, provision

if TYPE_CHECKING:
    from tests.session.stage import Stage


class Size(BaseModel):
    gb: int


sized = http_tool("sized", args=Size)


def test_calls_are_numbered_in_their_order(stage: Stage) -> None:
    """Calls by counter get the labels step_001, step_002 and so on, and the label stands in the key."""
    with stage.open() as session:
        first = session.call(provision, {"gb": 1})
        second = session.call(provision, {"gb": 1})
    assert (first.step, second.step) == ("step_001", "step_002")
    assert first.key.startswith(f"{session.id}:step_001:")
    assert first.key != second.key
    assert stage.tools.effects["provision"] == 2


def test_a_branch_has_a_counter_of_its_own(stage: Stage) -> None:
    """Labels of a branch begin with its name, those of a branch in it with both; the main counter is not moved."""
    with stage.open() as session:
        flights = session.branch("flights")
        labels = [
            flights.call(provision, {"gb": 1}).step,
            flights.branch("seats").call(provision, {"gb": 1}).step,
            session.call(provision, {"gb": 1}).step,
            flights.call(provision, {"gb": 1}).step,
            session.branch("flights").branch("seats").call(provision, {"gb": 1}).step,
        ]
    assert labels == [
        "flights.step_001",
        "flights.seats.step_001",
        "step_001",
        "flights.step_002",
        "flights.seats.step_002",
    ]


def test_the_end_of_a_branchs_block_ends_nothing(stage: Stage) -> None:
    """A branch is no session: leaving a ``with`` block of it leaves the session open and the lease held."""
    with stage.open() as session:
        with session.branch("flights") as flights:
            flights.call(provision, {"gb": 1})
        assert session.call(provision, {"gb": 2}).step == "step_001"
    assert stage.loaded().session.state == "finished"


def test_a_call_with_bad_args_uses_no_index(stage: Stage) -> None:
    """Args are checked before the position is taken, so the next call gets the index that the refused one had."""
    runtime = stage.runtime(sized)
    with runtime.open("orders") as session:
        with pytest.raises(ArgumentsRefused):
            session.call(sized, {"gb": "many"})
        assert session.call(sized, {"gb": 1}).step == "step_001"
    assert len(stage.tools.requests) == 1


def test_many_calls_are_recorded_in_one_transaction(stage: Stage) -> None:
    """A worker that dies between the record of many calls and the first request leaves them all ready, none sent."""
    switch = KillSwitch(before=lambda entry: isinstance(entry, Advance))
    runtime = stage.runtime(ledger=BrokenLedger(stage.ledger, switch))
    session = runtime.open("orders")
    with pytest.raises(Killed):
        session.call_many([(provision, {"gb": 1}), (notify, {"to": "ana"}), (provision, {"gb": 1})])
    assert stage.states() == ["ready", "ready", "ready"]
    assert stage.tools.requests == []
    with stage.open() as again:
        outcomes = again.call_many([(provision, {"gb": 1}), (notify, {"to": "ana"}), (provision, {"gb": 1})])
    assert [outcome.status for outcome in outcomes] == ["succeeded"] * 3
    assert [outcome.step for outcome in outcomes] == ["step_001", "step_002", "step_003"]
    assert stage.tools.effects == {"provision": 2, "notify": 1}


def test_many_calls_return_their_outcomes_in_order_and_raise_for_none(stage: Stage) -> None:
    """One call of many that fails and one that stays unknown do not hide what became of the others."""
    stage.tools.script("notify", "lost")
    stage.tools.script("ship", 422)
    with stage.open() as session:
        outcomes = session.call_many([("ship", {"n": 1}), (notify, {"to": "ana"}), (provision, {"gb": 1})])
    assert [outcome.status for outcome in outcomes] == ["failed", "unknown", "succeeded"]


def test_an_address_stands_for_one_step(stage: Stage) -> None:
    """Equal address and args give the recorded step, whatever the order; its label comes from the counter."""
    with stage.open() as session:
        second = session.call(provision, {"gb": 2}, at="msg7.1")
        first = session.call(provision, {"gb": 1}, at="msg7.0")
        again = session.call(provision, {"gb": 2}, at="msg7.1")
    assert (second.step, first.step) == ("step_001", "step_002")
    assert (again.step, again.key, again.source) == (second.step, second.key, "ledger")
    assert stage.tools.effects["provision"] == 2


def test_an_address_with_other_args_diverges(stage: Stage) -> None:
    """An address that stands for another call raises `PlanDiverged`; nothing is sent, nothing recorded."""
    with stage.open() as session:
        session.call(provision, {"gb": 2}, at="msg7.0")
        with pytest.raises(PlanDiverged) as caught:
            session.call(provision, {"gb": 3}, at="msg7.0")
    assert caught.value.step == "step_001"
    assert len(stage.tools.requests) == 1
    assert len(stage.loaded().steps) == 1


def test_addresses_and_counter_mix_on_replay(stage: Stage) -> None:
    """A replay that asks for addresses in another order gives each call its own step; the counter passes them over."""
    with stage.open() as session:
        made = [
            session.call(provision, {"n": 1}),
            session.call(provision, {"n": 2}, at="b"),
            session.call(provision, {"n": 3}),
            session.call(provision, {"n": 4}, at="a"),
        ]
        session.close()
    with stage.open() as session:
        again = [
            session.call(provision, {"n": 4}, at="a"),
            session.call(provision, {"n": 1}),
            session.call(provision, {"n": 3}),
            session.call(provision, {"n": 2}, at="b"),
        ]
        fresh = session.call(provision, {"n": 5})
    assert {result.step: result.value["n"] for result in made} == {result.step: result.value["n"] for result in again}
    assert all(result.source == "ledger" for result in again)
    assert fresh.step == "step_005"


def test_equal_positions_of_two_sessions_have_keys_of_their_own(stage: Stage) -> None:
    """The session's random id stands in the key, so the same plan in two sessions has two effects."""
    for alias in ("monday", "tuesday"):
        with stage.open(alias) as session:
            session.call(provision, {"gb": 1})
    assert len({seen.key for seen in stage.tools.requests}) == 2
    assert stage.tools.effects["provision"] == 2


# -- at once --------------------------------------------------------------------------------------------------------


async def _latencies(stage: Stage, delays: dict[str, int]) -> list[Any]:
    """Call three tools together; each answers after so many turns of the loop."""

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            for _ in range(delays[request.url.path.rpartition("/")[2]]):
                await asyncio.sleep(0)
            return stage.tools(request)

    runtime = stage.runtime(client=httpx.AsyncClient(transport=Slow())).target
    session = await runtime.open("orders")
    names = ["provision", "debit", "notify"]
    results = await asyncio.gather(*(session.call(name, {"for": name}) for name in names))
    await session.close()
    return [(result.step, result.value["tool"], result.key) for result in results]


def test_A09_calls_together_are_numbered_by_their_order_in_the_code(async_stage: Stage) -> None:
    """Latencies in reverse change no position: each tool gets its own recorded result, and nothing is sent again."""
    first = async_stage.run(_latencies(async_stage, {"provision": 300, "debit": 200, "notify": 100}))
    again = async_stage.run(_latencies(async_stage, {"provision": 100, "debit": 200, "notify": 300}))
    assert [step for step, _, _ in first] == ["step_001", "step_002", "step_003"]
    assert [tool for _, tool, _ in first] == ["provision", "debit", "notify"]
    assert again == first
    assert len(async_stage.tools.requests) == 3


def test_a_position_is_taken_at_the_moment_of_the_call(async_stage: Stage) -> None:
    """Calls made in one order and awaited in another are numbered by the first."""

    async def work() -> list[str]:
        async with async_stage.own.target.open("orders") as session:
            first = session.call(provision, {"n": 1})
            second = session.call(provision, {"n": 2})
            later = (await second).step
            return [(await first).step, later]

    assert async_stage.run(work()) == ["step_001", "step_002"]


def _drop_a_call(session: Any) -> None:
    session.call(provision, {"n": 1})
    gc.collect()


def test_a_call_never_awaited_warns_and_is_recorded_as_not_started(async_stage: Stage) -> None:
    """Python warns of it; the session records its position as refused, and the next call has an index of its own."""

    async def work() -> str:
        async with async_stage.own.target.open("orders") as session:
            with pytest.warns(RuntimeWarning, match="never awaited"):
                _drop_a_call(session)
            return (await session.call(provision, {"n": 2})).step

    assert async_stage.run(work()) == "step_002"
    assert sorted(async_stage.step_kinds()) == [("step_001", "refused"), ("step_002", "call")]
    assert len(async_stage.tools.requests) == 1


def test_a_call_never_awaited_stands_in_nobodys_way(async_stage: Stage) -> None:
    """Another task may call after one that was dropped or cancelled before it began; the object counts as idle."""

    async def work() -> list[str]:
        session = await async_stage.own.target.open("orders")
        with pytest.warns(RuntimeWarning, match="never awaited"):
            _drop_a_call(session)
        cancelled = asyncio.create_task(session.call(provision, {"n": 2}))
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        del cancelled
        gc.collect()
        made = [(await asyncio.create_task(_call(session, {"n": 3}))).step]
        async with async_stage.own.target.open("orders", wait=0) as again:
            made.append(again.id)
        return [*made, session.id]

    step, again, first = async_stage.run(work())
    assert step == "step_003"
    assert again == first


async def _call(session: Any, args: dict[str, Any], **settings: Any) -> Any:
    return await session.call(provision, args, **settings)


def _blocked_tools(stage: Stage) -> tuple[Any, asyncio.Event, asyncio.Event]:
    """Return an async runtime whose first request waits; events: it has come, it may be answered."""
    came, go = asyncio.Event(), asyncio.Event()

    class Held(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if not came.is_set():
                came.set()
                await go.wait()
            return stage.tools(request)

    return stage.runtime(client=httpx.AsyncClient(transport=Held())).target, came, go


def test_a_second_task_that_calls_by_counter_is_refused(async_stage: Stage) -> None:
    """While one task's call is out on a branch, another task gets `ConcurrentCall`, but not on a branch or with at=."""

    async def work() -> list[str]:
        runtime, came, go = _blocked_tools(async_stage)
        async with runtime.open("orders") as session:
            first = asyncio.create_task(_call(session, {"n": 1}))
            await came.wait()
            with pytest.raises(ConcurrentCall):
                await asyncio.create_task(_call(session, {"n": 2}))
            addressed = await asyncio.create_task(_call(session, {"n": 3}, at="msg1.0"))
            branched = await asyncio.create_task(_call(session.branch("b"), {"n": 4}))
            go.set()
            made = [(await first).step, addressed.step, branched.step]
            return [*made, (await asyncio.create_task(_call(session, {"n": 5}))).step]

    assert async_stage.run(work()) == ["step_001", "step_002", "b.step_001", "step_003"]


def test_a_second_thread_that_calls_by_counter_is_refused(sync_stage: Stage) -> None:
    """While one thread's call is out on a branch, another thread gets `ConcurrentCall`, but not with at=."""
    came, go = threading.Event(), threading.Event()

    def held(request: httpx.Request) -> httpx.Response:
        came.set()
        assert go.wait(10)
        return sync_stage.tools.apply("provision", request.headers["Idempotency-Key"], request.content)

    sync_stage.tools.script("provision", held)
    with sync_stage.open() as session:
        first: list[Any] = []
        thread = threading.Thread(target=lambda: first.append(session.call(provision, {"n": 1})))
        thread.start()
        assert came.wait(10)
        try:
            with pytest.raises(ConcurrentCall):
                session.call(provision, {"n": 2})
            assert session.call(provision, {"n": 3}, at="msg1.0").step == "step_002"
        finally:
            go.set()
            thread.join(10)
        assert first[0].step == "step_001"
        assert session.call(provision, {"n": 4}).step == "step_003"


@pytest.mark.parametrize("name", ["", "step_001", "a b", "a.v2", "x" * 65])
def test_a_branch_needs_a_name_that_can_stand_in_a_key(stage: Stage, name: str) -> None:
    """Names that would read as labels, or that a key cannot hold, are refused at once."""
    with stage.open() as session, pytest.raises(ConfigError):
        session.branch(name)
