"""The blocking session."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from agent_runtime._core import values
from agent_runtime._core.calls import reserve_many, run_call, run_reserved, work, work_afresh
from agent_runtime._core.effects import Job, ask
from agent_runtime._core.ending import finish
from agent_runtime._core.places import Taken
from agent_runtime._core.reissue import reissue
from agent_runtime._model import Outcome, SessionState, ToolResult
from agent_runtime._session.session_jobs import SessionJobs, settling
from agent_runtime._session.telling import notify_quietly
from agent_runtime._session.ways import Ways, following_of
from agent_runtime.config import defaults
from agent_runtime.errors import ArgumentsRefused, KeyConflict, UnknownTool, UnsettledStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from agent_runtime._core.desk import Call
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.job_progress import JobProgress
    from agent_runtime._core.places import Place
    from agent_runtime._session.runtime import Runtime
    from agent_runtime.config import AnyTool, SubjectToken

R = TypeVar("R")


class Session(SessionJobs):
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
        runtime: Runtime,
        input: Any = None,  # noqa: A002
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Session:
        """Make a new session; raises `SessionExists` if the alias stands. Settings as in ``Runtime.start``."""
        return runtime.start(alias, input=input, actor=actor, subject_token=subject_token, finish=finish)

    @classmethod
    def open(
        cls,
        alias: str,
        *,
        runtime: Runtime,
        input: Any = None,  # noqa: A002
        wait: float = defaults.SESSION_WAIT,
        actor: str | None = None,
        subject_token: SubjectToken | None = None,
        finish: bool = True,
    ) -> Session:
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
        runtime: Runtime,
        wait: float = defaults.SESSION_WAIT,
        subject_token: SubjectToken | None = None,
        reissue_failed: bool = False,
        finish: bool = True,
    ) -> Session:
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
    ) -> ToolResult[Any]: ...

    @overload
    def call(
        self, tool: AnyTool | str, args: object = None, *, detach: Literal[True], **ways: Unpack[Ways]
    ) -> Outcome: ...

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
    ) -> ToolResult[Any] | Outcome:
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
        taken = Taken()
        try:
            return self._told(self._run(call, taken), taken, allow_partial=allow_partial, detach=detach)
        except BaseException as error:
            self._cut(taken, error)
            raise

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
    ) -> Outcome:
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
            return self._as_outcome(error, tool)
        taken = Taken()
        try:
            return self._run(call, taken)
        except BaseException as error:
            self._cut(taken, error)
            if isinstance(error, KeyConflict | UnsettledStep):
                return self._as_outcome(error, tool)
            raise

    def call_many(self, calls: Sequence[tuple[AnyTool | str, object]], *, detach: bool = False) -> list[Outcome]:
        """Call several tools as the next steps: all recorded in one transaction; return the outcomes in order.

        One that cannot be made is ``not_started`` and takes no position, as with `try_call`; the others go on.
        ``detach``: the jobs that they start are left to themselves. Raises as `try_call`, for all of them.
        """
        prepared = self._prepare_many(calls, following_of(detach, None))
        wanted = [call for call in prepared if not isinstance(call, Outcome)]
        caller = threading.get_ident()
        held = [Taken() for _ in wanted]
        try:
            placed = [(call, self._place(call, caller, taken)) for call, taken in zip(wanted, held, strict=True)]
            places = self._drive(reserve_many(self._hold.desk, placed))
            made = iter([self._work_on(call, place) for call, place in zip(wanted, places, strict=True)])
            outcomes = [call if isinstance(call, Outcome) else next(made) for call in prepared]
            for taken in reversed(held):
                self._leave(taken)
            return outcomes  # noqa: TRY300  until it is returned, the code was told nothing
        except BaseException as error:
            for taken in reversed(held):
                self._cut(taken, error)
            raise

    def branch(self, name: str) -> Session:
        """Return a view of this session with a counter of its own; its labels begin with the branch's name."""
        return Session(self._hold, self._branch_name(name))

    def record(self, name: str, function: Callable[[], Any]) -> Any:
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
            text = values.text_of(function(), name)
            return self._drive(values.keep(desk, branch, name, index, text))
        except BaseException:
            desk.book.rewind_value(branch, name, before)
            raise

    def settle(self) -> list[Outcome]:
        """Settle what is unsettled by evidence, as far as it goes now, and return the outcomes; raises for none."""
        self._check_usable()
        outcomes = []
        for operation, label in self._unsettled():
            tool = self._hold.settings.tool(operation.tool)
            with self._locked(operation.id), self._warned():
                now = self._hold.desk.book.operations[operation.id]
                outcomes.append(
                    self._drive(work_afresh(self._hold.desk, tool, now, label, settling(now), delivers=False))
                )
        return outcomes

    def reissue(self, step: str, *, effect_possible: bool = False) -> ToolResult[Any]:
        """Issue a step again that failed with effect none: a second operation, under a key of its own.

        ``effect_possible`` accepts one of which a part may stand: you say then that a second effect is wanted.

        Raises:
            ConfigError: there is no such step, or it did not fail with effect none.
            StepError: as `call`.
        """
        self._check_open()
        tool = self._tool_of(step)
        operation = self._drive(reissue(self._hold.desk, tool, step, effect_possible=effect_possible))
        with self._locked(operation.id):
            outcome = self._drive(work(self._hold.desk, tool, operation, step))
        return self._result(outcome, Taken(), allow_partial=False)

    def authenticate(self, *, subject_token: SubjectToken, actor: str | None = None) -> None:
        """Bring new proof of the user for whom the session acts; a step that waits for it goes on by the same call.

        Nothing is sent by this itself: the call, `settle` or a resume goes on, under the key that the step has.

        Args:
            subject_token: the user's token, or a function that returns the current one; exchanged, never forwarded.
            actor: the user's name, where the session was opened without.

        Raises:
            ConfigError: the session acts for somebody else, or nobody said for whom.
        """
        self._bring(subject_token, actor)

    def finish(self) -> None:
        """End the session: it replays from now on. Raises `UnsettledStep` while a step of it is not settled."""
        self._check_usable()
        if self._hold.state is SessionState.OPEN:
            self._drive(finish(self._hold.desk, SessionState.FINISHED))
            self._hold.state = SessionState.FINISHED
        self.close()

    def close(self) -> None:
        """Release the lease; the session stays as it is. Safe to call twice."""
        lease = self._closing()
        if lease is not None:
            self._drive(ask(Job(lambda ledger: ledger.release(lease))))
            notify_quietly(self._hold.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._branch:  # a branch is no session: the end of its block ends nothing
            return
        if kind is None and self._can_finish():
            self.finish()
        else:
            self._close_quietly(raising=kind is not None)

    # -- doing ------------------------------------------------------------------------------------------------------

    def _run(self, call: Call, taken: Taken) -> Outcome:
        """Take one call to its outcome; whoever asks for it does what is to be done if that is cut short."""
        with self._locked(call.at):
            place = self._place(call, threading.get_ident(), taken)
            try:
                with self._locked(place.operation.id if place.operation is not None else None), self._warned():
                    return self._drive(run_call(self._hold.desk, call, place))
            finally:
                self._leave(taken)

    def _work_on(self, call: Call, place: Place) -> Outcome:
        with self._locked(place.operation.id if place.operation is not None else None), self._warned():
            return self._drive(run_reserved(self._hold.desk, call, place))

    def _drive(self, steps: Steps[R]) -> R:
        return self._hold.settings.driver.drive(steps, self._hold.lease, self.id)

    def _locked(self, name: str | None) -> AbstractContextManager[Any]:
        """Let one call at a time work on an operation or an address.

        What is returned is the lock itself: an interruption finds it taken and in a ``with`` block, or not taken.
        """
        if name is None:
            return nullcontext()
        with self._hold.guard:
            lock: AbstractContextManager[Any] = self._hold.locks.setdefault(name, threading.RLock())
        return lock

    def _close_quietly(self, *, raising: bool) -> None:
        """Release the lease without hiding the exception that ends the block."""
        try:
            self.close()
        except Exception:
            if not raising:
                raise
