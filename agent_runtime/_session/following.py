"""Jobs that nobody waits for, looked at when they are due: by one process, whichever session they belong to."""

from __future__ import annotations

import asyncio
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

from agent_runtime._core.effects import Job, ask
from agent_runtime._core.job_rounds import look_at
from agent_runtime._core.outcomes import outcome_of
from agent_runtime._core.telling import claim_end, tell_end
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
MOMENT: Final = 0.05
"""Seconds for which nothing is taken to have become due, while all that was is at work."""
AGAIN: Final = 30.0
"""Seconds for which a job is left alone that could not be looked at, and between two looks for matters."""
LOOKS: Final = 16
"""Looks at once, in threads or tasks."""


class Rounds:
    """Which jobs are at work, and which are left alone for now. Strictly private.

    ``until``: a job that is due later is not begun any more (UTC epoch seconds).
    """

    def __init__(
        self, settings: Settings, concurrency: int, until: float, on_end: Callable[[Outcome], Any] | None
    ) -> None:
        self.settings = settings
        self.on_end = on_end
        self.concurrency = concurrency
        self.until = until
        self.found: DueJobs | None = None
        self.asked_for = 0
        self.given: set[str] = set()
        self.busy: set[str] = set()
        self.alone: dict[str, float] = {}
        self.may_have_ends = True
        self.is_stale = False
        self.ended = 0
        self.told_at: float | None = None

    def is_time_to_tell(self, found: DueJobs) -> bool:
        """Whether open matters are to be told; once in a while, and not of jobs that are only now looked at."""
        if self.settings.on_attention is None or (self.told_at is not None and found.now - self.told_at < AGAIN):
            return False
        first, self.told_at = self.told_at is None, found.now
        return not (first and found.jobs)

    def due(self) -> Steps[DueJobs]:
        """Return what is due; no more than can be begun soon. It is read once for as many looks as it serves."""
        if self.found is None or self._is_used_up(self.found):
            self.found = yield from self._read()
            self.given.clear()
        return self.found

    def _is_used_up(self, found: DueJobs) -> bool:
        age = self.settings.world.ledger.now() - found.now
        if self._waiting(found):
            return age >= ROUND
        return not self.busy or len(found.jobs) >= self.asked_for or age >= MOMENT

    def _read(self) -> Steps[DueJobs]:
        settings = self.settings
        names = sorted(settings.tools)
        limit = self.asked_for = self.concurrency * 2 + len(self.busy)
        found: DueJobs = yield from ask(
            Job(lambda ledger: ledger.due_jobs(tenant=settings.tenant, tools=names, limit=limit))
        )
        self.alone = {ident: until for ident, until in self.alone.items() if until > found.now}
        self.may_have_ends, self.is_stale = True, False
        return found

    def free(self, found: DueJobs) -> list[Due]:
        """Return the jobs that can be begun now."""
        return self._waiting(found)[: self.concurrency - len(self.busy)]

    def _waiting(self, found: DueJobs) -> list[Due]:
        out = self.busy | self.given | self.alone.keys()
        return [one for one in found.jobs if one[0].id not in out and (one[0].resume_at or 0.0) <= self.until]

    def ends(self) -> Steps[list[OperationRecord]]:
        """Read which ends ``on_end`` is to hear of now; no more than can be begun, and only where there may be some."""
        settings, room = self.settings, self.concurrency - len(self.busy)
        if room <= 0 or self.on_end is None or not self.may_have_ends:
            return []
        names, limit = sorted(settings.tools), room + len(self.busy)
        found: list[OperationRecord] = yield from ask(
            Job(lambda ledger: ledger.ends_to_tell(tenant=settings.tenant, tools=names, limit=limit))
        )
        self.may_have_ends = len(found) >= limit
        return [one for one in found if one.id not in self.busy and one.id not in self.alone][:room]

    def tell(self, ended: OperationRecord) -> Steps[None]:
        """Let ``on_end`` hear of an end that was claimed."""
        assert self.on_end is not None
        tool = self.settings.tools[ended.tool]
        outcome = outcome_of(ended, tool, ended.label, source="ledger", words=self.settings.words)
        return tell_end(ended.id, outcome, self.on_end)

    def begin(self, ident: str) -> None:
        """Note that a job is at work."""
        self.busy.add(ident)
        self.given.add(ident)

    def end(self, ident: str, ended: int | None, now: float) -> None:
        """Note that it is not any more; ``ended`` None = it could not be looked at."""
        self.busy.discard(ident)
        self.is_stale = True  # it may be due again before anything that was read
        if ended is None:
            self.alone[ident] = now + AGAIN
        else:
            self.ended += ended
            self.may_have_ends = self.may_have_ends or ended > 0

    def pause(self, found: DueJobs) -> float | None:
        """Return how long to wait before the next round, or None if this was the last."""
        if found.now >= self.until or (not found.running and not self.busy):
            return None
        now = self.settings.world.ledger.now()
        soonest = found.next_at if found.next_at is not None else now + ROUND
        return max(0.02, min(MOMENT if self.is_stale else ROUND, soonest - now, self.until - now))


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


