"""Interruptions: Ctrl-C and cancellation at each point where a call can be caught, and ledgers that fail in between."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import LedgerError, NotRecorded, StepUnknown
from agent_runtime._model import Advance, Reserve
from agent_runtime.errors import CommitUnknown, LedgerFull, LedgerReadOnly
from tests.session.stage import WAIT, BrokenLedger, notify, provision

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.session.stage import Stage


def begins(entry: Any) -> bool:
    """Whether a write says that an attempt begins."""
    return isinstance(entry, Advance) and entry.attempt is not None


def ends(entry: Any) -> bool:
    """Whether a write says how an attempt ended."""
    return isinstance(entry, Advance) and entry.attempt is None


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not-applied"])
def test_ctrl_c_while_a_request_is_out_is_recorded_and_raised_again(sync_stage: Stage, applied: bool) -> None:
    """The step ends unknown, `KeyboardInterrupt` passes, and the same call goes on under the same key."""

    def interrupt(request: httpx.Request) -> httpx.Response:
        if applied:
            sync_stage.tools.apply("provision", request.headers["Idempotency-Key"], request.content)
        raise KeyboardInterrupt

    sync_stage.tools.script("provision", interrupt)
    session = sync_stage.open()
    with pytest.raises(KeyboardInterrupt):
        session.call(provision, {"gb": 1})
    assert sync_stage.states() == ["unknown"]
    assert session.call(provision, {"gb": 1}).value["effect"] == 1
    assert sync_stage.tools.effects["provision"] == 1
    assert len({seen.key for seen in sync_stage.tools.requests}) == 1


def test_a_second_ctrl_c_leaves_at_once(sync_stage: Stage) -> None:
    """While the first one is being recorded, another leaves the row in flight; a resume settles it."""
    interrupted: list[bool] = []

    def interrupt(request: httpx.Request) -> httpx.Response:
        sync_stage.tools.apply("provision", request.headers["Idempotency-Key"], request.content)
        interrupted.append(True)
        raise KeyboardInterrupt

    broken = BrokenLedger(sync_stage.ledger, lambda _: KeyboardInterrupt() if interrupted else None)
    sync_stage.tools.script("provision", interrupt)
    session = sync_stage.runtime(ledger=broken).open("orders")
    with pytest.raises(KeyboardInterrupt):
        session.call(provision, {"gb": 1})
    assert sync_stage.states() == ["in_flight"]
    assert sync_stage.open().call(provision, {"gb": 1}).server_replayed
    assert sync_stage.tools.effects["provision"] == 1


@pytest.mark.parametrize("write", [Reserve, begins, ends], ids=["reserve", "begin", "end"])
def test_ctrl_c_while_a_write_is_handed_in(sync_stage: Stage, write: Any) -> None:
    """`KeyboardInterrupt` passes whatever the write became; the same call has one effect, here and on a resume."""
    left = [KeyboardInterrupt()]

    def fail(entry: Any) -> BaseException | None:
        hit = isinstance(entry, write) if isinstance(write, type) else write(entry)
        return left.pop() if hit and left else None

    session = sync_stage.runtime(ledger=BrokenLedger(sync_stage.ledger, fail)).open("orders")
    with pytest.raises(KeyboardInterrupt):
        session.call(provision, {"gb": 1})
    assert session.call(provision, {"gb": 1}).value["effect"] == 1
    session.close()
    assert sync_stage.open().call(provision, {"gb": 1}).value["effect"] == 1
    assert sync_stage.tools.effects["provision"] == 1


def test_ctrl_c_during_a_wait(sync_stage: Stage) -> None:
    """What the tool asked to wait for stands in the ledger, so the call made again waits for it, then sends once."""
    sync_stage.tools.script("provision", httpx.Response(429, headers={"Retry-After": "7"}))

    def interrupt() -> None:
        sync_stage.clock.on_sleep = None
        raise KeyboardInterrupt

    sync_stage.clock.on_sleep = interrupt
    session = sync_stage.open()
    with pytest.raises(KeyboardInterrupt):
        session.call(provision, {"gb": 1})
    assert sync_stage.states() == ["ready"]
    sync_stage.clock.slept.clear()
    assert session.call(provision, {"gb": 1}).attempts == 2
    assert sum(sync_stage.clock.slept) >= 7
    assert sync_stage.tools.effects["provision"] == 1


# -- cancellation ---------------------------------------------------------------------------------------------------


class Cut:
    """Awaits a coroutine and cancels the task at the coroutine's n-th wait; ``waits`` counts those it came to."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int) -> None:
        self._work = work
        self._at = at
        self.waits = 0

    def __await__(self) -> Any:
        error: BaseException | None = None
        steps = self._work.__await__()
        while True:
            try:
                waited = steps.throw(error) if error is not None else steps.send(None)
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            error = None
            try:
                yield waited
            except BaseException as raised:
                error = raised

    async def run(self) -> Any:
        return await self


