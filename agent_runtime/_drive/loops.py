"""The two loops that perform effects, one above the other; a change to one is a change to both.

What they share: an interruption (Ctrl-C, cancellation, exit) while a request is out is recorded before it goes on. The
protocol is told that the request may have been sent, its writes are still performed, nothing else is begun, and then
the interruption is raised again. A second one leaves at once.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from agent_runtime._core.effects import (
    Acquire,
    Boottime,
    CloseStream,
    Effect,
    Invoke,
    Job,
    LeaseHeld,
    Load,
    NewId,
    NextEvent,
    NoCredential,
    Now,
    Obtain,
    Persist,
    Random,
    Send,
    Share,
    Sleep,
    Tell,
)
from agent_runtime._drive import functions, tokens
from agent_runtime._drive.interruptions import Told, Walk, cut_short, lost_commit
from agent_runtime._model import Raised
from agent_runtime.config import defaults

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agent_runtime._core.effects import Steps
    from agent_runtime._drive.world import World
    from agent_runtime._http import AsyncHttpSender, HttpSender
    from agent_runtime._model import Returned, ServerEvent
    from agent_runtime.ledger import Lease

T = TypeVar("T")
R = TypeVar("R")

FLIGHT_PATIENCE = defaults.CONNECT_TIMEOUT + defaults.READ_TIMEOUT
"""Seconds that closing waits for token requests."""
LOOK = 0.25
"""Seconds between two looks at the clock while a token request is waited for: it may jump, as after a sleep."""
TOO_LONG = NoCredential(
    "unavailable", "a token request is under way for longer than this step can wait; it goes on for the next try"
)


class _Loop:
    """What both loops share: the effects that do not wait. Strictly private."""

    def __init__(self, world: World, store: tokens.TokenStore) -> None:
        self.world = world
        self.store = store

    def submitted(self, effect: Effect[Any]) -> Future[Any] | None:
        """Hand ledger work in, so that an interrupted caller can go on waiting for the same answer."""
        if isinstance(effect, Persist):
            return self.world.ledger.write([effect.entry])
        if isinstance(effect, Job):
            return effect.start(self.world.ledger)
        return self.world.ledger.operation(effect.operation_id) if isinstance(effect, Load) else None

    def at_once(self, effect: Effect[Any], lease: Lease | None) -> Any:
        """Perform an effect that does not wait."""
        match effect:
            case Now():
                return self.world.ledger.now()
            case Random():
                return self.world.random()
            case NewId():
                return self.world.new_id()
            case Boottime():
                return self.world.clock.boottime()
            case LeaseHeld():
                return lease is not None and not lease.lost and self.world.clock.boottime() < lease.good_until
            case _:
                raise AssertionError(effect)


class Driver(_Loop):
    """Performs effects by blocking."""

    def __init__(self, world: World, sender: HttpSender, store: tokens.TokenStore) -> None:
        super().__init__(world, store)
        self.sender = sender

    def drive(self, steps: Steps[R], lease: Lease | None, session_id: str = "") -> R:
        """Run a protocol to its end and return what it returns."""
        walk = Walk(self.world.probe(steps, session_id))
        while (effect := walk.ask()) is not None:
            future = None
            try:
                future = self.submitted(effect)
                walk.told(*self._perform(effect, future, lease, session_id))
            except Exception as failure:  # noqa: BLE001  every failure of an effect is the protocol's to judge
                walk.failed(effect, failure)
            except BaseException as interruption:
                if walk.stop is not None:
                    raise
                walk.stop = interruption
                walk.value, walk.error = self._interrupted(effect, future, interruption)
        return walk.result

    def _interrupted(self, effect: Effect[Any], future: Future[Any] | None, stop: BaseException) -> Told:
        if not isinstance(effect, Persist | Load | Job):
            return cut_short(effect, stop)
        if future is None:  # interrupted while the work was handed in: it may be queued
            return None, lost_commit()
        try:
            return self._answer(effect, future, defaults.INTERRUPT_PATIENCE), None
        except Exception as failure:  # noqa: BLE001  as in `drive`
            return None, failure

    def _perform(self, effect: Effect[Any], future: Future[Any] | None, lease: Lease | None, session_id: str) -> Told:
        """Perform one effect; the second value is an error of ours that has to pass through once it is recorded."""
        match effect:
            case Send():
                return self._send(effect), None
            case Invoke():
                return self._invoke(effect, session_id)
            case Tell():
                effect.listener(effect.seen)
                return None, None
            case NextEvent() | CloseStream():
                return self._read(effect), None
            case Sleep():
                self.world.clock.sleep(effect.seconds)
                return None, None
            case Persist() | Load() | Job():
                assert future is not None
                return self._answer(effect, future, None), None
            case Acquire():
                return self.drive(tokens.acquire(self.store, effect, self.world.auth), lease), None
            case Obtain():
                return self._obtain(effect), None
            case Share():
                return self._share(effect), None
            case _:
                return self.at_once(effect, lease), None

    def _answer(self, effect: Effect[Any], future: Future[Any], patience: float | None) -> Any:
        try:
            result = future.result(patience)
        except concurrent.futures.TimeoutError:
            raise lost_commit() from None
        return result[0] if isinstance(effect, Persist) else result

    def _send(self, send: Send) -> Any:
        return self.sender.send(
            send.request,
            extra_headers=send.headers,
            connect=send.connect,
            read=send.read,
            deadline=send.deadline,
            body_limit=send.body_limit,
        )

    def _read(self, effect: NextEvent | CloseStream) -> ServerEvent | None:
        if isinstance(effect, NextEvent):
            return self.sender.next_event(effect.stream)
        self.sender.close_stream(effect.stream)
        return None

    def _invoke(self, invoke: Invoke, session_id: str) -> tuple[Returned | Raised, BaseException | None]:
        try:
            return functions.call(invoke, session_id), None
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            seen = functions.raised(error, invoke.tool)
            return seen, (error if seen.interrupted else None)

    def _obtain(self, obtain: Obtain) -> str:
        token = obtain.function()
        tokens.refuse_awaitable(token)
        return tokens.checked_token(token, obtain.whose)

    def _share(self, share: Share[T]) -> tuple[T | NoCredential, bool]:
        """Run a protocol in a thread of its own: an interruption of whoever waits does not reach it."""
        flight, mine = self.store.join(share.key)

        def fly() -> None:
            try:
                self.store.land(share.key, self.drive(share.start(), None), None)
            except BaseException as error:  # noqa: BLE001  it is raised where the result is waited for
                self.store.land(share.key, None, error)

        if mine:
            try:
                # No daemon: the interpreter waits for it, and so a refresh is not torn by its end.
                threading.Thread(target=fly, name="agent_runtime-token", daemon=False).start()
            except BaseException as error:
                self.store.land(share.key, None, error)
                raise
        while not flight.done():
            left = share.until - self.world.clock.boottime()
            if left <= 0:
                return TOO_LONG, mine
            concurrent.futures.wait([flight], timeout=min(left, LOOK))
        return flight.result(), mine

    def close(self) -> None:
        """Wait for token requests that are under way: what they bring may have to be kept."""
        concurrent.futures.wait(self.store.flights(), timeout=FLIGHT_PATIENCE)


class AsyncDriver(_Loop):
    """Performs effects by awaiting."""

    def __init__(self, world: World, sender: AsyncHttpSender, store: tokens.TokenStore) -> None:
        super().__init__(world, store)
        self.sender = sender

    async def drive(self, steps: Steps[R], lease: Lease | None, session_id: str = "") -> R:
        """Run a protocol to its end and return what it returns."""
        walk = Walk(self.world.probe(steps, session_id))
        while (effect := walk.ask()) is not None:
            future = None
            try:
                future = self.submitted(effect)
                walk.told(*await self._perform(effect, future, lease, session_id))
            except Exception as failure:  # noqa: BLE001  every failure of an effect is the protocol's to judge
                walk.failed(effect, failure)
            except BaseException as interruption:
                if walk.stop is not None:
                    raise
                walk.stop = interruption
                walk.value, walk.error = await self._interrupted(effect, future, interruption)
        return walk.result

    async def _interrupted(self, effect: Effect[Any], future: Future[Any] | None, stop: BaseException) -> Told:
        if not isinstance(effect, Persist | Load | Job):
            return cut_short(effect, stop)
        if future is None:  # interrupted while the work was handed in: it may be queued
            return None, lost_commit()
        try:
            return await self._answer(effect, future, defaults.INTERRUPT_PATIENCE), None
        except Exception as failure:  # noqa: BLE001  as in `drive`
            return None, failure

    async def _perform(
        self, effect: Effect[Any], future: Future[Any] | None, lease: Lease | None, session_id: str
    ) -> Told:
        """Perform one effect; the second value is an error of ours that has to pass through once it is recorded."""
        match effect:
            case Send():
                return await self._send(effect), None
            case Invoke():
                return await self._invoke(effect, session_id)
            case Tell():
                await self._tell(effect)
                return None, None
            case NextEvent() | CloseStream():
                return await self._read(effect), None
            case Sleep():
                await self.world.clock.sleep_async(effect.seconds)
                return None, None
            case Persist() | Load() | Job():
                assert future is not None
                return await self._answer(effect, future, None), None
            case Acquire():
                return await self.drive(tokens.acquire(self.store, effect, self.world.auth), lease), None
            case Obtain():
                return await self._obtain(effect), None
            case Share():
                return await self._share(effect), None
            case _:
                return self.at_once(effect, lease), None

    async def _answer(self, effect: Effect[Any], future: Future[Any], patience: float | None) -> Any:
        try:
            async with asyncio.timeout(patience):
                result = await awaited(future)
        except TimeoutError:
            raise lost_commit() from None
        return result[0] if isinstance(effect, Persist) else result

    async def _send(self, send: Send) -> Any:
        return await self.sender.send(
            send.request,
            extra_headers=send.headers,
            connect=send.connect,
            read=send.read,
            deadline=send.deadline,
            body_limit=send.body_limit,
        )

    async def _tell(self, tell: Tell) -> None:
        heard = tell.listener(tell.seen)
        if inspect.isawaitable(heard):
            await heard

    async def _read(self, effect: NextEvent | CloseStream) -> ServerEvent | None:
        if isinstance(effect, NextEvent):
            return await self.sender.next_event(effect.stream)
        await self.sender.close_stream(effect.stream)
        return None

    async def _invoke(self, invoke: Invoke, session_id: str) -> tuple[Returned | Raised, BaseException | None]:
        try:
            return await functions.call_async(invoke, session_id), None
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            seen = functions.raised(error, invoke.tool)
            return seen, (error if seen.interrupted else None)

    async def _obtain(self, obtain: Obtain) -> str:
        token = obtain.function()
        if inspect.isawaitable(token):
            token = await token
        return tokens.checked_token(token, obtain.whose)

    async def _share(self, share: Share[T]) -> tuple[T | NoCredential, bool]:
        """Run a protocol in a task of its own: a cancellation of whoever waits does not reach it."""
        flight, mine = self.store.join(share.key)

        async def fly() -> None:
            try:
                self.store.land(share.key, await self.drive(share.start(), None), None)
            except asyncio.CancelledError:  # the loop ends
                raise
            except BaseException as error:  # noqa: BLE001  it is raised where the result is waited for
                self.store.land(share.key, None, error)

        def ended(task: asyncio.Task[None]) -> None:
            self.store.tasks.discard(task)
            self.store.land(share.key, NoCredential("unavailable", "the event loop ended during a token request"), None)

        if mine:
            task = asyncio.get_running_loop().create_task(fly(), name="agent_runtime-token")
            self.store.tasks.add(task)
            task.add_done_callback(ended)
        landed = wake_of(flight)
        while not flight.done():
            left = share.until - self.world.clock.boottime()
            if left <= 0:
                return TOO_LONG, mine
            await asyncio.wait({landed}, timeout=min(left, LOOK))
        return flight.result(), mine

    async def close(self) -> None:
        """Wait for token requests that are under way: what they bring may have to be kept."""
        loop = asyncio.get_running_loop()
        tasks = {task for task in self.store.tasks if task.get_loop() is loop}
        if tasks:
            await asyncio.wait(tasks, timeout=FLIGHT_PATIENCE)


async def awaited(future: Future[T]) -> T:
    """Wait for ledger work without blocking the loop; giving up, or a closed loop, tears nothing."""
    await wake_of(future)
    return future.result()


def wake_of(future: Future[Any]) -> asyncio.Future[None]:
    """Return what this loop can wait for until the work is done."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def done(_: Future[T]) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the loop was closed while the ledger worked; nobody waits any more
            return

    future.add_done_callback(done)
    return waiter


__all__ = ["AsyncDriver", "Driver", "awaited"]
