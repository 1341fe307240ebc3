"""What a session can be asked about a step's job: how far it is, what failed in it, to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_runtime._core.calls import work, work_afresh
from agent_runtime._core.desk import WAITING, Following
from agent_runtime._core.handles import handle_of
from agent_runtime._core.job_requests import cancel, errors_of
from agent_runtime._model import State, Status
from agent_runtime._session.shared import SessionBase
from agent_runtime.config._checks import count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from agent_runtime._core.effects import Steps
    from agent_runtime._core.job_progress import JobProgress
    from agent_runtime._model import OperationRecord, Outcome

R = TypeVar("R")

CANCEL_PATIENCE: Final = 60.0
"""Seconds that the end of a job is waited for after it was asked to stop, whatever its bound."""


def settling(operation: OperationRecord) -> Following:
    """Return how settling follows a job: one that nobody waits for is looked at once."""
    detached = operation.state is State.ACCEPTED and handle_of(operation).detached
    return Following("once") if detached else WAITING


class _JobsBase(SessionBase):
    """What both kinds share. Strictly private."""

    def _look(self, step: str, following: Following, *, delivers: bool = True) -> Steps[Outcome]:
        tool, operation = self._recorded(step)
        return work_afresh(self._hold.desk, tool, operation, step, following, delivers=delivers)

    def _cancel(self, step: str) -> Steps[Outcome]:
        tool, operation = self._recorded(step)
        asked = yield from cancel(self._hold.desk, tool, operation, step)
        self._hold.desk.book.update(asked)
        following = Following("wait", patience=CANCEL_PATIENCE)
        return (yield from work(self._hold.desk, tool, asked, step, following))

    def _errors(self, step: str, limit: int) -> Steps[Any]:
        count("limit", limit)
        tool, operation = self._recorded(step)
        return errors_of(self._hold.desk, tool, operation, step, limit)


def _goes_on(outcome: Outcome, seen: list[JobProgress]) -> bool:
    """Whether another look is to be waited for: the job runs, and this round has looked at it."""
    runs = outcome.state is State.ACCEPTED and outcome.status is Status.PENDING
    return runs and len(seen) > 1


class SessionJobs(_JobsBase):
    """A step's job, for blocking code."""

    def _drive(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    def _locked(self, name: str | None) -> AbstractContextManager[None]:
        raise NotImplementedError

    def check(self, step: str) -> Outcome:
        """Look once at a step's job and return what is known of the step.

        A step that is settled is not asked about, nor a job before the moment until which its tool asked to be left
        alone; where it asked for nothing, not again within ``PollPolicy(first=)`` of the last look. ``resume_at`` says
        when the next look is due.
        """
        with self._locked(self._recorded(step)[1].id):
            return self._drive(self._look(step, Following("once")))

    def follow(self, step: str) -> Iterator[JobProgress]:
        """Follow a step's job, yielding what is known of it now and after each look, until it ends or its bound.

        The last item is ``done`` if it ended. The step's outcome is what `check` or the same call returns then.
        """
        ident, first = self._recorded(step)[1].id, True
        while True:
            seen: list[JobProgress] = []
            with self._locked(ident):
                outcome = self._drive(self._look(step, Following("next", seen.append), delivers=False))
            yield from seen if first else seen[1:]
            first = False
            if not _goes_on(outcome, seen):
                return

    def errors(self, step: str, *, limit: int = 50) -> Any:
        """Fetch what went wrong in a step that was done in part: the JSON value behind its errors URL.

        Raises:
            ConfigError: the step has no errors URL, or one on another origin.
            StepFailed, AuthError: it could not be fetched; nothing was changed.
        """
        return self._drive(self._errors(step, limit))

    def cancel(self, step: str) -> Outcome:
        """Cancel a step that was never sent, or ask its job to stop and wait for what becomes of it.

        Raises:
            ConfigError: it is settled or unknown, or its job cannot be asked to stop; nothing was sent.
        """
        with self._locked(self._recorded(step)[1].id):
            return self._drive(self._cancel(step))


class AsyncSessionJobs(_JobsBase):
    """A step's job, for asyncio."""

    async def _drive(self, steps: Steps[R]) -> R:
        raise NotImplementedError

    def _locked(self, name: str | None) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def check(self, step: str) -> Outcome:
        """Look once at a step's job and return what is known of the step.

        A step that is settled is not asked about, nor a job before the moment until which its tool asked to be left
        alone; where it asked for nothing, not again within ``PollPolicy(first=)`` of the last look. ``resume_at`` says
        when the next look is due.
        """
        async with self._locked(self._recorded(step)[1].id):
            return await self._drive(self._look(step, Following("once")))

    async def follow(self, step: str) -> AsyncIterator[JobProgress]:
        """Follow a step's job, yielding what is known of it now and after each look, until it ends or its bound.

        The last item is ``done`` if it ended. The step's outcome is what `check` or the same call returns then.
        """
        ident, first = self._recorded(step)[1].id, True
        while True:
            seen: list[JobProgress] = []
            async with self._locked(ident):
                outcome = await self._drive(self._look(step, Following("next", seen.append), delivers=False))
            for progress in seen if first else seen[1:]:
                yield progress
            first = False
            if not _goes_on(outcome, seen):
                return

    async def errors(self, step: str, *, limit: int = 50) -> Any:
        """Fetch what went wrong in a step that was done in part: the JSON value behind its errors URL.

        Raises:
            ConfigError: the step has no errors URL, or one on another origin.
            StepFailed, AuthError: it could not be fetched; nothing was changed.
        """
        return await self._drive(self._errors(step, limit))

    async def cancel(self, step: str) -> Outcome:
        """Cancel a step that was never sent, or ask its job to stop and wait for what becomes of it.

        Raises:
            ConfigError: it is settled or unknown, or its job cannot be asked to stop; nothing was sent.
        """
        async with self._locked(self._recorded(step)[1].id):
            return await self._drive(self._cancel(step))
