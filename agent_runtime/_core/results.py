"""From the bytes of a success to a value; live and replayed values come from the same bytes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ValidationError

from agent_runtime._model import BodyState, ResultState

if TYPE_CHECKING:
    from agent_runtime.config import AnyTool


@dataclass(frozen=True, slots=True)
class Reading:
    """A value, or why there is none."""

    state: ResultState
    value: Any = None
    problem: str = ""


def read_result(body: bytes, body_state: BodyState, tool: AnyTool) -> Reading:
    """Decode a result: what parses as JSON is JSON whatever its content type; an empty body is None.

    Where the tool's ``result`` is ``str`` or ``bytes`` and the body is no JSON, the body itself is the value.
    """
    if body_state is not BodyState.WHOLE:
        return Reading(ResultState.UNREADABLE, problem=f"the body is {body_state}")
    if tool.result is bytes:
        return Reading(ResultState.OK, body)
    try:
        value = _parse(body)
    except (ValueError, RecursionError) as error:
        if tool.result is str:
            return Reading(ResultState.OK, body.decode("utf-8", "replace"))
        return Reading(ResultState.UNREADABLE, problem=f"the body is no JSON: {error}")
    return _check(value, tool)


def ascii_json(value: Any) -> bytes:
    """Return a JSON value as text in ASCII, such as rows keep of errors and of what was delivered."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def json_bytes(value: Any) -> bytes:
    """Return a JSON value as text in UTF-8; half a surrogate pair, which UTF-8 cannot hold, stays as an escape."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), default=str).encode()


def _check(value: Any, tool: AnyTool) -> Reading:
    adapter = tool.result_adapter()
    if adapter is None:
        return Reading(ResultState.OK, value)
    try:
        return Reading(ResultState.OK, adapter.validate_python(value) if value is None else _from_json(adapter, value))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        return Reading(
            ResultState.INVALID, value, problem="; ".join(f"{_path(p['loc'])}: {p['msg']}" for p in problems)
        )


def _from_json(adapter: Any, value: Any) -> Any:
    """Check as JSON, so that dates, UUIDs and enums are read from their JSON forms also in strict models."""
    return adapter.validate_json(json.dumps(value))


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "result"


def _parse(body: bytes) -> Any:
    if not body:
        return None
    return json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        msg = f"{text} is beyond what a number can hold"
        raise ValueError(msg)
    return number


def _no_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON value"
    raise ValueError(msg)
