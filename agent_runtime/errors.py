"""Everything that agent_runtime raises, in one tree.

* AgentRuntimeError
    * ConfigError                a setting, a tool or a call that cannot work; raised before anything is written or sent
        * ArgumentsRefused       arguments that the tool's schema or canonical JSON cannot take
        * UnknownTool            a name that was not registered
    * StepError                  about one step; carries ``.outcome``
        * StepFailed             the effect is known not to stand, or stands in part (``effect``)
        * StepUnknown            nobody can know yet whether the effect stands
        * StepPending            a job runs, or the step waits (``kind``)
        * PartialResult          done, with errors in it
        * ResultInvalid          done, but the result cannot be used
        * UnsettledStep          not started: an earlier step of the branch is not settled
        * PlanDiverged           not started: the ledger has another call at this position
        * KeyConflict            the key stands for another payload or another operation
        * ConcurrentCall         not started: another call by counter is out on this branch
        * StepCancelled          the operation was cancelled before it was sent
        * NotRecorded            the tool answered, the ledger could not take it; carries ``.answer``
    * SessionError
        * SessionBusy            another owner holds the lease
        * SessionExists          the alias is taken
        * SessionNotFound        no such session
        * SessionClosed          closed here, or its runtime was; it stands in the ledger and can be resumed
        * SessionFinished        it replays, it takes no new call
        * InputChanged           opened again with another input
        * LeaseLost              another worker took the session over
        * SessionInherited       used in a process that was forked after it was opened
    * LedgerError
        * LedgerUnavailable      no connection to the database
        * LedgerReadOnly         the database cannot be written
        * LedgerFull             no room
        * LedgerCorrupt          the file is damaged, or is no ledger
        * LedgerLost             the file was replaced or removed while in use
        * LedgerTooNew           written by a newer release
        * LedgerInherited        used in a process that was forked after it was opened
        * CommitUnknown          the commit was sent, its answer never came
        * EntryRefused           one entry that the database cannot hold
    * AuthError
        * AuthorisationRequired  a person or the application must give new proof
        * TokenRefused           the authorisation server said no
        * TokenUnavailable       the authorisation server could not be reached
    * NotApplied                 raised BY a function tool: the effect certainly did not happen

Ids are attributes (``session_id``, ``step``, ``key``, ``operation_id``); every error pickles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Outcome


class AgentRuntimeError(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str, **ids: Any) -> None:
        super().__init__(message)
        self.message = message
        self._ids = ids
        self.__dict__.update(ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self._ids))


def _rebuild(cls: type[AgentRuntimeError], message: str, ids: dict[str, Any]) -> AgentRuntimeError:
    return cls(message, **ids)


class ConfigError(AgentRuntimeError):
    """A setting, a tool or a call that cannot work; nothing was written or sent."""


class ArgumentsRefused(ConfigError):
    """Arguments that the tool's schema or canonical JSON cannot take; nothing was written or sent.

    Attributes:
        path: where in the arguments, as ``$.a[0]``; empty if it concerns the whole.
    """

    path: str = ""


class UnknownTool(ConfigError):
    """A tool name that was not registered with the runtime; nothing was written or sent."""


class StepError(AgentRuntimeError):
    """About one step of a session.

    Attributes:
        outcome: what is known of the step (`Outcome`), or None where no step was made.
        session_id, step, key, operation_id: ids; None where they do not exist yet.
    """

    outcome: Outcome | None = None
    session_id: str | None = None
    step: str | None = None
    key: str | None = None
    operation_id: str | None = None


class StepFailed(StepError):
    """The step failed; ``effect`` says whether something of it may stand (``none`` or ``possible``)."""

    effect: str = "none"


class StepUnknown(StepError):
    """Nobody can know yet whether the effect stands: do NOT call again under another key.

    Call the same step again or `Session.settle()`: both settle it by evidence under the same key. Where the tool
    honours no key and has no look-up, look at the target yourself and say what you saw with ``runtime.decide()``.
    """


class StepPending(StepError):
    """The step is not finished: a job runs, or the step waits.

    Attributes:
        kind: ``job``, ``parked``, ``approval`` or ``auth``.
        resume_at: UTC epoch seconds before which nothing should be sent, or None.
    """

    kind: str = "job"
    resume_at: float | None = None


class PartialResult(StepError):
    """The step is done, with errors in it; ``outcome.value`` holds what was done."""


class ResultInvalid(StepError):
    """The effect stands, but its result cannot be used; the step is never sent again.

    Attributes:
        result_state: ``invalid``, ``missing`` or ``unreadable``.
        raw: the bytes that came, cut at the body limit.
    """

    result_state: str = "invalid"
    raw: bytes = b""


class UnsettledStep(StepError):
    """Not started: an earlier operation is unsettled; nothing was sent.

    Attributes:
        blocking: label of the unsettled step.
        blocking_session: id of the session that holds it.
    """

    blocking: str | None = None
    blocking_session: str | None = None


class PlanDiverged(StepError):
    """Not started: the ledger has another tool or other arguments at this position; nothing was sent."""


class KeyConflict(StepError):
    """The key stands for another payload or another operation; a new key is never made by itself."""


class ConcurrentCall(StepError):
    """Not started: another call by counter is out on this branch; use ``call_many``, ``branch()`` or ``at=``."""


class StepCancelled(StepError):
    """The operation was cancelled before anything was sent."""


class NotRecorded(StepError):
    """The tool answered and the ledger could not take the answer; a resume settles the step.

    Attributes:
        answer: what the tool answered (`Answer`).
    """

    answer: Answer | None = None


class SessionError(AgentRuntimeError):
    """About a session as a whole."""

    session_id: str | None = None


class SessionBusy(SessionError):
    """Another owner holds the session's lease; it is free when that owner ends or its lease runs out."""


