"""Answers that never came, and interruptions (A19 to A21)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AsyncRuntime, Runtime, ToolContract
from agent_runtime.errors import LedgerUnavailable
from agent_runtime.ledger import open_ledger
from agent_runtime.testing import VirtualClock
from tests.bugs.dying import BrokenLedger, advances_to
from tests.bugs.harness import Api, breaks, does, loses, says, tool

if TYPE_CHECKING:
    from pathlib import Path


Put = "Callable[..., Target]"
PATIENCE = 20
"""Seconds after which a test gives up; none that passes comes near."""
NOT_SENT = [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout]
MAYBE_SENT = [httpx.WriteTimeout, httpx.WriteError, httpx.ReadTimeout, httpx.ReadError, httpx.RemoteProtocolError]


class WatchedClock(VirtualClock):
    """Reads the step's state from the file, past the product, whenever somebody begins to wait."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.seen: list[tuple[str, bool]] = []

    def sleep(self, seconds: float) -> None:
        with closing(sqlite3.connect(self.path)) as conn:
            rows = conn.execute("SELECT state, maybe_applied FROM agent_runtime_operations").fetchall()
        self.seen += [(state, bool(maybe)) for state, maybe in rows]
        super().sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.RemoteProtocolError])
def test_A19_unknown_is_on_disk_before_the_retry(api: Api, target: Put, error: type[Exception]) -> None:
    """The effect landed and its answer was lost: ``unknown`` is committed, then the same key fetches the result."""
    clock = WatchedClock(api.url.removeprefix("sqlite:///"))
    there = target(loses(error), does())
    with api.worker(tool(), clock=clock).open() as plan:
        done = plan.call("pay", {"n": 1})
    assert clock.seen == [("unknown", True)]
    assert (done.value, done.server_replayed, done.attempts) == ({"id": "x"}, True, 2)
    assert (there.sends, len(there.keys), len(there.bodies), len(there.effects)) == (2, 1, 1, 1)


def test_A19_without_key_support_nothing_is_sent_again(api_on_both: Api, target: Put) -> None:
    """A tool that honours no key: no resend by the call, by the same call again, by a resume or by `settle`."""
    there = target(loses(), does(), honours=False)
    keyless = tool(contract=ToolContract())
    worker = api_on_both.worker(keyless)
    with worker.open() as plan:
        assert [plan.try_call("pay", {"n": 1}).status for _ in range(2)] == ["unknown", "unknown"]
    with worker.resume() as plan:
        assert [one.status for one in plan.settle()] == ["unknown"]
        assert plan.try_call("pay", {"n": 1}).status == "unknown"
    (matter,) = worker.do("attention")
    waiting = matter.operation
    assert (waiting.state, waiting.reason) == ("unknown", "lost_answer")
    assert (there.sends, len(there.effects)) == (1, 1)


@pytest.mark.parametrize("error", NOT_SENT)
def test_A20_what_was_provably_not_sent_is_tried_again(
    api: Api, target: Put, clock: VirtualClock, error: type[Exception]
) -> None:
    """Connect and pool errors prove that nothing arrived: tried again even without a key, and never unknown."""
    there = target(breaks(error), breaks(error), does(), honours=False)
    worker = api.worker(tool(contract=ToolContract()), clock=clock)
    with worker.open() as plan:
        done = plan.call("pay", {"n": 1})
        row = worker.operation(plan.steps()[0].operation_id)
    assert (done.attempts, row.maybe_applied) == (3, False)
    assert (there.sends, len(there.effects)) == (3, 1)


@pytest.mark.parametrize("error", NOT_SENT)
def test_A20_what_never_reached_the_tool_waits_and_is_no_failure(
    api: Api, target: Put, clock: VirtualClock, error: type[Exception]
) -> None:
    """With the budget spent and nothing sent, the step is pending: the same call goes on with it later."""
    there = target(breaks(error))
    with api.worker(tool(contract=ToolContract()), clock=clock).open() as plan:
        outcome = plan.try_call("pay", {"n": 1})
        assert (outcome.status, outcome.state, outcome.kind) == ("pending", "ready", "parked")
        there.script = [does()]
        clock.advance(60)
        assert plan.call("pay", {"n": 1}).key == outcome.key


