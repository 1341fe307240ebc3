"""What a resume would do about each step, in words; looks at rows, asks nobody."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agent_runtime._core.handles import handle_of
from agent_runtime._core.outcomes import moment_text
from agent_runtime._core.reach import asked_at, sent_to
from agent_runtime._core.settle import Move, expired, next_move
from agent_runtime._model import SETTLED, State

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord
    from agent_runtime.config import AnyTool


def what_next(operation: OperationRecord | None, tool: AnyTool | None, *, now: float) -> str:
    """Return what a call that reaches a step would do. ``now``: by the database's clock (UTC epoch seconds)."""
    if operation is None:
        return "not started: the call that reaches it decides"
    if operation.state in SETTLED:
        return "deliver from the ledger"
    if tool is None:
        return f"nothing: tool {operation.tool!r} is not registered"
    wait = (
        f", not before {moment_text(operation.resume_at, now)}"
        if operation.resume_at and operation.resume_at > now
        else ""
    )
    if operation.state is State.READY:
        return "cancel it: its expires_at has passed" if expired(operation, now) else "send" + wait
    if operation.state is State.ACCEPTED:
        place = asked_at(handle_of(operation), sent_to(operation), tool.contract.polling)
        return "wait: its job cannot be asked about" if place is None else "look at its job" + wait
    if tool.is_read:
        return "send again: it only reads"
    if operation.state is State.IN_FLIGHT and operation.first_maybe_at is None:  # what a resume writes first
        operation = dataclasses.replace(operation, first_maybe_at=operation.updated_at)
    decision = next_move(operation, tool.contract, now=now, same_token=False)
    if decision.move is Move.RESEND:
        return "send again under the same key" + wait
    if decision.move is Move.LOOK_UP:
        return "look it up: " + decision.why + wait
    return "stay unknown: " + decision.why