class SessionExists(SessionError):
    """The alias is taken; ``runtime.open`` or ``runtime.resume`` take it up."""


class SessionNotFound(SessionError):
    """No session with this id or alias stands in this ledger."""


class SessionClosed(SessionError):
    """This session object was closed, or its runtime was; the session itself is unhurt and can be resumed."""


class SessionFinished(SessionError):
    """The session is finished: it replays what is recorded and takes no new call."""


class InputChanged(SessionError):
    """The alias was opened before with another ``input``; nothing was written."""


class LeaseLost(SessionError):
    """Another worker took the session over; this object begins no attempt and changes no state any more."""


class SessionInherited(SessionError):
    """The process was forked after the session was opened; open it anew in the child."""


class LedgerError(AgentRuntimeError):
    """About the database that holds the ledger."""


class LedgerUnavailable(LedgerError):
    """The database cannot be reached; nothing was sent."""


class LedgerReadOnly(LedgerError):
    """The database cannot be written; nothing was sent."""


class LedgerFull(LedgerError):
    """The database has no room; nothing was sent."""


class LedgerCorrupt(LedgerError):
    """The file is damaged, or is no ledger of this package; nothing was sent."""


class LedgerLost(LedgerError):
    """The database file was replaced or removed while it was in use."""


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer release than this one; upgrade the package."""


class LedgerInherited(LedgerError):
    """The process was forked after the ledger was opened; open another one in the child."""


class CommitUnknown(LedgerError):
    """The commit was sent and its answer never came; reading back tells whether it took."""


class EntryRefused(LedgerError):
    """One entry that the database cannot hold; entries beside it are not touched."""


class AuthError(AgentRuntimeError):
    """About tokens and credentials; no text of it holds a secret."""

    session_id: str | None = None
    step: str | None = None


class AuthorisationRequired(AuthError):
    """A person or the application must give new proof before the step can be sent."""


class TokenRefused(AuthError):
    """The authorisation server refused the token request; asking again would not help.

    Attributes:
        error: the server's ``error`` member (RFC 6749 section 5.2), or None.
        status: its HTTP status, or None.
    """

    error: str | None = None
    status: int | None = None


class TokenUnavailable(AuthError):
    """The authorisation server could not be reached, or answered that it cannot serve now."""

    retry_after: float | None = None


class NotApplied(AgentRuntimeError):
    """Raised by a function tool to say that its effect certainly did not happen.

    Attributes:
        retry_after: seconds after which the same call may work, or None for a plain refusal.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, **ids: Any) -> None:
        super().__init__(message, retry_after=retry_after, **ids)
        self.retry_after = retry_after
