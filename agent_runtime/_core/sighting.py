"""The protocol of a look-up: ask, read, write what was seen and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.attempt import attempt, send
from agent_runtime._core.backoff import wait_before_retry
from agent_runtime._core.challenges import refuses_token
from agent_runtime._core.conclude import answer_evidence, error_of, failure_text
from agent_runtime._core.effects import Credential, Now, Random, ask
from agent_runtime._core.handles import written
from agent_runtime._core.lookup import Seen, Sight, lookup_request, read_lookup
from agent_runtime._core.refusals import refused_token
from agent_runtime._core.run import Run, advance, credential_of, next_try, wait_until
from agent_runtime._core.settle import absence_counts_from, absence_is_proven, expired
from agent_runtime._core.urls import same_origin
from agent_runtime._model import Answer, Change, Effect, NewEvidence, Reason, SendFailure, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime.config import HttpLookup


def look_up(run: Run) -> Steps[bool]:
    """Look up an unknown operation; False = nothing more can be known now."""
    lookup = run.tool.contract.lookup
    assert lookup is not None
    if not (yield from wait_until(run, run.operation.resume_at)):
        return False
    credential = yield from credential_of(run)
    if credential is None:
        run.stay = run.stay or "there is no token for a look-up"
        return run.problem is None and not run.spent
    asked = yield from ask(Now())
    look = yield from _see(run, lookup, credential)
    if look.interrupted:
        run.interrupted = True
        return False
    if look.refusal is not None:
        return (yield from _refused(run, look, look.refusal, credential))
    return (yield from _conclude(run, look.sight, look.evidence, credential, asked))


@dataclass(frozen=True, slots=True)
class Look:
    """One look-up: what was seen, or that our token was refused."""

    sight: Sight
    evidence: NewEvidence
    interrupted: bool = False
    refusal: Answer | None = None


def _see(run: Run, lookup: HttpLookup, credential: Credential) -> Steps[Look]:
    """Send the look-up, and the confirming one where absence needs it."""
    now = yield from ask(Now())
    request = lookup_request(lookup, run.operation)
    shown = credential if _may_see(run, request.url) else Credential(principal=credential.principal)
    result = yield from send(run, request, shown, max(run.deadline - now, 0.001))
    now = yield from ask(Now())
    if isinstance(result, SendFailure):
        seen = NewEvidence(kind="lookup", detail=failure_text(result))
        return Look(Sight(seen=Seen.NOTHING), seen, result.interrupted)
    sight = read_lookup(result, lookup, run.tool, now=now, request=run.operation.request)
    if sight.seen is Seen.ABSENT and lookup.confirm is not None:
        return (yield from _see(run, lookup.confirm, credential))
    refusal = result if refuses_token(result) and shown.token_id else None
    return Look(sight, answer_evidence("lookup", result, detail=sight.seen), refusal=refusal)


def _refused(run: Run, look: Look, refusal: Answer, credential: Credential) -> Steps[bool]:
    """Write that a look-up was refused: a fresh token is tried at once, unless that was done or would not do."""
    run.attempts += 1
    yield from advance(run, Change(state=State.UNKNOWN), evidence=(look.evidence,))
    return (yield from refused_token(run, credential, refusal, "the look-up"))


def _may_see(run: Run, url: str) -> bool:
    """Credentials never cross an origin, whatever URL a contract names."""
    request = run.operation.request
    return request is not None and same_origin(url, request.url)


def _conclude(run: Run, sight: Sight, evidence: NewEvidence, credential: Credential, asked: float) -> Steps[bool]:
    now = yield from ask(Now())
    match sight.seen:
        case Seen.DONE:
            yield from advance(run, _done(sight), evidence=(evidence,))
            return True
        case Seen.FAILED:
            yield from advance(run, _failed(sight), evidence=(evidence,))
            return True
        case Seen.ACCEPTED:
            yield from advance(run, _accepted(sight), evidence=(evidence,))
            return True
        case Seen.ABSENT:
            return (yield from _absent(run, evidence, credential, asked))
        case Seen.RUNNING:
            run.waits += 1
            resume_at = yield from next_try(run, sight.wait, run.waits + run.attempts, now)
            change = Change(state=State.UNKNOWN, clear_absent=True, resume_at=resume_at)
        case _:
            run.attempts += 1
            resume_at = yield from next_try(run, sight.wait, run.waits + run.attempts, now)
            change = Change(state=State.UNKNOWN, resume_at=resume_at)
    yield from advance(run, change, evidence=(evidence,))
    if run.spent:
        run.stay = "the look-up gave no usable answer"
    return not run.spent


def _done(sight: Sight) -> Change:
    return Change(
        state=State.SUCCEEDED,
        reason=Reason.LOOKED_UP,
        resume_at=None,
        error=None,
        result=sight.body,
        result_status=sight.status,
        result_state=sight.result_state,
    )


def _failed(sight: Sight) -> Change:
    stored = Answer(status=sight.status or 0, body=sight.body or b"")
    return Change(
        state=State.FAILED,
        reason=Reason.LOOKED_UP,
        effect=sight.effect,
        resume_at=None,
        error=error_of(stored),
        result=sight.body,
        result_status=sight.status,
    )


def _accepted(sight: Sight) -> Change:
    assert sight.handle is not None
    return Change(
        state=State.ACCEPTED,
        reason=None,
        resume_at=None,
        error=None,
        handle=written(sight.handle),
        result=sight.body,
        result_status=sight.status,
    )


def _absent(run: Run, evidence: NewEvidence, credential: Credential, asked: float) -> Steps[bool]:
    """Absence proves something only if declared, late enough, and the second time; then the same key is sent again.

    What counts is when the tool was asked: an answer that was long on its way tells of a moment before it came.
    """
    contract = run.tool.contract
    lookup = contract.lookup
    assert lookup is not None
    if not lookup.absence_is_proof:
        yield from advance(run, Change(state=State.UNKNOWN), evidence=(evidence,))
        run.stay = "the look-up found nothing, and its absence is not declared to be proof"
        return False
    now = yield from ask(Now())
    if absence_is_proven(run.operation, contract, now=asked):
        if expired(run.operation, now):
            ended = Change(state=State.FAILED, reason=Reason.EXPIRED, effect=Effect.NONE, resume_at=None)
            yield from advance(run, ended, evidence=(evidence,))
            return False
        yield from advance(run, Change(state=State.UNKNOWN, clear_maybe=True, resume_at=None), evidence=(evidence,))
        return (yield from attempt(run, credential))
    counts_from = absence_counts_from(run.operation, contract)
    counts = asked >= counts_from
    random = yield from ask(Random())
    next_look = max(counts_from, now + wait_before_retry(None, attempt=1, random=random))
    change = Change(state=State.UNKNOWN, mark_absent=counts, resume_at=next_look)
    yield from advance(run, change, evidence=(evidence,))
    return True
