"""The protocol of a re-issue: a second operation, with a key of its own, for a step that failed with effect none."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from agent_runtime._core.effects import NewId, Persist, ask
from agent_runtime._core.keys import derive_key_from_canonical
from agent_runtime._core.requests import carrier_of, with_key
from agent_runtime._core.reserving import format_of
from agent_runtime._core.run import lease_lost
from agent_runtime._model import Effect, NewOperation, NewStep, OperationRecord, Reserve, State, Took
from agent_runtime._model.key_formats import check_key
from agent_runtime._model.naming import reissue_label
from agent_runtime.config._checks import flag
from agent_runtime.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from agent_runtime._core.desk import Desk
    from agent_runtime._core.effects import Steps
    from agent_runtime.config import AnyTool


def can_be_issued_again(operation: OperationRecord, *, effect_possible: bool = False) -> bool:
    """Whether an operation failed, and nothing of it stands; or may stand, where that is accepted."""
    return operation.state is State.FAILED and (effect_possible or operation.effect is Effect.NONE)


def reissue(desk: Desk, tool: AnyTool, label: str, *, effect_possible: bool = False) -> Steps[OperationRecord]:
    """Make a new operation, with a key of its own, from one that failed with effect none.

    ``effect_possible`` accepts one of which a part may stand: whoever asks says that a second effect is wanted then.

    Raises:
        ConfigError: there is no such step, or it did not fail so.
        LeaseLost, LedgerError: nothing was written.
    """
    flag("effect_possible", effect_possible)
    step = desk.book.step(label)
    operation = None if step is None else desk.book.operation_of(step)
    if step is None or operation is None or not can_be_issued_again(operation, effect_possible=effect_possible):
        state = "not there" if operation is None else f"{operation.state}, effect {operation.effect}"
        msg = f"session {desk.session_id}: only a step that failed with effect none is issued again; {label} is {state}"
        raise ConfigError(msg, session_id=desk.session_id, step=label)
    identity = yield from ask(NewId())
    write_id = yield from ask(NewId())
    new = _again(desk, tool, operation, identity)
    entry = Reserve(
        write_id=write_id,
        session_id=desk.session_id,
        fence=desk.fence,
        operations=(new,),
        steps=(
            NewStep(
                label=step.label,
                branch=step.branch,
                index=step.index,
                seq=step.seq,
                kind="call",
                tool=step.tool,
                fingerprint=step.fingerprint,
                args_hash=step.args_hash,
                operation_id=identity,
                address=step.address,
                takes_over=True,
            ),
        ),
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.FENCE_LOST:
        raise lease_lost(operation)
    if outcome.took is not Took.TOOK:
        msg = f"session {desk.session_id}, step {label}: it was not issued again ({outcome.took}). Nothing was sent"
        raise LedgerError(msg, session_id=desk.session_id, step=label)
    made = outcome.operations[0]
    desk.book.update(made)
    desk.book.put(dataclasses.replace(step, operation_id=made.id, delivered=None, delivered_seq=None))
    return made


def _again(desk: Desk, tool: AnyTool, operation: OperationRecord, identity: str) -> NewOperation:
    before = re.search(r"\.r(\d+)$", operation.label)
    label = reissue_label(operation.label, int(before.group(1)) + 1 if before else 1)
    carrier = carrier_of(tool)
    hashed = operation.request.body if operation.request is not None and operation.request.body else operation.args
    key = derive_key_from_canonical(
        session_id=desk.session_id,
        step=label,
        tool=tool.name,
        canonical=hashed,
        format=format_of(tool),
        secret=desk.secret,
    )
    check_key(key, max_length=carrier.max_length, pattern=carrier.pattern)
    request = None if operation.request is None else with_key(operation.request, key, carrier)
    return NewOperation(
        id=identity,
        label=label,
        tool=operation.tool,
        kind=operation.kind,
        args=operation.args,
        fingerprint=operation.fingerprint,
        args_hash=operation.args_hash,
        scheme=operation.scheme,
        key=key,
        key_format=format_of(tool),
        carrier=operation.carrier,
        key_lifetime=operation.key_lifetime,
        request=request,
        principal=operation.principal,
        contract_version=tool.contract.version,
        origin=operation.origin,
        reissue_of=operation.id,
    )
