"""What blocking and async sessions share: everything that does not wait."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agent_runtime._core.desk import WAITING, Call, Following
from agent_runtime._core.outcomes import error_of, result_of
from agent_runtime._core.places import Place, Taken
from agent_runtime._core.requests import carrier_of, freeze, validate
from agent_runtime._drive.context import current
from agent_runtime._drive.tokens import principal_of
from agent_runtime._model import Outcome, SessionState, Status, ToolResult
from agent_runtime._model.key_formats import check_key
from agent_runtime._model.naming import check_address, check_name, make_label
from agent_runtime._session.hold import HELD, check_subject_token, check_text
from agent_runtime._session.settings import check_after_unknown
from agent_runtime._session.table import StepTable, step_table
from agent_runtime.config import FunctionTool
from agent_runtime.errors import (
    ArgumentsRefused,
    ConcurrentCall,
    ConfigError,
    KeyConflict,
    LeaseLost,
    LedgerError,
    SessionClosed,
    SessionFinished,
    SessionInherited,
    StepError,
    UnknownTool,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from agent_runtime._core.desk import Report
    from agent_runtime._model import OperationRecord
    from agent_runtime._session.hold import Hold
    from agent_runtime.config import AnyTool, SubjectToken
    from agent_runtime.ledger import Lease

R = TypeVar("R")

logger: Final = logging.getLogger("agent_runtime")


class SessionBase:
    """What does not wait: checking a call, placing it, telling its outcome. Strictly private."""

    def __init__(self, held: Hold, branch: str = "") -> None:
        self._hold = held
        self._branch = branch

    def __repr__(self) -> str:
        name = f" {self._hold.alias!r}" if self._hold.alias is not None else ""
        where = f" branch {self._branch!r}" if self._branch else ""
        return f"<{type(self).__name__}{name} {self.id}{where}>"

    @property
    def id(self) -> str:
        """The session's random id; what keys are made over."""
        return self._hold.desk.session_id

    @property
    def alias(self) -> str | None:
        """The caller's name for the session, or None."""
        return self._hold.alias

    @property
    def report(self) -> Report:
        """What this object's calls did: replayed, sent, resent, settled, still unknown, not reached."""
        report = self._hold.desk.report
        report.not_reached = self._hold.desk.book.not_reached()
        return report

    def steps(self) -> StepTable:
        """Return the recorded steps in order; prints as a table."""
        return step_table(self._hold.desk.book, self._hold.settings)

    def explain(self) -> StepTable:
        """Return the recorded steps with what a resume would do about each; asks nobody."""
        return self.steps()

    # -- one call ---------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """Raise unless something new may be written."""
        self._check_usable()
        if self._hold.state is not SessionState.OPEN:
            raise self._ended(None)

    def _ended(self, step: str | None) -> SessionFinished:
        msg = (
            f"session {self.id} is {self._hold.state}: it replays what is recorded and takes no new call. Nothing was "
            "sent. Start a new session; one that goes on from message to message is opened with finish=False"
        )
        return SessionFinished(msg, session_id=self.id, step=step)

    def _check_usable(self) -> None:
        held = self._hold
        if held.pid != os.getpid():
            msg = f"session {self.id} was opened before this process was forked. Nothing was sent. Open it anew here"
            raise SessionInherited(msg, session_id=self.id)
        if held.closed and held.state is SessionState.OPEN:
            msg = f"session {self.id} is closed. Nothing was sent. Open it anew: runtime.resume({self.id!r})"
            raise SessionClosed(msg, session_id=self.id)
        if held.settings.closed:
            msg = (
                f"session {self.id}: its runtime was closed. Nothing was sent. Open it anew with another runtime: "
                f"runtime.resume({self.id!r})"
            )
            raise SessionClosed(msg, session_id=self.id)
        if held.lease is not None and held.lease.lost:
            msg = (
                f"session {self.id}: another worker took it over. Nothing was sent. Go on: runtime.resume({self.id!r})"
            )
            raise LeaseLost(msg, session_id=self.id)

    def _prepare(  # noqa: PLR0917  what a call brings, in the order of `call`
        self,
        tool: AnyTool | str,
        args: object,
        at: str | None,
        key: str | None,
        expires_at: float | None,
        after_unknown: str | None,
        following: Following = WAITING,
    ) -> Call:
        """Check a call and freeze its request; nothing is written, and no position is taken."""
        self._check_usable()
        settings = self._hold.settings
        known = settings.tool(tool)
        if isinstance(known, FunctionTool) and known.is_async and not settings.is_async:
            msg = f"tool {known.name!r} is async and needs an AsyncSession; nothing was called"
            raise ConfigError(msg)
        self._check_ways(known, at, key, expires_at, after_unknown)
        if known.sensitive and settings.key_secret is None:
            msg = f"tool {known.name!r} is sensitive: its keys need Runtime(key_secret=...); nothing was sent"
            raise ConfigError(msg)
        validated = validate(known, args)
        fills = {} if isinstance(known, FunctionTool) else settings.fills(known)
        return Call(
            tool=known,
            validated=validated,
            frozen=freeze(known, validated, fills),
            principal=principal_of(known, settings.world.auth, self._hold.desk.subject.name),
            branch=self._branch_here(),
            at=at,
            business_key=key,
            expires_at=expires_at,
            goes_on=(after_unknown or self._hold.after_unknown) == "continue",
            following=following,
        )

    def _prepare_many(
        self, calls: Sequence[tuple[AnyTool | str, object]], following: Following
    ) -> list[Call | Outcome]:
        """Check several calls; one whose name or args are refused becomes its outcome, and takes no position."""
        prepared: list[Call | Outcome] = []
        for tool, args in calls:
            try:
                prepared.append(self._prepare(tool, args, None, None, None, None, following))
            except (ArgumentsRefused, UnknownTool) as error:
                prepared.append(self._as_outcome(error, tool))
        return prepared

    def _check_ways(
        self, tool: AnyTool, at: str | None, key: str | None, expires_at: float | None, after_unknown: str | None
    ) -> None:
        """Refuse what a call cannot be given, before a position is taken."""
        make_label(self._branch_here(), 1)
        if at is not None:
            check_address(check_text("at", at))
        if key is not None:
            carrier = carrier_of(tool)
            check_key(check_text("key", key), max_length=carrier.max_length, pattern=carrier.pattern)
        if after_unknown is not None:
            check_after_unknown(after_unknown)
        number = isinstance(expires_at, int | float) and not isinstance(expires_at, bool) and math.isfinite(expires_at)
        if expires_at is not None and not number:
            msg = f"expires_at must be a finite number of UTC epoch seconds, not {expires_at!r}; nothing was sent"
            raise ConfigError(msg)

    def _branch_here(self) -> str:
        """Return the branch of a call: inside a function tool of this session it is the child branch of its step."""
        step = current.get()
        if step is None or step.session_id != self.id:
            return self._branch
        return f"{step.step}.{self._branch}" if self._branch else step.step

    def _place(self, call: Call, caller: Hashable, taken: Taken) -> Place:
        """Take the position of a call and note it in ``taken``, or take nothing, whatever ends it."""
        held = self._hold
        book = held.desk.book
        with held.guard:
            if call.at is None and book.is_crossed(call.branch, caller):
                msg = (
                    f"session {self.id}: another call is out on this branch, so a call by counter would cross "
                    "it. Nothing was sent. Use call_many(), a branch() for each, or at="
                )
                raise ConcurrentCall(msg, session_id=self.id)
            mark = book.mark(call.branch)
            try:
                place = book.place(call.ask())
                self._check_takes(place)
                if call.at is None:
                    book.enter(call.branch, caller, place.label)
                taken.label = place.label
                taken.place = place
            except BaseException:
                book.rewind(mark)
                taken.label, taken.place = "", None
                raise
        return place

    def _check_takes(self, place: Place) -> None:
        """Raise if the session takes nothing at a place."""
        if self._hold.state is not SessionState.OPEN and place.kind in {"new", "join", "refuse", "settle"}:
            raise self._ended(place.label)
        if self._hold.desk.book.is_torn(place):
            msg = (
                f"session {self.id}: an earlier call of this branch could not be recorded while later ones were "
                "out, so a new one would not be found again. Nothing was sent. Open the session anew"
            )
            raise LedgerError(msg, session_id=self.id, step=place.label)

    def _leave(self, taken: Taken) -> None:
        """Note that a call is over, and give back a position of which no row was written; at the end or cut short."""
        with self._hold.guard:
            place = taken.place
            if place is None:
                return
            try:
                self._let_go(place)
            except BaseException:
                self._let_go(place)  # under the same guard: nobody took in between what is given back
                raise
            finally:
                taken.place = None

    def _let_go(self, place: Place) -> None:
        """Give back what a call holds; doing it again changes nothing."""
        book, desk = self._hold.desk.book, self._hold.desk
        book.leave(place.branch, place.label)
        book.ended(place.label)
        step = book.step(place.label)
        recorded = step is not None and step is not place.step
        if place.is_fresh and not recorded and place.label not in desk.keyed:
            book.give_back(place)

    def _cut(self, taken: Taken, error: BaseException) -> None:
        """Put right what a call leaves that ends by an error, unless the error is what the code is told.

        What is recorded of it stays: an equal call goes on with that, and makes no second effect.
        """
        try:
            self._hold.unstarted.pop(taken.label, None)
            if error is not taken.told:
                self._hold.desk.book.not_told(taken.label)
        finally:
            self._leave(taken)

    def _bring(self, subject_token: SubjectToken, actor: str | None) -> None:
        """Take new proof of the session's subject."""
        self._check_usable()
        subject = self._hold.desk.subject
        if subject.name is not None and actor not in {None, subject.name}:
            msg = f"session {self.id} acts for {subject.name!r}, not for {actor!r}. Nothing was sent"
            raise ConfigError(msg, session_id=self.id)
        name = subject.name if subject.name is not None else actor
        check_subject_token(subject_token, name)
        subject.name, subject.token = name, subject_token

    def _told(self, outcome: Outcome, taken: Taken, *, allow_partial: bool, detach: bool) -> ToolResult[Any] | Outcome:
        """Return the result of an outcome, or raise; of a call that detaches its job return the outcome itself."""
        if detach and outcome.kind == "job":  # that it runs is what was asked for
            return outcome
        result = self._result(outcome, taken, allow_partial=allow_partial)
        return outcome if detach else result

    def _result(self, outcome: Outcome, taken: Taken, *, allow_partial: bool) -> ToolResult[Any]:
        """Return the result of an outcome, or raise the error that says what it says."""
        taken.told = error = error_of(outcome, allow_partial=allow_partial, now=self._hold.settings.world.ledger.now())
        if error is not None:
            raise error
        return result_of(outcome)

    def _as_outcome(self, error: StepError | ArgumentsRefused | UnknownTool, tool: AnyTool | str) -> Outcome:
        """Return the outcome for a name or args that are refused, or a caller's own key that cannot be used."""
        name = tool if isinstance(tool, str) else getattr(tool, "name", repr(tool))
        if isinstance(error, ArgumentsRefused | UnknownTool):
            return Outcome(
                status=Status.NOT_STARTED,
                step="",
                tool=name,
                session_id=self.id,
                reason="refused_input",
                message=error.message,
                words=self._hold.settings.words,
            )
        return Outcome(
            status=Status.NOT_STARTED,
            step=error.step or "",
            tool=name,
            session_id=self.id,
            key=error.key,
            operation_id=error.operation_id,
            reason="key_conflict" if isinstance(error, KeyConflict) else "unsettled",
            message=error.message,
            words=self._hold.settings.words,
        )

    def _recorded(self, label: str) -> tuple[AnyTool, OperationRecord]:
        """Return tool and operation of a recorded step, or raise `ConfigError`."""
        self._check_usable()
        tool = self._tool_of(label)
        step = self._hold.desk.book.step(label)
        operation = None if step is None else self._hold.desk.book.operation_of(step)
        if operation is None:
            msg = f"session {self.id}: step {label} was not started, so there is nothing to ask about"
            raise ConfigError(msg, session_id=self.id, step=label)
        return tool, operation

    def _unsettled(self) -> list[tuple[OperationRecord, str]]:
        """Return unsettled operations, each with the label of the last step that points to it."""
        book = self._hold.desk.book
        labels = {step.operation_id: step.label for step in book.steps() if step.operation_id is not None}
        return [(operation, labels.get(operation.id, operation.label)) for operation in book.unsettled()]

    def _tool_of(self, label: str) -> AnyTool:
        """Return the tool of a recorded step, or raise `ConfigError`."""
        step = self._hold.desk.book.step(label)
        if step is None:
            msg = f"session {self.id} has no step {label!r}; print(session.steps()) lists them"
            raise ConfigError(msg, session_id=self.id)
        return self._hold.settings.tool(step.tool)

    def _can_finish(self) -> bool:
        """Whether the end of a block ends the session: it is open and ours, and nothing in it is unsettled."""
        held = self._hold
        ours = held.lease is not None and not held.lease.lost and not held.closed and not held.settings.closed
        return held.finishes and ours and held.state is SessionState.OPEN and not held.desk.book.unsettled()

    def _closing(self) -> Lease | None:
        """Mark the session object closed and return the lease to give back, if there is one."""
        held = self._hold
        with held.guard:
            lease = None if held.closed or held.pid != os.getpid() else held.lease
            held.closed = True
        if held.token is not None:
            HELD.pop(held.token, None)
        return lease

    def _branch_name(self, name: str) -> str:
        check_name("branch", check_text("a branch's name", name))
        return f"{self._branch}.{name}" if self._branch else name

    @contextlib.contextmanager
    def _warned(self) -> Iterator[None]:
        """Log one WARNING for each step that was sent again, whichever thread's call comes to it first."""
        held = self._hold
        try:
            yield
        finally:
            with held.guard:
                labels = held.desk.report.resent[held.warned :]
                held.warned += len(labels)
            for label in labels:
                logger.warning("session %s: step %s was sent again under the same key", self.id, label)


def raised_or_all(results: Sequence[R | BaseException]) -> list[R]:
    """Return the results of works that have all ended, or raise the first error among them."""
    done: list[R] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        done.append(result)
    return done