class Turning(httpx.AsyncBaseTransport):
    """Lets the loop turn before and after the effect."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        try:
            return self._stage.tools(request)
        finally:
            await asyncio.sleep(0)


async def _cut(stage: Stage, runtime: Any, tool: Any, at: int) -> bool:
    """Cancel a call at its n-th wait, call again, and resume from the top; return whether there was such a wait."""
    alias, args = f"{tool.name}-{at}", {"run": at}
    session = await runtime.open(alias)
    cut = Cut(session.call(tool, args), at)
    before = stage.tools.effects[tool.name]
    (ended,) = await asyncio.gather(asyncio.create_task(cut.run()), return_exceptions=True)
    if cut.waits < at:
        await session.close()
        return False
    assert isinstance(ended, asyncio.CancelledError)
    assert set(stage.states(alias)) <= {"ready", "unknown", "succeeded"}
    live = await session.try_call(tool, args)
    await session.close()
    again = await runtime.open(alias)
    resumed = await again.try_call(tool, args)
    await again.close()
    assert len(stage.loaded(alias).operations) == 1
    effects = stage.tools.effects[tool.name] - before
    if tool is provision:
        assert live.status == resumed.status == "succeeded"
        assert live.value == resumed.value
        assert effects == 1
    else:
        assert {str(live.status), str(resumed.status)} <= {"succeeded", "unknown"}
        assert effects <= 1
        assert (live.status == "succeeded") <= (effects == 1)
    return True


ANSWERED = ("ok",)
LOST = ("lost", "ok")
BUSY = (503, "ok")
DOWN = ("down", "ok")
WAITS = (httpx.Response(429, headers={"Retry-After": "3"}), "ok")


@pytest.mark.parametrize(
    "days", [ANSWERED, LOST, BUSY, DOWN, WAITS], ids=["answered", "lost", "busy", "down", "retry-after"]
)
@pytest.mark.parametrize("tool", [provision, notify], ids=["keyed", "plain"])
def test_a_call_can_be_cancelled_at_each_of_its_waits(async_stage: Stage, tool: Any, days: tuple[Any, ...]) -> None:
    """Whatever wait it is: the row says what is known; the call made again and a resume have one effect in all."""
    stage = async_stage

    async def work() -> int:
        client = httpx.AsyncClient(transport=Turning(stage))
        runtime = stage.runtime(client=client).target
        at = 1
        while True:
            stage.tools.forget_scripts()
            stage.tools.script(tool.name, *days)
            if not await _cut(stage, runtime, tool, at):
                return at
            at += 1

    assert stage.run(work()) > 5  # to record, to begin, to turn twice, to record the end


def test_a_timeout_around_a_call_is_a_cancellation(async_stage: Stage) -> None:
    """`asyncio.timeout` gives `TimeoutError`; the step is unknown, and the same call goes on under the same key."""
    stage = async_stage
    keys: list[str] = []

    async def work() -> Any:
        scopes: list[asyncio.Timeout] = []

        class Stuck(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                keys.append(request.headers["Idempotency-Key"])
                answer = stage.tools(request)
                if len(keys) == 1:
                    scopes[0].reschedule(asyncio.get_running_loop().time())
                    await asyncio.Event().wait()
                return answer

        session = await stage.runtime(client=httpx.AsyncClient(transport=Stuck())).target.open("orders")

        async def call() -> None:
            async with asyncio.timeout(None) as scope:
                scopes.append(scope)
                await session.call(provision, {"gb": 1})

        with pytest.raises(TimeoutError):
            await call()
        assert stage.states() == ["unknown"]
        return await session.call(provision, {"gb": 1})

    assert stage.run(work()).value["effect"] == 1
    assert len(set(keys)) == 1


class HeldLedger(BrokenLedger):
    """Keeps the writes that a test names until it lets them go."""

    def __init__(self, stage: Stage, holds: Any) -> None:
        super().__init__(stage.ledger, lambda _: None)
        self._holds = holds
        self.came = asyncio.Event()
        self._kept: list[tuple[Any, Future[Any]]] = []

    def write(self, entries: Any) -> Any:
        if not any(map(self._holds, entries)):
            return super().write(entries)
        answer: Future[Any] = Future()
        self._kept.append((entries, answer))
        self.came.set()
        return answer

    def let_go(self) -> None:
        for entries, answer in self._kept:
            answer.set_result(super().write(entries).result(WAIT))


def test_a_cancelled_caller_waits_for_the_write_before_the_first_byte(async_stage: Stage) -> None:
    """The wait for that write is shielded: the row is put right, nothing is sent, then the cancellation passes."""

    async def work() -> Any:
        ledger = HeldLedger(async_stage, begins)
        session = await async_stage.runtime(ledger=ledger).target.open("orders")
        task = asyncio.create_task(session.call(provision, {"gb": 1}))
        await ledger.came.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        ledger.let_go()
        with pytest.raises(asyncio.CancelledError):
            await task

    async_stage.run(work())
    assert async_stage.states() == ["ready"]
    assert async_stage.tools.requests == []


def test_a_second_cancellation_leaves_at_once(async_stage: Stage) -> None:
    """The row stays as the write makes it, nothing was sent, and a resume settles it."""

    async def work() -> None:
        ledger = HeldLedger(async_stage, begins)
        session = await async_stage.runtime(ledger=ledger).target.open("orders")
        task = asyncio.create_task(session.call(provision, {"gb": 1}))
        await ledger.came.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ledger.let_go()
        await session.close()

    async_stage.run(work())
    assert async_stage.states() == ["in_flight"]
    assert async_stage.tools.requests == []
    assert async_stage.open().call(provision, {"gb": 1}).value["effect"] == 1


def test_cancelling_many_calls_waits_for_all_of_them(async_stage: Stage) -> None:
    """`call_many` that is cancelled leaves no call of it running behind."""
    stage = async_stage

    async def work() -> None:
        came = asyncio.Semaphore(0)

        class Stuck(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                came.release()
                await asyncio.Event().wait()
                raise AssertionError

        session = await stage.runtime(client=httpx.AsyncClient(transport=Stuck())).target.open("orders")
        task = asyncio.create_task(session.call_many([(provision, {"n": 1}), (notify, {"n": 2})]))
        await came.acquire()
        await came.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stage.states() == ["unknown", "unknown"]

    stage.run(work())


# -- the ledger fails in between ------------------------------------------------------------------------------------


def failing(write: Any, error: Exception, *, times: int = 1) -> Any:
    left = [error] * times

    def fail(entry: Any) -> BaseException | None:
        hit = isinstance(entry, write) if isinstance(write, type) else write(entry)
        return left.pop() if hit and left else None

    return fail


@pytest.mark.parametrize("write", [Reserve, begins], ids=["reserve", "begin"])
@pytest.mark.parametrize("error", [LedgerFull("full"), LedgerReadOnly("read-only"), LedgerError("away")], ids=repr)
def test_A44a_nothing_is_sent_that_was_not_written_first(stage: Stage, write: Any, error: Exception) -> None:
    """A ledger that fails before the first byte raises its error, nothing is sent, and the call made again works."""
    session = stage.runtime(ledger=BrokenLedger(stage.ledger, failing(write, error))).open("orders")
    with pytest.raises(type(error)):
        session.call(notify, {"to": "ana"})
    assert stage.tools.requests == []
    assert session.call(notify, {"to": "ana"}).value["effect"] == 1
    session.close()
    assert stage.open().call(notify, {"to": "ana"}).value["effect"] == 1


@pytest.mark.parametrize("tool", [provision, notify], ids=["keyed", "plain"])
def test_A44b_an_answer_that_cannot_be_recorded_is_handed_over(stage: Stage, tool: Any) -> None:
    """`NotRecorded` carries the tool's answer; the row stays in flight, and a resume settles it: one effect."""
    session = stage.runtime(ledger=BrokenLedger(stage.ledger, failing(ends, LedgerFull("full")))).open("orders")
    with pytest.raises(NotRecorded) as caught:
        session.call(tool, {"n": 1})
    answer = caught.value.answer
    assert answer is not None
    assert (answer.status, b'"effect":1' in answer.body.replace(b" ", b"")) == (200, True)
    assert (caught.value.step, caught.value.session_id) == ("step_001", session.id)
    assert stage.states() == ["in_flight"]
    session.close()
    again = stage.open()
    if tool is provision:
        assert again.call(tool, {"n": 1}).server_replayed
    else:
        with pytest.raises(StepUnknown):
            again.call(tool, {"n": 1})
        stage.own.decide(caught.value.operation_id, succeeded=True, by="ana", evidence="the answer", result={"n": 1})
        assert again.call(tool, {"n": 1}).value == {"n": 1}
    assert stage.tools.effects[tool.name] == 1