def has_ended(outcome: Outcome | None) -> int:
    """Return 1 for a job that is over, or gone."""
    return int(outcome is not None and (outcome.state in SETTLED or outcome.state is State.UNKNOWN))


def follow_jobs(settings: Settings, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None) -> int:
    """Look at due jobs in rounds, each in one of a few threads; return how many jobs ended."""
    rounds = Rounds(settings, concurrency, until, on_end)
    at_work: dict[Future[int | None], str] = {}
    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="agent_runtime-jobs") as pool:
        while True:
            found = settings.driver.drive(rounds.due(), None)
            _begin(rounds, found, at_work, pool)
            pause = rounds.pause(found)
            if rounds.is_time_to_tell(found) or (pause is None and not at_work):
                notify_quietly(settings)
            if pause is None and not at_work:
                return rounds.ended
            if at_work:
                done, _ = wait(at_work, timeout=pause, return_when=FIRST_COMPLETED)
                for future in done:
                    rounds.end(at_work.pop(future), future.result(), settings.world.ledger.now())
            elif pause is not None:
                settings.world.clock.sleep(pause)


def _begin(rounds: Rounds, found: DueJobs, at_work: dict[Future[int | None], str], pool: ThreadPoolExecutor) -> None:
    settings = rounds.settings
    for due in rounds.free(found):
        rounds.begin(due[0].id)
        at_work[pool.submit(_follow_one, settings, due)] = due[0].id
    for ended in settings.driver.drive(rounds.ends(), None):
        rounds.begin(ended.id)
        at_work[pool.submit(_tell_one, rounds, ended)] = ended.id


def _follow_one(settings: Settings, due: Due) -> int | None:
    try:
        outcome = settings.driver.drive(look(settings, due), None, due[0].session_id)
    except AgentRuntimeError as error:
        _warn(due, error)
        return None
    return has_ended(outcome)


def _tell_one(rounds: Rounds, ended: OperationRecord) -> int | None:
    settings = rounds.settings
    try:
        if not settings.driver.drive(claim_end(ended.id), None):
            return 0
    except AgentRuntimeError as error:
        _warn((ended, None), error)
        return None
    settings.driver.drive(rounds.tell(ended), None)
    return 0


def _warn(due: Due, error: AgentRuntimeError) -> None:
    msg = "session %s: the job of step %s could not be looked at or told of, it is tried again later: %s"
    logger.warning(msg, due[0].session_id, due[0].label, error)


async def follow_jobs_async(
    settings: Settings, until: float, concurrency: int, on_end: Callable[[Outcome], Any] | None
) -> int:
    """Look at due jobs in rounds, each in a task, so many at a time; return how many jobs ended."""
    rounds = Rounds(settings, concurrency, until, on_end)
    at_work: dict[asyncio.Task[int | None], str] = {}
    try:
        while True:
            found = await settings.async_driver.drive(rounds.due(), None)
            await _begin_async(rounds, found, at_work)
            pause = rounds.pause(found)
            if rounds.is_time_to_tell(found) or (pause is None and not at_work):
                await notify_quietly_async(settings)
            if pause is None and not at_work:
                return rounds.ended
            if at_work:
                done, _ = await asyncio.wait(at_work, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    rounds.end(at_work.pop(task), task.result(), settings.world.ledger.now())
            elif pause is not None:
                await settings.world.clock.sleep_async(pause)
    except asyncio.CancelledError:
        for task in at_work:
            task.cancel()
        raise
    finally:  # where one raised, the others come to their end, as those of the threads do
        if at_work:
            await asyncio.wait(at_work)


async def _begin_async(rounds: Rounds, found: DueJobs, at_work: dict[asyncio.Task[int | None], str]) -> None:
    settings = rounds.settings
    for due in rounds.free(found):
        rounds.begin(due[0].id)
        at_work[asyncio.create_task(_follow_one_async(settings, due))] = due[0].id
    for ended in await settings.async_driver.drive(rounds.ends(), None):
        rounds.begin(ended.id)
        at_work[asyncio.create_task(_tell_one_async(rounds, ended))] = ended.id


async def _follow_one_async(settings: Settings, due: Due) -> int | None:
    try:
        outcome = await settings.async_driver.drive(look(settings, due), None, due[0].session_id)
    except AgentRuntimeError as error:
        _warn(due, error)
        return None
    return has_ended(outcome)


async def _tell_one_async(rounds: Rounds, ended: OperationRecord) -> int | None:
    settings = rounds.settings
    try:
        if not await settings.async_driver.drive(claim_end(ended.id), None):
            return 0
    except AgentRuntimeError as error:
        _warn((ended, None), error)
        return None
    await settings.async_driver.drive(rounds.tell(ended), None)
    return 0
