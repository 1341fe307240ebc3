"""What a runtime does beyond one session: jobs in flight, callbacks, open matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from agent_runtime._core.attention import STALLED_AFTER, Attention, matters, tell
from agent_runtime._core.callbacks import receive
from agent_runtime._core.effects import Job, ask
from agent_runtime._core.run import seconds_of
from agent_runtime._model import State
from agent_runtime._session import following
from agent_runtime._session.jobs import JobTable, job_table
from agent_runtime._session.runtime_base import RuntimeBase
from agent_runtime._session.telling import tell_by_tool, tell_by_tool_async
from agent_runtime.config import defaults
from agent_runtime.config._checks import count, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps
    from agent_runtime._model import CallbackEvent, Outcome, RunningJob

R = TypeVar("R")

SILENCE = STALLED_AFTER * defaults.POLL_CAP


class _JobsBase(RuntimeBase):
    """What both kinds share. Strictly private."""

    def _listener(self) -> tuple[Callable[[Attention], Any], str | None] | None:
        """Return who hears of matters, and the tool's name where it is one."""
        on = self._settings.on_attention
        if on is None:
            return None
        if callable(on) and not hasattr(on, "contract"):
            return on, None
        tool = self._settings.tool(on)  # type: ignore[arg-type]  # what is neither is refused there
        tell_it = tell_by_tool_async if self._is_async else tell_by_tool
        return (lambda matter: tell_it(self, tool, matter)), tool.name

    def _tell(self, listener: Callable[[Attention], Any], teller: str | None) -> Steps[int]:
        return tell(self._settings.tenant, listener, silence=SILENCE, teller=teller, bounds=self._bounds())

    def _bounds(self) -> dict[str, float]:
        tools = self._settings.tools.items()
        return {name: seconds_of(tool.contract.polling.bound) for name, tool in tools}

    def _all_jobs(self) -> Steps[list[RunningJob]]:
        tenant = self._settings.tenant
        running: list[RunningJob] = yield from ask(self._jobs())
        ended: list[RunningJob] = yield from ask(Job(lambda ledger: ledger.untold(tenant=tenant)))
        # One that ended between the two reads stands in both; one that is unknown stands in `attention()`.
        last = {one.operation.id: one for one in (*running, *ended) if one.operation.state is not State.UNKNOWN}
        return sorted(last.values(), key=lambda one: (one.operation.created_at, one.operation.id))

    def _looks(self, concurrency: int | None) -> int:
        return following.LOOKS if concurrency is None else count("concurrency", concurrency)

    def _until(self, until: float | None) -> float:
        return self._settings.world.ledger.now() if until is None else seconds("until", until)