def test_the_same_object_goes_on_after_an_answer_that_was_not_recorded(stage: Stage) -> None:
    """The call made again joins the operation and settles it under the same key."""
    session = stage.runtime(ledger=BrokenLedger(stage.ledger, failing(ends, LedgerFull("full")))).open("orders")
    with pytest.raises(NotRecorded):
        session.call(provision, {"n": 1})
    assert session.call(provision, {"n": 1}).server_replayed
    assert stage.tools.effects["provision"] == 1
    assert len({seen.key for seen in stage.tools.requests}) == 1


class LostAnswers(BrokenLedger):
    """A ledger that takes the writes a test names and loses its answers to them, once."""

    def __init__(self, stage: Stage, loses: Any) -> None:
        super().__init__(stage.ledger, lambda _: None)
        self._loses = loses

    def write(self, entries: Any) -> Any:
        answer = super().write(entries)
        if self._loses is None or not any(map(self._loses, entries)):
            return answer
        answer.result(WAIT)
        self._loses = None
        lost: Future[Any] = Future()
        lost.set_exception(CommitUnknown("the answer to a COMMIT was lost"))
        return lost


def test_a_position_whose_record_is_in_doubt_is_not_taken_twice(stage: Stage) -> None:
    """The call made again goes on with what was recorded and sends it once; another call is told to open anew."""
    session = stage.runtime(ledger=LostAnswers(stage, lambda entry: isinstance(entry, Reserve))).open("orders")
    with pytest.raises(LedgerError):
        session.call(notify, {"to": "ana"})
    with pytest.raises(LedgerError, match="Open the session anew"):
        session.call(notify, {"to": "bob"})
    assert stage.states() == ["ready"]
    assert stage.tools.requests == []
    made = session.call(notify, {"to": "ana"})
    assert (made.step, made.value["effect"]) == ("step_001", 1)
    session.close()
    assert stage.open().call(notify, {"to": "ana"}).source == "ledger"
    assert stage.tools.effects["notify"] == 1


