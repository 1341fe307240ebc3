"""Calling a function tool, and telling what its end means."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pydantic_core

from agent_runtime._core.transport_errors import transport_error_kind
from agent_runtime._drive.context import CurrentStep, current
from agent_runtime._model import Raised, Returned
from agent_runtime.config import Key
from agent_runtime.errors import AuthError, LeaseLost, NotApplied, NotRecorded, SessionError, StepPending

if TYPE_CHECKING:
    from agent_runtime._core.effects import Invoke
    from agent_runtime.config import FunctionTool

PASSING = (StepPending, AuthError, LeaseLost, SessionError, NotRecorded)
"""Errors of calls that the function itself made: they are the caller's to see, not the function's failure."""


def keywords(invoke: Invoke) -> dict[str, Any]:
    """Return the arguments of the function, with types, from the canonical args; the key where it is wanted."""
    tool = invoke.tool
    assert tool.args is not None
    model = tool.args.model_validate_json(invoke.args)
    given = {name: getattr(model, name) for name in type(model).model_fields}
    if tool.key_parameter is not None:
        given[tool.key_parameter] = Key(invoke.key)
    return given


def call(invoke: Invoke, session_id: str) -> Returned:
    """Call a plain function; whatever it raises passes through."""
    token = current.set(CurrentStep(session_id, invoke.label, invoke.key))
    try:
        value = invoke.tool.function(**keywords(invoke))
    finally:
        current.reset(token)
    return returned(value)


async def call_async(invoke: Invoke, session_id: str) -> Returned:
    """Call a function of either kind without blocking the loop; a plain one runs in a thread."""
    token = current.set(CurrentStep(session_id, invoke.label, invoke.key))
    try:
        if invoke.tool.is_async:
            value = await invoke.tool.function(**keywords(invoke))
        else:
            value = await asyncio.to_thread(invoke.tool.function, **keywords(invoke))
            if inspect.isawaitable(value):
                value = await value
    finally:
        current.reset(token)
    return returned(value)


def returned(value: Any) -> Returned:
    """Return a function's value as JSON text; what has no JSON form stands as text that is none."""
    try:
        return Returned(body=pydantic_core.to_json(value))
    except pydantic_core.PydanticSerializationError:
        return Returned(body=f"<{type(value).__name__} has no JSON form>".encode())


def raised(error: Exception, tool: FunctionTool) -> Raised:
    """Return what an exception says: nothing certain, unless it is `NotApplied`.

    An HTTP client's "not sent" is proof too where the function makes no other request (``single_request``).
    """
    name, detail = type(error).__name__, str(error)[:500]
    if isinstance(error, NotApplied):
        return Raised(proof=True, error=name, detail=detail, retry_after=error.retry_after)
    kind = transport_error_kind(error)
    if kind is None:
        return Raised(proof=False, error=name, detail=detail, interrupted=isinstance(error, PASSING))
    # It says something of the request that failed; of the function only if that is the only one it makes.
    proof = kind == "not_sent" and tool.single_request
    return Raised(proof=proof, transport=True, error=name, detail="")
