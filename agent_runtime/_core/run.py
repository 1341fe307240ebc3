"""One process's try at one operation, and the moves that every protocol shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime._core.backoff import LONGEST_WAIT, wait_before_retry
from agent_runtime._core.effects import Acquire, Credential, NewId, NoCredential, Now, Persist, Random, Sleep, ask
from agent_runtime._core.results import ascii_json
from agent_runtime._core.states import check
from agent_runtime._model import Advance, Change, File, Reason, State, Took
from agent_runtime.errors import EntryRefused, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.desk import FollowMode
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import Subject
    from agent_runtime._model import NewAttempt, NewEvidence, OperationRecord
    from agent_runtime.config import AnyTool


@dataclass(slots=True, kw_only=True)
class Run:
    """One process's try at one operation.

    Attributes:
        operation: as the ledger has it, kept up to date.
        tool: its tool; its policies give the budgets.
        fence: what makes this process's writes count; None where only the version of the row does.
        body_limit: longest answer body, in bytes.
        deadline: end of the wait budget, by the database's clock (UTC epoch seconds).
        attempts: requests made by this run that count against the budget.
        waits: answers that said "in progress"; they use up the deadline, not the attempts.
        refused_later: an answer of this run refused an operation that may have been applied: no resend in this run.
        subject: on whose behalf the session calls; None = on its own.
        token_id: the token of this run's attempts, or None before the first.
        rejected: token id that the tool has refused and that was not replaced yet.
        refreshed: a fresh token was tried already.
        token_changed: the token at hand is not that of the attempts before.
        granted: scopes that the token at hand was granted, where they are not those that were asked for.
        problem: why there is no token, if that is what ended the run.
        stay: why nothing more can be done about an unknown operation.
        interrupted: the caller was interrupted while a request was out.
        sent, resent: what this run did.
        follow: how an accepted job is followed, as `Following` says it.
        patience: moment until which a job is waited for beyond its bound (UTC epoch seconds); set from seconds.
        polls: looks at the job by this run, made or tried; on_progress: hears of each.
        announced: it has heard of the job.
        no_stream: the job's stream broke, or there is none to be had.
    """

    operation: OperationRecord
    tool: AnyTool
    fence: int | None
    body_limit: int
    deadline: float = 0.0
    attempts: int = 0
    waits: int = 0
    refused_later: bool = False
    subject: Subject | None = None
    token_id: str | None = None
    rejected: str | None = None
    refreshed: bool = False
    token_changed: bool = False
    granted: str = ""
    problem: NoCredential | None = None
    stay: str = ""
    interrupted: bool = False
    sent: bool = False
    resent: bool = False
    follow: FollowMode = "wait"
    patience: float = 0.0
    polls: int = 0
    on_progress: Callable[[Any], Any] | None = None
    announced: bool = False
    no_stream: bool = False

    @property
    def spent(self) -> bool:
        """Whether no further attempt is in the budget."""
        return self.attempts >= self.tool.contract.retry.attempts


def seconds_of(value: object) -> float:
    """Return a duration setting as seconds: settings hold them so once they are built."""
    assert isinstance(value, int | float)
    return float(value)


def advance(
    run: Run,
    change: Change,
    *,
    attempt: NewAttempt | None = None,
    evidence: tuple[NewEvidence, ...] = (),
) -> Steps[bool]:
    """Write a change of the operation; False = the row was not as seen, and `Run.operation` is what it is now.

    Raises:
        LeaseLost: another worker has the session.
        EntryRefused: the database cannot hold the entry.
        LedgerError: nothing was written.
    """
    operation = run.operation
    if isinstance(change.state, State):
        check(operation.state, change.state)
    write_id = yield from ask(NewId())
    entry = Advance(
        write_id=write_id,
        session_id=operation.session_id,
        fence=run.fence,
        operation_id=operation.id,
        expect_version=operation.version,
        change=change,
        attempt=attempt,
        evidence=evidence,
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.FENCE_LOST:
        raise lease_lost(operation)
    if outcome.took is Took.REFUSED:
        msg = f"step {operation.label}: the ledger cannot hold what was to be written ({outcome.error})"
        raise EntryRefused(msg, session_id=operation.session_id, step=operation.label)
    assert outcome.operation is not None
    run.operation = outcome.operation
    return outcome.took is Took.TOOK


def file(operation: OperationRecord, seen: NewEvidence, *, contradicts: bool = False) -> Steps[None]:
    """Keep something seen beside its operation, which stays as it is.

    Raises:
        LedgerError: nothing was written.
    """
    write_id = yield from ask(NewId())
    entry = File(
        write_id=write_id,
        session_id=operation.session_id,
        operation_id=operation.id,
        evidence=seen,
        contradicts=contradicts,
    )
    yield from ask(Persist(entry))


def lease_lost(operation: OperationRecord) -> LeaseLost:
    """Return the error for a worker whose session another one has taken over."""
    msg = (
        f"session {operation.session_id}: another worker took it over while step {operation.label} was at work here. "
        "Nothing more is begun or changed by this object. Open the session anew to go on"
    )
    return LeaseLost(msg, session_id=operation.session_id, step=operation.label)


def wait_until(run: Run, moment: float | None) -> Steps[bool]:
    """Sleep until a moment (UTC epoch seconds), in full or not at all; False = too far off, the step is parked."""
    now = yield from ask(Now())
    if now >= run.deadline:
        return False
    wait = 0.0 if moment is None else moment - now
    if wait <= 0:
        return True
    if wait > seconds_of(run.tool.contract.retry.max_inline_wait) or now + wait > run.deadline:
        return False
    yield from ask(Sleep(wait))
    return True


def next_try(run: Run, asked: float | None, tries: int, now: float) -> Steps[float]:
    """Return when the tool is asked again at the earliest (UTC epoch seconds), by its policy and what it asked for.

    Args:
        run: of the operation.
        asked: seconds that the tool asked to wait, or None.
        tries: made so far.
        now: UTC epoch seconds of the last answer.
    """
    random = yield from ask(Random())
    policy = run.tool.contract.retry
    wait = wait_before_retry(
        asked,
        attempt=max(tries, 1),
        random=random,
        base=seconds_of(policy.base),
        factor=policy.factor,
        cap=seconds_of(policy.cap),
    )
    return now + min(wait, LONGEST_WAIT)


def credential_of(run: Run) -> Steps[Credential | None]:
    """Get a fresh credential; None = a wait was written because it may pass, or `Run.problem` says who is wanted."""
    within = yield from _patience(run)
    got = yield from ask(
        Acquire(run.tool, run.operation.principal, rejected=run.rejected, subject=run.subject, within=within)
    )
    if isinstance(got, NoCredential):
        if got.kind == "unavailable":
            run.attempts += 1
            yield from _wait_for_token(run, got)
        else:
            yield from stop_for_auth(run, got)
        return None
    wrong = _wrong_credential(run, got)
    if wrong is not None:
        yield from stop_for_auth(run, wrong)
        return None
    if run.rejected is not None:
        run.refreshed, run.rejected = True, None
    return got


def _patience(run: Run) -> Steps[float]:
    """Return the seconds that a token is waited for: what is left of the step's, or those of a GET about its job."""
    if run.operation.state is State.ACCEPTED:
        return seconds_of(run.tool.contract.timeouts.read) * 2
    now = yield from ask(Now())
    return max(run.deadline - now, 0.0)


