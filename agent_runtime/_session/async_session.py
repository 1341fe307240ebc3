"""The async session; the same words as the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload

from agent_runtime._core import values
from agent_runtime._core.calls import reserve_many, run_call, run_reserved, work, work_afresh
from agent_runtime._core.effects import Job, ask
from agent_runtime._core.ending import finish
from agent_runtime._core.places import Taken
from agent_runtime._core.reissue import reissue
from agent_runtime._core.reserving import refuse_unawaited
from agent_runtime._model import Outcome, SessionState, ToolResult
from agent_runtime._session.hold import dropped
from agent_runtime._session.session_jobs import AsyncSessionJobs, settling
from agent_runtime._session.shared import raised_or_all
from agent_runtime._session.telling import notify_quietly_async
from agent_runtime._session.ways import Ways, following_of
from agent_runtime.config import defaults
from agent_runtime.errors import ArgumentsRefused, KeyConflict, UnknownTool, UnsettledStep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from types import TracebackType

    from agent_runtime._core.desk import Call
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.job_progress import JobProgress
    from agent_runtime._core.places import Place
    from agent_runtime._session.opening import Opening
    from agent_runtime._session.runtime import AsyncRuntime
    from agent_runtime.config import AnyTool, SubjectToken

R = TypeVar("R")
Awaited: TypeAlias = "Coroutine[Any, Any, R]"


class AsyncSession(AsyncSessionJobs):
    """One plan's life: calls of tools as durable, named steps.

    As a context manager it finishes the session if the block ends normally with nothing unsettled, unless it was opened
    with ``finish=False``; by an exception it stays open, and its lease is released. Calls by counter are numbered in
    their order; `branch` gives parallel work counters of its own, ``at=`` names a position from outside.
    """

    @classmethod
    def start(
        cls,
        alias: str | None = None,
        *,
        runtime: AsyncRuntime,
        input: Any = None,  # noqa: A002
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Opening:
        """Make a new session; raises `SessionExists` if the alias stands. Settings as in ``Runtime.start``."""
        return runtime.start(alias, input=input, actor=actor, subject_token=subject_token, finish=finish)

    @classmethod
    def open(
        cls,
        alias: str,
        *,
        runtime: AsyncRuntime,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Opening:
        """Start the session of this alias, or resume it; sends nothing. Settings as in ``Runtime.open``.

        Raises:
            InputChanged: it was opened with another ``input``.
            SessionBusy: another worker held it for longer than ``wait`` seconds.
        """
        return runtime.open(alias, input=input, wait=wait, actor=actor, subject_token=subject_token, finish=finish)

    @classmethod
    def resume(
        cls,
        name: str,
        *,
        runtime: AsyncRuntime,
        wait: float = defaults.SESSION_WAIT,
        subject_token: SubjectToken | None = None,
        reissue_failed: bool = False,
        finish: bool = True,
    ) -> Opening:
        """Resume a session by id or alias; claims and loads, sends nothing.

        ``reissue_failed``: a step that failed with effect none is issued again when a call reaches it.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: another worker held it for longer than ``wait`` seconds.
        """
        return runtime.resume(
            name, wait=wait, subject_token=subject_token, reissue_failed=reissue_failed, finish=finish
        )

    @overload
    def call(
        self, tool: AnyTool | str, args: object = None, *, detach: Literal[False] = False, **ways: Unpack[Ways]
    ) -> Coroutine[Any, Any, ToolResult[Any]]: ...

    @overload
    def call(
        self, tool: AnyTool | str, args: object = None, *, detach: Literal[True], **ways: Unpack[Ways]
    ) -> Coroutine[Any, Any, Outcome]: ...

    def call(
        self,
        tool: AnyTool | str,
        args: object = None,
        *,
        at: str | None = None,
        key: str | None = None,
        expires_at: float | None = None,
        after_unknown: str | None = None,
        allow_partial: bool = False,
        detach: bool = False,
        on_progress: Callable[[JobProgress], Any] | None = None,
    ) -> Coroutine[Any, Any, ToolResult[Any] | Outcome]:
        """Call a tool as the next step and return its result; a recorded step returns at once, without a request.

        Args:
            tool: a registered tool, or its name.
            args: a dict or a pydantic model.
            at: external position, free text that is unique in the session.
            key: the caller's own idempotency key, unique for one tenant at one target.
            expires_at: UTC epoch seconds after which no attempt begins.
            after_unknown: ``continue`` lets this call go on past another tool's unsettled step.
            allow_partial: return a result with errors in it instead of raising `PartialResult`.
            detach: leave a job to itself once it is started, and return the `Outcome`: ``pending``, with its id. It is
                done only where the tool answered with its result at once.
            on_progress: hears of each look at a job that the tool runs.

        Raises:
            StepError: what is known of the step; `StepFailed`, `StepUnknown`, `StepPending` and others.
            ConfigError: a call that cannot work; nothing was written or sent.
            SessionError, LedgerError, AuthError: see `agent_runtime.errors`.
        """
        following = following_of(detach, on_progress)
        call = self._prepare(tool, args, at, key, expires_at, after_unknown, following)
        return self._begin(call, lambda *held: self._result_of(call, *held, allow_partial=allow_partial, detach=detach))

    def try_call(
        self,
        tool: AnyTool | str,
        args: object = None,
        *,
        at: str | None = None,
        key: str | None = None,
        expires_at: float | None = None,
        after_unknown: str | None = None,
        detach: bool = False,
        on_progress: Callable[[JobProgress], Any] | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool as the next step and return what is known of it, whatever that is.

        What a model can get wrong is an outcome too: an unknown name or refused args are ``not_started`` with reason
        ``refused_input``, and take no position.

        Args as in `call`, and ``detach``: a job is started and left to itself at once. It blocks nothing; `check` looks
        at it, ``runtime.jobs()`` lists it.

        Raises:
            ConfigError: ``at``, ``key``, ``expires_at`` or ``after_unknown`` that cannot work.
            ConcurrentCall: another call by counter is out on this branch.
            NotRecorded: the tool answered, and the ledger could not take it.
            SessionError, LedgerError: the session is closed, finished or lost; the ledger cannot be used.
        """
        try:
            following = following_of(detach, on_progress)
            call = self._prepare(tool, args, at, key, expires_at, after_unknown, following)
        except (ArgumentsRefused, UnknownTool) as error:
            return _known(self._as_outcome(error, tool))
        return self._begin(call, lambda *held: self._outcome(call, *held))

    async def call_many(self, calls: Sequence[tuple[AnyTool | str, object]], *, detach: bool = False) -> list[Outcome]:
        """Call several tools as the next steps: all recorded in one transaction; return the outcomes in order.

        One that cannot be made is ``not_started`` and takes no position, as with `try_call`; the others go on.
        ``detach``: the jobs that they start are left to themselves. Raises as `try_call`, for all of them.
        """
        prepared = self._prepare_many(calls, following_of(detach, None))
        wanted = [call for call in prepared if not isinstance(call, Outcome)]
        caller = asyncio.current_task()
        held = [Taken() for _ in wanted]
        try:
            placed = [(call, self._place(call, caller, taken)) for call, taken in zip(wanted, held, strict=True)]
            places = await self._drive(reserve_many(self._hold.desk, placed))
            works = (self._work_on(call, place) for call, place in zip(wanted, places, strict=True))
            made = iter(raised_or_all(await asyncio.gather(*works, return_exceptions=True)))
            outcomes = [call if isinstance(call, Outcome) else next(made) for call in prepared]
            for taken in reversed(held):
                self._leave(taken)
            return outcomes  # noqa: TRY300  until it is returned, the code was told nothing
        except BaseException as error:
            for taken in reversed(held):
                self._cut(taken, error)
            raise

    def branch(self, name: str) -> AsyncSession:
        """Return a view of this session with a counter of its own; its labels begin with the branch's name."""
        return AsyncSession(self._hold, self._branch_name(name))

    async def record(self, name: str, function: Callable[[], Any | Awaitable[Any]]) -> Any:
        """Return a value that the code does not get from a tool: made and kept the first time, replayed from then on.

        The value is what its JSON form reads as. Counted by name within a branch, so it may stand in a loop.
        """
        self._check_usable()
        branch, desk = self._branch_here(), self._hold.desk
        before = desk.book.value_counts.get((branch, name), 0)
        try:
            with self._hold.guard:
                index = desk.book.next_value(branch, name)
            known = values.stored(desk, branch, name, index)
            if known is not None:
                return values.read(known)
            self._check_open()
            value = function()
            text = values.text_of(await value if inspect.isawaitable(value) else value, name)
            return await self._drive(values.keep(desk, branch, name, index, text))
        except BaseException:
            desk.book.rewind_value(branch, name, before)
            raise

    async def settle(self) -> list[Outcome]:
        """Settle what is unsettled by evidence, as far as it goes now, and return the outcomes; raises for none."""
        self._check_usable()
        outcomes = []
        for operation, label in self._unsettled():
            tool = self._hold.settings.tool(operation.tool)
            async with self._locked(operation.id):
                with self._warned():
                    now = self._hold.desk.book.operations[operation.id]
                    outcomes.append(
                        await self._drive(work_afresh(self._hold.desk, tool, now, label, settling(now), delivers=False))
                    )
        return outcomes

    async def reissue(self, step: str, *, effect_possible: bool = False) -> ToolResult[Any]:
        """Issue a step again that failed with effect none: a second operation, under a key of its own.

        ``effect_possible`` accepts one of which a part may stand: you say then that a second effect is wanted.

        Raises:
            ConfigError: there is no such step, or it did not fail with effect none.
            StepError: as `call`.
        """
        self._check_open()
        tool = self._tool_of(step)
        operation = await self._drive(reissue(self._hold.desk, tool, step, effect_possible=effect_possible))
        async with self._locked(operation.id):
            outcome = await self._drive(work(self._hold.desk, tool, operation, step))
        return self._result(outcome, Taken(), allow_partial=False)

    async def authenticate(self, *, subject_token: SubjectToken, actor: str | None = None) -> None:
        """Bring new proof of the user for whom the session acts; a step that waits for it goes on by the same call.

        Nothing is sent by this itself: the call, `settle` or a resume goes on, under the key that the step has.

        Args:
            subject_token: the user's token, or a function that returns the current one; exchanged, never forwarded.
            actor: the user's name, where the session was opened without.

        Raises:
            ConfigError: the session acts for somebody else, or nobody said for whom.
        """
        self._bring(subject_token, actor)

    async def finish(self) -> None:
        """End the session: it replays from now on. Raises `UnsettledStep` while a step of it is not settled."""
        self._check_usable()
        if self._hold.state is SessionState.OPEN:
            await self._record_unawaited()
            await self._drive(finish(self._hold.desk, SessionState.FINISHED))
            self._hold.state = SessionState.FINISHED
        await self.close()

    async def close(self) -> None:
        """Release the lease; the session stays as it is. Safe to call twice."""
        await self._record_unawaited()
        lease = self._closing()
        if lease is not None:
            await self._drive(ask(Job(lambda ledger: ledger.release(lease))))
            await notify_quietly_async(self._hold.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._branch:  # a branch is no session: the end of its block ends nothing
            return
        if kind is None and self._can_finish():
            await self.finish()
        else:
            await self._close_quietly(raising=kind is not None)

    # -- doing ------------------------------------------------------------------------------------------------------

    def _begin(
        self, call: Call, work: Callable[[Taken, Place | None], Coroutine[Any, Any, R]]
    ) -> Coroutine[Any, Any, R]:
        """Take the position now, at the moment of the call; dropped before it is awaited, it stands in nobody's way."""
        taken, place, made = Taken(), None, None
        try:
            if call.at is None:
                place = self._place(call, asyncio.current_task(), taken)
                self._hold.unstarted[place.label] = (call, place)
            made = work(taken, place)
            if place is not None:
                weakref.finalize(made, dropped, self._hold, place).atexit = False
            return made  # noqa: TRY300  until it is returned, nobody can await it
        except BaseException as error:
            self._cut(taken, error)
            if made is not None:
                made.close()
            raise

    async def _result_of(
        self, call: Call, taken: Taken, placed: Place | None, *, allow_partial: bool, detach: bool
    ) -> ToolResult[Any] | Outcome:
        try:
            return self._told(await self._run(call, taken, placed), taken, allow_partial=allow_partial, detach=detach)
        except BaseException as error:
            self._cut(taken, error)
            raise

    async def _outcome(self, call: Call, taken: Taken, placed: Place | None) -> Outcome:
        try:
            return await self._run(call, taken, placed)
        except BaseException as error:
            self._cut(taken, error)
            if isinstance(error, KeyConflict | UnsettledStep):
                return self._as_outcome(error, call.tool)
            raise

    async def _run(self, call: Call, taken: Taken, placed: Place | None) -> Outcome:
        """Take one call to its outcome; whoever asks for it does what is to be done if that is cut short."""
        async with self._locked(call.at):
            place = placed if placed is not None else self._place(call, asyncio.current_task(), taken)
            self._hold.unstarted.pop(place.label, None)
            try:
                async with self._locked(place.operation.id if place.operation is not None else None):
                    with self._warned():
                        return await self._drive(run_call(self._hold.desk, call, place))
            finally:
                self._leave(taken)

    async def _work_on(self, call: Call, place: Place) -> Outcome:
        async with self._locked(place.operation.id if place.operation is not None else None):
            with self._warned():
                return await self._drive(run_reserved(self._hold.desk, call, place))

    async def _drive(self, steps: Steps[R]) -> R:
        return await self._hold.settings.async_driver.drive(steps, self._hold.lease, self.id)

    @asynccontextmanager
    async def _locked(self, name: str | None) -> AsyncIterator[None]:
        """Let one call at a time work on an operation or an address."""
        if name is None:
            yield
            return
        async with self._hold.locks.setdefault(name, asyncio.Lock()):
            yield

    async def _record_unawaited(self) -> None:
        """Record calls that were made and never awaited as not started; Python itself warns of them."""
        if self._hold.closed or self._hold.lease is None or self._hold.lease.lost:
            return
        left = list(self._hold.unstarted.values())
        self._hold.unstarted.clear()
        await self._drive(refuse_unawaited(self._hold.desk, left))

    async def _close_quietly(self, *, raising: bool) -> None:
        """Release the lease without hiding the exception that ends the block."""
        try:
            await self.close()
        except Exception:
            if not raising:
                raise


async def _known(outcome: Outcome) -> Outcome:
    return outcome