class RuntimeJobs(_JobsBase):
    """Jobs, callbacks and matters, for blocking code."""

    def _drive(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    def attention(self) -> list[Attention]:
        """List what wants a person or new evidence, oldest first.

        Steps that are unknown or contradicted, jobs past their bound, jobs that are due and nobody looks at, jobs that
        run a day longer than they should, jobs that nobody can look at.
        """
        return self._drive(matters(self._settings.tenant, silence=SILENCE, bounds=self._bounds()))

    def notify(self) -> int:
        """Tell ``on_attention`` of each open matter that nobody has heard of yet; return how many those were.

        Sessions do this when they close, and `follow_jobs` while it goes on; call it from time to time where there is
        neither. A matter counts as heard once the listener has returned, or the tool's step has ended.
        """
        told = self._listener()
        if told is None or not self._settings.telling.acquire(blocking=False):
            return 0  # a session in which a matter is told closes too
        try:
            return self._drive(self._tell(*told))
        finally:
            self._settings.telling.release()

    def jobs(self) -> JobTable:
        """List all jobs in flight, and those that have ended and whose code was not told yet; the oldest first.

        Prints as a table, and ``.for_model()`` tells a model what runs and what it has to pick up.
        """
        return job_table(self._drive(self._all_jobs()), self._settings.words)

    def receive(self, event: CallbackEvent) -> str:
        """Take a verified callback about a job: kept under its id first, then applied, once.

        Returns:
            ``applied``: its step ended by it. ``kept``: its step is not known yet. ``noted``: its step has ended
            already, or the event is no end. ``seen``: it came before.
        """
        return self._drive(receive(self._settings.tenant, event, self._settings.tools))

    def follow_jobs(
        self,
        *,
        until: float | None = None,
        concurrency: int | None = None,
        on_end: Callable[[Outcome], Any] | None = None,
    ) -> int:
        """Look at jobs of parked sessions when they are due; return how many ended. Polls, never posts.

        Sessions that somebody holds are left to their holder. Several processes may do this at once.

        Args:
            until: UTC epoch seconds until which it goes on; it ends earlier once no job is left. None = only what is
                due now.
            concurrency: looks at once, in threads of a blocking runtime, in tasks of an async one; None = 16.
            on_end: hears of each job that ended, by a poll, a callback or another worker, or is gone, and whose code
                was not told: at least once, also across crashes, and once as a rule. What it raises ends this, and that
                end is told again; so it is 90 s after a process died in it.
        """
        return following.follow_jobs(self._settings, self._until(until), self._looks(concurrency), on_end)


class AsyncRuntimeJobs(_JobsBase):
    """Jobs, callbacks and matters, for asyncio."""

    async def _drive(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    async def attention(self) -> list[Attention]:
        """List what wants a person or new evidence, oldest first.

        Steps that are unknown or contradicted, jobs past their bound, jobs that are due and nobody looks at, jobs that
        run a day longer than they should, jobs that nobody can look at.
        """
        return await self._drive(matters(self._settings.tenant, silence=SILENCE, bounds=self._bounds()))

    async def notify(self) -> int:
        """Tell ``on_attention`` of each open matter that nobody has heard of yet; return how many those were.

        Sessions do this when they close, and `follow_jobs` while it goes on; call it from time to time where there is
        neither. A matter counts as heard once the listener has returned, or the tool's step has ended.
        """
        told = self._listener()
        if told is None or not self._settings.telling.acquire(blocking=False):
            return 0  # a session in which a matter is told closes too
        try:
            return await self._drive(self._tell(*told))
        finally:
            self._settings.telling.release()

    async def jobs(self) -> JobTable:
        """List all jobs in flight, and those that have ended and whose code was not told yet; the oldest first.

        Prints as a table, and ``.for_model()`` tells a model what runs and what it has to pick up.
        """
        return job_table(await self._drive(self._all_jobs()), self._settings.words)

    async def receive(self, event: CallbackEvent) -> str:
        """Take a verified callback about a job: kept under its id first, then applied, once.

        Returns:
            ``applied``: its step ended by it. ``kept``: its step is not known yet. ``noted``: its step has ended
            already, or the event is no end. ``seen``: it came before.
        """
        return await self._drive(receive(self._settings.tenant, event, self._settings.tools))

    async def follow_jobs(
        self,
        *,
        until: float | None = None,
        concurrency: int | None = None,
        on_end: Callable[[Outcome], Any] | None = None,
    ) -> int:
        """Look at jobs of parked sessions when they are due; return how many ended. Polls, never posts.

        Sessions that somebody holds are left to their holder. Several processes may do this at once.

        Args:
            until: UTC epoch seconds until which it goes on; it ends earlier once no job is left. None = only what is
                due now.
            concurrency: looks at once, in threads of a blocking runtime, in tasks of an async one; None = 16.
            on_end: hears of each job that ended, by a poll, a callback or another worker, or is gone, and whose code
                was not told: at least once, also across crashes, and once as a rule. What it raises ends this, and that
                end is told again; so it is 90 s after a process died in it.
        """
        return await following.follow_jobs_async(self._settings, self._until(until), self._looks(concurrency), on_end)