@pytest.mark.parametrize("tool", [provision, notify], ids=["keyed", "plain"])
def test_an_attempt_whose_record_is_in_doubt_is_not_begun(stage: Stage, tool: Any) -> None:
    """Nothing is sent; the row says "in flight", so a tool without keys stays unknown rather than be sent twice."""
    session = stage.runtime(ledger=LostAnswers(stage, begins)).open("orders")
    with pytest.raises(CommitUnknown):
        session.call(tool, {"n": 1})
    assert stage.tools.requests == []
    outcome = session.try_call(tool, {"n": 1})
    assert outcome.status == ("succeeded" if tool is provision else "unknown")
    assert stage.tools.effects[tool.name] == (1 if tool is provision else 0)


def test_a_replay_passes_over_the_second_call_of_an_interrupted_one(sync_stage: Stage) -> None:
    """Interrupted, called again, gone on: a resume gets the end at the first position, so the code calls once less."""
    stage = sync_stage

    def interrupt(request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    def plan() -> list[str]:
        session = stage.open()
        steps = []
        for _ in range(2):
            try:
                steps.append(session.call(provision, {"gb": 1}).step)
                break
            except KeyboardInterrupt:
                continue
        steps.append(session.call(notify, {"to": "ana"}).step)
        steps.append(session.call(provision, {"gb": 1}).step)  # a second wish of the same kind
        session.close()
        return steps

    stage.tools.script("provision", interrupt)
    assert plan() == ["step_002", "step_003", "step_004"]
    for _ in range(2):
        assert plan() == ["step_001", "step_003", "step_004"]
    assert stage.tools.effects == {"provision": 2, "notify": 1}
