"""Jobs that nobody waits for, looked at when they are due: by one process, whichever session they belong to."""

from __future__ import annotations

import asyncio
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, Tell, ask
from agent_runtime._core.job_rounds import look_at
from agent_runtime._core.outcomes import outcome_of
from agent_runtime._core.tokens import Subject
from agent_runtime._model import SETTLED, OperationRecord, Outcome, State
from agent_runtime._session.shared import logger
from agent_runtime._session.telling import notify_quietly, notify_quietly_async
from agent_runtime.errors import AgentRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps
    from agent_runtime._session.settings import Settings
    from agent_runtime.ledger._events import DueJobs

ROUND: Final = 1.0
"""Longest pause between two looks for due jobs, in seconds."""
AGAIN: Final = 30.0
"""Seconds for which a job is left alone that could not be looked at, and between two looks for matters."""
THREADS: Final = 16
TASKS: Final = 128


class Rounds:
    """Which jobs are at work, and which are left alone for now. Strictly private.

    ``until``: a job that is due later is not begun any more (UTC epoch seconds).
    """

    def __init__(self, settings: Settings, concurrency: int, until: float) -> None:
        self.settings = settings
        self.concurrency = concurrency
        self.until = until
        self.found: DueJobs | None = None
        self.given: set[str] = set()
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
        """Return what is due; no more than can be begun soon. It is read once for as many looks as it serves."""
        if self.found is None or not self._waiting(self.found) or self._is_old(self.found):
            self.found = yield from self._read()
            self.given.clear()
        return self.found

    def _is_old(self, found: DueJobs) -> bool:
        return self.settings.world.ledger.now() - found.now >= ROUND

    def _read(self) -> Steps[DueJobs]:
        settings = self.settings
        names = sorted(settings.tools)
        limit = self.concurrency * 2 + len(self.busy)
        found: DueJobs = yield from ask(
            Job(lambda ledger: ledger.due_jobs(tenant=settings.tenant, tools=names, limit=limit))
        )
        self.alone = {ident: until for ident, until in self.alone.items() if until > found.now}
        return found

    def free(self, found: DueJobs) -> list[Due]:
        """Return the jobs that can be begun now."""
        return self._waiting(found)[: self.concurrency - len(self.busy)]

    def _waiting(self, found: DueJobs) -> list[Due]:
        out = self.busy | self.given | self.alone.keys()
        return [one for one in found.jobs if one[0].id not in out and (one[0].resume_at or 0.0) <= self.until]

    def begin(self, ident: str) -> None:
        """Note that a job is at work."""
        self.busy.add(ident)
        self.given.add(ident)

    def end(self, ident: str, ended: int | None, now: float) -> None:
        """Note that it is not any more; ``ended`` None = it could not be looked at."""
        self.busy.discard(ident)
        if ended is None:
            self.alone[ident] = now + AGAIN
        else:
            self.ended += ended

    def pause(self, found: DueJobs) -> float | None:
        """Return how long to wait before the next round, or None if this was the last."""
        if found.now >= self.until or (not found.running and not self.busy):
            return None
        soonest = found.next_at if found.next_at is not None else found.now + ROUND
        return max(0.02, min(ROUND, soonest - found.now, self.until - found.now))


Due = tuple[OperationRecord, str | None]
"""A job that is due, and on whose behalf its session calls."""


def look(settings: Settings, due: Due) -> Steps[Outcome | None]:
    """Look once at one job; None = somebody else has it."""
    operation, actor = due
    tool = settings.tools[operation.tool]
    subject = Subject(name=actor if actor is not None else settings.actor)
    seen = yield from look_at(operation, tool, subject, settings.body_limit)
    if seen is None:
        return None
    return outcome_of(seen, tool, seen.label, source="ledger", words=settings.words)


def tell_end(outcome: Outcome | None, on_end: Callable[[Outcome], Any] | None) -> Steps[int]:
    """Let ``on_end`` hear of a job that is over, or gone; return how many those were."""
    if outcome is None or not (outcome.state in SETTLED or outcome.state is State.UNKNOWN):
        return 0
    if on_end is not None:
        yield from ask(Tell(on_end, outcome))
    return 1


def follow_jobs(settings: Settings, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None) -> int:
    """Look at due jobs in rounds, each in one of a few threads; return how many jobs ended."""
    rounds = Rounds(settings, concurrency, until)
    at_work: dict[Future[int | None], str] = {}
    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="agent_runtime-jobs") as pool:
        while True:
            found = settings.driver.drive(rounds.due(), None)
            for due in rounds.free(found):
                rounds.begin(due[0].id)
                at_work[pool.submit(_follow_one, settings, due, on_end)] = due[0].id
            pause = rounds.pause(found)
            if rounds.is_time_to_tell(found.now) or (pause is None and not at_work):
                notify_quietly(settings)
            if pause is None and not at_work:
                return rounds.ended
            if at_work:
                done, _ = wait(at_work, timeout=pause, return_when=FIRST_COMPLETED)
                for one in done:
                    rounds.end(at_work.pop(one), one.result(), settings.world.ledger.now())
            elif pause is not None:
                settings.world.clock.sleep(pause)


def _follow_one(settings: Settings, due: Due, on_end: Callable[[Outcome], Any] | None) -> int | None:
    try:
        outcome = settings.driver.drive(look(settings, due), None, due[0].session_id)
    except AgentRuntimeError as error:
        _warn(due, error)
        return None
    return settings.driver.drive(tell_end(outcome, on_end), None)


def _warn(due: Due, error: AgentRuntimeError) -> None:
    msg = "session %s: the job of step %s could not be looked at, it is tried again later: %s"
    logger.warning(msg, due[0].session_id, due[0].label, error)


async def follow_jobs_async(
    settings: Settings, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None
) -> int:
    """Look at due jobs in rounds, each in a task, so many at a time; return how many jobs ended."""
    rounds = Rounds(settings, concurrency, until)
    at_work: dict[asyncio.Task[int | None], str] = {}
    try:
        while True:
            found = await settings.async_driver.drive(rounds.due(), None)
            for due in rounds.free(found):
                rounds.begin(due[0].id)
                at_work[asyncio.create_task(_follow_one_async(settings, due, on_end))] = due[0].id
            pause = rounds.pause(found)
            if rounds.is_time_to_tell(found.now) or (pause is None and not at_work):
                await notify_quietly_async(settings)
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


async def _follow_one_async(settings: Settings, due: Due, on_end: Callable[[Outcome], Any] | None) -> int | None:
    try:
        outcome = await settings.async_driver.drive(look(settings, due), None, due[0].session_id)
    except AgentRuntimeError as error:
        _warn(due, error)
        return None
    return await settings.async_driver.drive(tell_end(outcome, on_end), None)