def _wait_for_token(run: Run, problem: NoCredential) -> Steps[None]:
    now = yield from ask(Now())
    random = yield from ask(Random())
    wait = wait_before_retry(problem.retry_after, attempt=max(run.attempts, 1), random=random)
    yield from advance(run, Change(resume_at=now + min(wait, LONGEST_WAIT), error=_told(problem)))


def _wrong_credential(run: Run, credential: Credential) -> NoCredential | None:
    """A request never goes out under another identity than the recorded one, nor again under a refused token."""
    if credential.principal != run.operation.principal:
        return NoCredential(
            "required",
            f"the step is recorded for {run.operation.principal!r}, the credential is of {credential.principal!r}; "
            "bring the recorded identity",
        )
    if run.rejected is not None and credential.token_id == run.rejected:
        return NoCredential("required", "the tool refused the token and there is no other; bring a fresh one")
    return None


def stop_for_auth(run: Run, problem: NoCredential) -> Steps[None]:
    """End the run for want of a token; an operation that was never applied waits as ``ready`` for it."""
    run.problem = problem
    if run.operation.state is State.READY:
        yield from advance(run, Change(state=State.READY, reason=Reason.AUTH, resume_at=None, error=_told(problem)))
    else:  # unknown, or a job that runs: what is known of it does not change
        run.stay = problem.message
        yield from advance(run, Change(error=_told(problem)))


def _told(problem: NoCredential) -> bytes:
    told = {
        "seen_by": "authorisation",
        "error": f"token_{problem.kind}",
        "detail": problem.message,
        "code": problem.error,
        "claims": problem.claims,
        "description": problem.description,
    }
    return ascii_json({name: text for name, text in told.items() if text is not None})
