"""What may be done with an unsettled operation: the contract decides, never the model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from agent_runtime._core.run import seconds_of
from agent_runtime._model import Reason
from agent_runtime.config import defaults

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import Idempotency, ToolContract


NO_LOOK_UP: Final = ", and it has no look-up"


class Move(StrEnum):
    """The next thing to do."""

    RESEND = "resend"
    LOOK_UP = "look_up"
    STAY = "stay"  # nobody can know; a person decides


@dataclass(frozen=True, slots=True)
class Decision:
    """A move, and why no better one is open (for the error's message)."""

    move: Move
    why: str = ""


def next_move(operation: OperationRecord, contract: ToolContract, *, now: float, same_token: bool) -> Decision:
    """Return what may be done with an operation in state ``unknown``.

    Args:
        operation: as the ledger has it.
        contract: of its tool.
        now: by the database's clock (UTC epoch seconds), as are the times on the row.
        same_token: whether a resend would go under the token of the attempts before.
    """
    if operation.reason is Reason.KEY_CONFLICT:
        return Decision(Move.STAY, "the key stands for something else")
    obstacle = resend_obstacle(operation, contract.idempotency, now=now, same_token=same_token)
    if obstacle is None:
        return Decision(Move.RESEND)
    if contract.lookup is not None:
        return Decision(Move.LOOK_UP, obstacle)
    return Decision(Move.STAY, obstacle + NO_LOOK_UP)


def only_a_decision(operation: OperationRecord, contract: ToolContract, *, stay: str) -> bool:
    """Whether nothing but a person's word can settle an unknown operation. ``stay``: why nothing more was done."""
    if contract.polling.source is not None:  # a callback may still come
        return False
    if operation.reason is Reason.KEY_CONFLICT:
        return True
    if contract.lookup is not None or operation.kind == "read":
        return False
    return contract.idempotency is None or operation.no_resend or stay.endswith(NO_LOOK_UP)


def resend_obstacle(
    operation: OperationRecord, idempotency: Idempotency | None, *, now: float, same_token: bool
) -> str | None:
    """Return why the same request may not be sent again under the same key, or None if it may."""
    if idempotency is None:
        return "the tool honours no key"
    if operation.no_resend:
        return "it answered in a way after which a resend could double the effect"
    if expired(operation, now):
        return "the call's expires_at has passed"
    if operation.first_sent_at is not None:
        age = now - operation.first_sent_at
        if age >= operation.key_lifetime * (1 - defaults.KEY_LIFETIME_MARGIN):
            return f"the key is {age:.0f} s old and the tool keeps keys for {operation.key_lifetime:.0f} s"
    if idempotency.key_bound_to_token and not same_token:
        return "the tool binds keys to the token, and the token is another one now"
    return _claim_obstacle(operation, idempotency, now)


def expired(operation: OperationRecord, now: float) -> bool:
    """Whether no attempt may begin any more."""
    return operation.expires_at is not None and now >= operation.expires_at


def _claim_obstacle(operation: OperationRecord, idempotency: Idempotency, now: float) -> str | None:
    """A claim that can end by itself may have ended while its request ran on, or after its server died."""
    ttl = idempotency.in_progress_ttl
    if ttl is None:
        return None
    ttl = seconds_of(ttl)
    if idempotency.max_execution is not None and seconds_of(idempotency.max_execution) > ttl:
        return "the tool's handler may run longer than its claim on the key"
    if operation.first_maybe_at is not None and now - operation.first_maybe_at >= ttl:
        return f"the tool's claim on the key ends after {ttl:.0f} s, so it may have forgotten the first request"
    return None


def absence_is_proven(operation: OperationRecord, contract: ToolContract, *, now: float) -> bool:
    """Whether one more look-up that finds nothing proves that no attempt was applied.

    Only if declared, after the last attempt's deadline plus ``settle_after``, and the second time at the earliest.
    """
    lookup = contract.lookup
    if lookup is None or not lookup.absence_is_proof:
        return False
    return operation.absences >= 1 and now >= absence_counts_from(operation, contract)


def absence_counts_from(operation: OperationRecord, contract: ToolContract) -> float:
    """Return from when on an absence counts (UTC epoch seconds by the database's clock).

    That is the later of the last attempt's deadline and the take-over from a dead worker, plus ``settle_after``.
    """
    lookup = contract.lookup
    assert lookup is not None
    settle_after = seconds_of(lookup.settle_after) if lookup.settle_after is not None else 0.0
    last = operation.last_deadline if operation.last_deadline is not None else operation.updated_at
    return last + settle_after
