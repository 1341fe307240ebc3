"""Jobs that nobody waits for, looked at when they are due: by one process, whichever session they belong to."""

from __future__ import annotations

import asyncio
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.calls import work
from agent_runtime._core.desk import Following
from agent_runtime._core.effects import Job, ask
from agent_runtime._model import SETTLED, OperationRecord, Outcome, State
from agent_runtime._session.hold import HELD, Hold, hold
from agent_runtime._session.shared import logger
from agent_runtime.errors import AgentRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_runtime._core.effects import Steps
    from agent_runtime._session.settings import Settings
    from agent_runtime.config import AnyTool
    from agent_runtime.ledger import Claim, Owner
    from agent_runtime.ledger._events import DueJobs

ROUND: Final = 1.0
"""Longest pause between two looks for due jobs, in seconds."""
AGAIN: Final = 30.0
"""Seconds for which a session is left alone whose jobs could not be looked at, and between two looks for matters."""
THREADS: Final = 16
TASKS: Final = 128


class Rounds:
    """Which sessions are at work, and which are left alone for now. Strictly private."""

    def __init__(self, settings: Settings, concurrency: int) -> None:
        self.settings = settings
        self.concurrency = concurrency
        self.busy: set[str] = set()
        self.alone: dict[str, float] = {}
        self.ended = 0
        self.told_at: float | None = None

    def is_time_to_tell(self, now: float) -> bool:
        """Whether open matters are to be told; once in a while."""
        if self.settings.on_attention is None or (self.told_at is not None and now - self.told_at < AGAIN):
            return False
        self.told_at = now
        return True

    def due(self) -> Steps[DueJobs]:
        """Read what is due; no more than can be begun soon."""
        settings = self.settings
        names = sorted(settings.tools)
        limit = self.concurrency * 2 + len(self.busy)
        found: DueJobs = yield from ask(
            Job(lambda ledger: ledger.due_jobs(tenant=settings.tenant, tools=names, limit=limit))
        )
        self.alone = {ident: until for ident, until in self.alone.items() if until > found.now}
        return found

    def free(self, found: DueJobs) -> list[str]:
        """Return the sessions that can be begun now."""
        room = self.concurrency - len(self.busy)
        waiting = [ident for ident, _ in found.sessions if ident not in self.busy and ident not in self.alone]
        return waiting[:room]

    def begin(self, ident: str) -> None:
        """Note that a session is at work."""
        self.busy.add(ident)

    def end(self, ident: str, ended: int | None, now: float) -> None:
        """Note that it is not any more; ``ended`` None = it could not be looked at."""
        self.busy.discard(ident)
        if ended is None:
            self.alone[ident] = now + AGAIN
        else:
            self.ended += ended

    def pause(self, found: DueJobs, until: float) -> float | None:
        """Return how long to wait before the next round, or None if this was the last."""
        if found.now >= until or (not found.running and not self.busy):
            return None
        soonest = found.next_at if found.next_at is not None else found.now + ROUND
        return max(0.02, min(ROUND, soonest - found.now, until - found.now))


def claim(settings: Settings, owner: Owner, ident: str) -> Steps[Claim]:
    """Claim a parked session; one that somebody holds is left to its holder."""
    got: Claim = yield from ask(Job(lambda ledger: ledger.claim(name=ident, tenant=settings.tenant, owner=owner)))
    return got


def _held(settings: Settings, got: Claim) -> Hold:
    """Return the hold of a claim; nobody in this process takes it over while it is at work."""
    held = hold(settings, got)
    if held.token is not None:
        HELD.pop(held.token, None)
    return held


def looks(held: Hold) -> Iterator[tuple[OperationRecord, AnyTool, str]]:
    """Yield the due jobs of a claimed session: operation, tool, label."""
    book, settings = held.desk.book, held.settings
    now = settings.world.ledger.now()
    labels = {step.operation_id: step.label for step in book.steps() if step.operation_id is not None}
    for operation in book.unsettled():
        due = operation.resume_at is not None and operation.resume_at <= now
        if operation.state is State.ACCEPTED and due and operation.tool in settings.tools:
            yield operation, settings.tools[operation.tool], labels.get(operation.id, operation.label)


def look(held: Hold, operation: OperationRecord, tool: AnyTool, label: str) -> Steps[Outcome]:
    """Look once at one job."""
    return work(held.desk, tool, operation, label, Following("once"), delivers=False)


def is_end(outcome: Outcome) -> bool:
    """Whether a look found that the job is over, or gone."""
    return outcome.state in SETTLED or outcome.state is State.UNKNOWN