def test_A20_what_may_have_been_sent_is_unknown_and_nobody_is_told_failed(api: Api, target: Put) -> None:
    """All other transport errors leave the step unknown, in the row, in the error and in the words for a model."""
    there = target(*map(breaks, MAYBE_SENT))
    with api.worker(tool(contract=ToolContract())).open() as plan:
        for branch, error in plan.each(MAYBE_SENT):
            outcome = branch.try_call("pay", {"n": 1})
            told = outcome.for_model()
            assert (outcome.status, outcome.state, outcome.reason) == ("unknown", "unknown", "lost_answer"), error
            assert (told["status"], told["done"]) == ("unknown", False)
            assert "NOT KNOWN" in told["message"]
            assert "failed" not in (outcome.message + told["message"]).lower()
    assert there.sends == len(MAYBE_SENT)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_A21_an_interruption_of_the_send_begins_no_attempt(tmp_path: Path, stop: type[BaseException]) -> None:
    """Ctrl-C and exit inside a blocking send leave at once; the row says unknown, and nothing was sent again."""
    sends = []

    def interrupted(request: httpx.Request) -> httpx.Response:
        sends.append(request)
        raise stop

    client = httpx.Client(transport=httpx.MockTransport(interrupted))
    clock = VirtualClock()
    with client, Runtime(f"sqlite:///{tmp_path}/a.db", tools=[tool()], client=client, clock=clock) as runtime:
        session = runtime.open("plan")
        with pytest.raises(stop):
            session.call("pay", {"n": 1})
        assert [(step.state, step.attempts) for step in session.steps()] == [("unknown", 1)]
        session.close()
    assert len(sends) == 1
    assert clock.slept == []


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_A21_a_cancelled_call_begins_no_attempt(tmp_path: Path, way: str) -> None:
    """A cancelled task, and a timeout around the call, end with the request out: recorded as unknown, one request."""
    sends: list[httpx.Request] = []

    async def run() -> None:
        out, never = asyncio.Event(), asyncio.Event()
        limits: list[asyncio.Timeout] = []

        async def limited(call: Any) -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await call

        async def silent(request: httpx.Request) -> httpx.Response:
            sends.append(request)
            out.set()
            for limit in limits:  # the time is over now, with the request out
                limit.reschedule(asyncio.get_running_loop().time())
            await never.wait()
            raise AssertionError

        client = httpx.AsyncClient(transport=httpx.MockTransport(silent))
        runtime = AsyncRuntime(f"sqlite:///{tmp_path}/a.db", tools=[tool()], client=client)
        async with client, runtime:
            session = await runtime.open("plan")
            if way == "cancel":
                task = asyncio.ensure_future(session.call("pay", {"n": 1}))
                await out.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(TimeoutError):
                    await limited(session.call("pay", {"n": 1}))
            assert [(step.state, step.attempts) for step in session.steps()] == [("unknown", 1)]
            await session.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert len(sends) == 1


class InterruptingClock(VirtualClock):
    """Whoever waits is interrupted."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def sleep_async(self, seconds: float) -> None:
        raise asyncio.CancelledError


def test_A21_an_interruption_of_a_wait_begins_no_attempt(api: Api, target: Put) -> None:
    """Ctrl-C and cancellation in the wait between two attempts leave the row as it was before the wait."""
    there = target(says(429), does())
    with api.worker(tool(), clock=InterruptingClock()).open() as plan:
        with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
            plan.call("pay", {"n": 1})
        assert plan.states() == {"step_001": "ready"}
    assert there.sends == 1


def test_A21_an_interruption_is_not_swallowed_by_a_ledger_that_fails(tmp_path: Path) -> None:
    """Ctrl-C with the request out, and the ledger gone as well: it is Ctrl-C that leaves, not an error to be caught."""

    def gone(entries: Any) -> Exception | None:
        return LedgerUnavailable("gone") if advances_to(entries, "unknown") else None

    def interrupted(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    ledger = open_ledger(f"sqlite:///{tmp_path}/a.db")
    client = httpx.Client(transport=httpx.MockTransport(interrupted))
    with client, Runtime(BrokenLedger(ledger, gone), tools=[tool()], client=client) as runtime:
        session = runtime.open("plan")
        with pytest.raises(KeyboardInterrupt):
            session.call("pay", {"n": 1})
        session.close()
        (step,) = runtime.explain("plan")
    ledger.close()
    assert step.state == "in_flight"
