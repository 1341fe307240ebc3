"""The protocol of a value that the code does not get from a tool: kept the first time, delivered from then on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pydantic_core

from agent_runtime._core.effects import NewId, Persist, ask
from agent_runtime._core.requests import refuse_sets
from agent_runtime._model import PutValue, Took, ValueRecord
from agent_runtime.errors import ArgumentsRefused, LeaseLost, LedgerError

if TYPE_CHECKING:
    from agent_runtime._core.desk import Desk
    from agent_runtime._core.effects import Steps


def text_of(value: Any, name: str) -> bytes:
    """Return a value as JSON text, or raise `ArgumentsRefused`: what is replayed has to equal what was delivered."""
    refuse_sets(value, f"record({name!r})", done="Nothing was kept")
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="constants")
        json.loads(text)
    except (pydantic_core.PydanticSerializationError, ValueError) as error:
        msg = f"record({name!r}): the value has no JSON form ({error}). Nothing was kept; return plain JSON values"
        raise ArgumentsRefused(msg) from None
    return text


def keep(desk: Desk, branch: str, name: str, index: int, text: bytes) -> Steps[Any]:
    """Keep a value and return it as a replay will deliver it.

    Raises:
        LeaseLost: another worker has the session.
        LedgerError: it could not be kept.
    """
    write_id = yield from ask(NewId())
    entry = PutValue(
        write_id=write_id,
        session_id=desk.session_id,
        fence=desk.fence,
        branch=branch,
        name=name,
        index=index,
        value=text,
    )
    outcome = yield from ask(Persist(entry))
    if outcome.took is Took.FENCE_LOST:
        msg = f"session {desk.session_id}: another worker took it over. The value {name!r} was not kept"
        raise LeaseLost(msg, session_id=desk.session_id)
    if outcome.took is not Took.TOOK:
        msg = f"session {desk.session_id}: the value {name!r} was not kept ({outcome.took} {outcome.error})"
        raise LedgerError(msg, session_id=desk.session_id)
    record = ValueRecord(session_id=desk.session_id, branch=branch, name=name, index=index, value=text)
    desk.book.values[branch, name, index] = record
    return json.loads(text)


def stored(desk: Desk, branch: str, name: str, index: int) -> ValueRecord | None:
    """Return the kept value of a name and count, or None."""
    return desk.book.values.get((branch, name, index))


def read(record: ValueRecord) -> Any:
    """Return a kept value."""
    return json.loads(record.value)