def follow_jobs(runtime: Any, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None) -> int:
    """Look at due jobs in rounds, each session in one of a few threads; return how many jobs ended."""
    settings: Settings = runtime._settings  # noqa: SLF001  the runtime's own other half
    rounds = Rounds(settings, concurrency)
    at_work: dict[Future[int | None], str] = {}
    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="agent_runtime-jobs") as pool:
        while True:
            found = settings.driver.drive(rounds.due(), None)
            for ident in rounds.free(found):
                rounds.begin(ident)
                at_work[pool.submit(_follow_session, runtime, ident, on_end)] = ident
            pause = rounds.pause(found, until)
            if rounds.is_time_to_tell(found.now) or (pause is None and not at_work):
                _notify(runtime)
            if pause is None and not at_work:
                return rounds.ended
            if at_work:
                done, _ = wait(at_work, timeout=pause, return_when=FIRST_COMPLETED)
                for one in done:
                    rounds.end(at_work.pop(one), one.result(), settings.world.ledger.now())
            elif pause is not None:
                settings.world.clock.sleep(pause)


def _notify(runtime: Any) -> None:
    try:
        runtime.notify()
    except Exception:  # noqa: BLE001  it is logged with its trace; the jobs go on
        logger.exception("on_attention failed; what it was told is told again")


async def _notify_async(runtime: Any) -> None:
    try:
        await runtime.notify()
    except Exception:  # noqa: BLE001  it is logged with its trace; the jobs go on
        logger.exception("on_attention failed; what it was told is told again")


def _follow_session(runtime: Any, ident: str, on_end: Callable[[Outcome], Any] | None) -> int | None:
    settings: Settings = runtime._settings  # noqa: SLF001  as above
    try:
        got = settings.driver.drive(claim(settings, runtime._owner(), ident), None)  # noqa: SLF001
        if got.status != "taken" or got.lease is None:
            return 0 if got.status == "busy" else None
        held, lease, ended = _held(settings, got), got.lease, 0
        try:
            for operation, tool, label in looks(held):
                outcome = settings.driver.drive(look(held, operation, tool, label), lease, ident)
                ended += _tell_end(outcome, on_end)
        finally:
            held.closed = True
            settings.driver.drive(ask(Job(lambda ledger: ledger.release(lease))), None)
    except AgentRuntimeError as error:
        logger.warning("session %s: its jobs could not be looked at, they are tried again later: %s", ident, error)
        return None
    return ended


def _tell_end(outcome: Outcome, on_end: Callable[[Outcome], Any] | None) -> bool:
    if not is_end(outcome):
        return False
    if on_end is not None:
        on_end(outcome)
    return True


async def follow_jobs_async(
    runtime: Any, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None
) -> int:
    """Look at due jobs in rounds, each session in a task, so many at a time; return how many jobs ended."""
    settings: Settings = runtime._settings  # noqa: SLF001  the runtime's own other half
    rounds = Rounds(settings, concurrency)
    at_work: dict[asyncio.Task[int | None], str] = {}
    try:
        while True:
            found = await settings.async_driver.drive(rounds.due(), None)
            for ident in rounds.free(found):
                rounds.begin(ident)
                at_work[asyncio.create_task(_follow_session_async(runtime, ident, on_end))] = ident
            pause = rounds.pause(found, until)
            if rounds.is_time_to_tell(found.now) or (pause is None and not at_work):
                await _notify_async(runtime)
            if pause is None and not at_work:
                return rounds.ended
            if at_work:
                done, _ = await asyncio.wait(at_work, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    rounds.end(at_work.pop(one), one.result(), settings.world.ledger.now())
            elif pause is not None:
                await settings.world.clock.sleep_async(pause)
    finally:
        for task in at_work:
            task.cancel()
        if at_work:
            await asyncio.wait(at_work)


async def _follow_session_async(runtime: Any, ident: str, on_end: Callable[[Outcome], Any] | None) -> int | None:
    settings: Settings = runtime._settings  # noqa: SLF001  as above
    drive = settings.async_driver.drive
    try:
        got = await drive(claim(settings, runtime._owner(), ident), None)  # noqa: SLF001
        if got.status != "taken" or got.lease is None:
            return 0 if got.status == "busy" else None
        held, lease, ended = _held(settings, got), got.lease, 0
        try:
            for operation, tool, label in looks(held):
                outcome = await drive(look(held, operation, tool, label), lease, ident)
                ended += await _tell_end_async(outcome, on_end)
        finally:
            held.closed = True
            await drive(ask(Job(lambda ledger: ledger.release(lease))), None)
    except AgentRuntimeError as error:
        logger.warning("session %s: its jobs could not be looked at, they are tried again later: %s", ident, error)
        return None
    return ended


async def _tell_end_async(outcome: Outcome, on_end: Callable[[Outcome], Any] | None) -> bool:
    if not is_end(outcome):
        return False
    heard = on_end(outcome) if on_end is not None else None
    if asyncio.iscoroutine(heard):
        await heard
    return True
