"""The protocol of one operation: from where the ledger has it to where it can go now.

It never holds anything that a crash could lose: each stretch begins with what the ledger says and ends with a write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.attempt import attempt
from agent_runtime._core.conclude import interrupted
from agent_runtime._core.effects import Now, ask
from agent_runtime._core.job_news import heard_beside, told
from agent_runtime._core.polling import follow
from agent_runtime._core.run import Run, advance, credential_of, seconds_of, wait_until
from agent_runtime._core.settle import Move, expired, next_move
from agent_runtime._core.sighting import look_up
from agent_runtime._model import SETTLED, Change, Reason, State

if TYPE_CHECKING:
    from agent_runtime._core.effects import Credential, Steps


REFUSED_LATER: Final = "the tool refused the resend, which proves nothing about the first request"


def perform(run: Run) -> Steps[None]:
    """Take an operation as far as it goes now; `Run.operation` says where it stands in the end.

    Raises:
        LeaseLost: another worker has the session; nothing was begun after that was known.
        NotRecorded: the tool answered and the ledger could not take it.
        LedgerError: the ledger could not be written; nothing was sent after that.
    """
    now = yield from ask(Now())
    run.deadline = now + seconds_of(run.tool.contract.timeouts.step)
    run.patience = now + run.patience if run.patience else 0.0
    going = True
    while going and not run.interrupted and run.operation.state not in SETTLED:
        match run.operation.state:
            case State.IN_FLIGHT:
                yield from advance(run, interrupted(run.operation, run.tool))
            case State.READY:
                going = yield from _ready(run)
            case State.UNKNOWN:
                going = yield from _unknown(run)
            case _:  # accepted: no other state is left that is not settled
                going = yield from follow(run)
    run.operation = yield from heard_beside(run.operation, run.tool)


def _ready(run: Run) -> Steps[bool]:
    """Send an operation none of whose attempts was applied; False = it has to wait."""
    now = yield from ask(Now())
    if expired(run.operation, now):
        yield from advance(run, Change(state=State.CANCELLED, reason=Reason.EXPIRED, resume_at=None))
        return False
    return (yield from _try(run))


def _unknown(run: Run) -> Steps[bool]:
    """Settle an operation that may have been applied; False = nothing more can be known now."""
    if run.tool.contract.polling.source is not None and (yield from told(run)):
        return True
    now = yield from ask(Now())
    same_token = run.token_id is not None and run.rejected is None and not run.token_changed
    contract = run.tool.contract
    decision = next_move(run.operation, contract, now=now, same_token=same_token)
    if decision.move is Move.RESEND and not run.refused_later and not run.spent:
        return (yield from _try(run))
    if contract.lookup is not None and run.operation.reason is not Reason.KEY_CONFLICT:
        return (yield from look_up(run))
    run.stay = decision.why or ("the budget of this try is spent" if run.spent else REFUSED_LATER)
    return False


def _try(run: Run) -> Steps[bool]:
    """Wait for its turn, get a token, make one attempt; False = parked, no token, or the budget is spent."""
    if run.spent or not (yield from wait_until(run, run.operation.resume_at)):
        return False
    credential = yield from credential_of(run)
    if credential is None:
        return run.problem is None
    if not (yield from _still_allowed(run, credential)):
        return True
    return (yield from attempt(run, credential))


def _still_allowed(run: Run, credential: Credential) -> Steps[bool]:
    """Whether what allowed this attempt still holds after the wait and with this token; if not, it is judged anew."""
    now = yield from ask(Now())
    operation = run.operation
    if operation.state is State.READY:
        return not expired(operation, now)
    run.token_changed = credential.token_id != run.token_id
    return next_move(operation, run.tool.contract, now=now, same_token=not run.token_changed).move is Move.RESEND
