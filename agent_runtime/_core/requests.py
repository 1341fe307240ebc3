"""From args to the request that is frozen in the ledger; pure and versioned.

Two digests come of it: ``fingerprint`` over what the caller gave (validated, without unset defaults and fills) decides
whether a call is the recorded one; ``args_hash`` over the body as sent goes into the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from agent_runtime._core.canonical import MAX_DEPTH, canonical_json, digest
from agent_runtime._core.headers import check_headers
from agent_runtime._core.keys import structured_field_string
from agent_runtime._core.urls import check_url
from agent_runtime._model import Request
from agent_runtime.config import FunctionTool, HeaderCarrier
from agent_runtime.errors import ArgumentsRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._core.canonical import Scheme
    from agent_runtime.config import AnyTool, HttpTool

BODY_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
DEFAULT_CARRIER: Final = HeaderCarrier()


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A call's args, checked: ``given`` as the caller meant them, ``sent`` with defaults; fills are still to come."""

    given: dict[str, Any]
    sent: dict[str, Any]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A call as it will be sent.

    Attributes:
        args: all args as canonical JSON, fills included.
        hashed: the canonical text that the key is made over; ``args_hash`` is its SHA-256 in hex.
        request: without the key; None for a function tool.
    """

    args: bytes
    hashed: bytes
    args_hash: str
    scheme: Scheme
    request: Request | None


def scheme_of(tool: AnyTool) -> Scheme:
    """Return the canonical JSON that a tool's server re-hashes."""
    idempotency = tool.contract.idempotency
    return idempotency.scheme if idempotency is not None else "jcs"


def carrier_of(tool: AnyTool) -> HeaderCarrier:
    """Return where a tool's key travels."""
    idempotency = tool.contract.idempotency
    return idempotency.carrier if idempotency is not None else DEFAULT_CARRIER


def validate(tool: AnyTool, args: object) -> Validated:
    """Check a call's args against the tool's model and canonical JSON.

    Raises:
        ArgumentsRefused: they do not fit; the message holds no value of them.
    """
    given, sent = _dump(tool, args)
    fingerprint = digest(canonical_json(given, "jcs"))
    return Validated(given=given, sent=sent, fingerprint=fingerprint)


def freeze(tool: AnyTool, validated: Validated, fills: Mapping[str, Any]) -> Frozen:
    """Build what will be sent. ``fills``: values made once for this operation.

    Raises:
        ArgumentsRefused: an arg cannot go where it has to, or a fill is no JSON value.
    """
    scheme = scheme_of(tool)
    args = {**validated.sent, **fills}
    if isinstance(tool, FunctionTool):
        text = canonical_json(args, scheme)
        return Frozen(args=text, hashed=text, args_hash=digest(text), scheme=scheme, request=None)
    request, hashed = _http(tool, args, scheme)
    whole = not request.body or len(args) == len(_body_args(tool, args))
    text = hashed if whole else canonical_json(args, scheme)
    return Frozen(args=text, hashed=hashed, args_hash=digest(hashed), scheme=scheme, request=request)


def with_key(request: Request, key: str, carrier: HeaderCarrier = DEFAULT_CARRIER) -> Request:
    """Return the request with the key where its carrier has it."""
    value = structured_field_string(key) if carrier.style == "structured" else key
    return request.with_headers(((carrier.name, value),))


def _dump(tool: AnyTool, args: object) -> tuple[dict[str, Any], dict[str, Any]]:
    if tool.args is not None:
        return _dump_model(tool, _as_model(tool, tool.args, args))
    if isinstance(args, BaseModel):
        return _dump_model(tool, args)
    if args is None:
        return {}, {}
    if not isinstance(args, dict):
        msg = f"tool {tool.name!r}: args must be a dict or a pydantic model, not {type(args).__name__}"
        raise ArgumentsRefused(msg)
    return args, args


def _dump_model(tool: AnyTool, model: BaseModel) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        refuse_sets(model.model_dump(), "$")
        given = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return given, model.model_dump(mode="json", by_alias=True)
    except (ValueError, RecursionError) as error:  # no JSON form, or a cycle
        msg = f"tool {tool.name!r}: the args cannot be written as JSON: {error}. Nothing was written or sent"
        raise ArgumentsRefused(msg) from None


def _as_model(tool: AnyTool, model: type[BaseModel], args: object) -> BaseModel:
    if isinstance(args, model):
        return args
    if isinstance(args, BaseModel):
        args = args.model_dump(by_alias=True, exclude_unset=True)
    refuse_sets(args, "$")  # a list field would take one, in this process's order
    try:
        return model.model_validate({} if args is None else args)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        told = "; ".join(f"{'.'.join(map(str, problem['loc'])) or 'args'}: {problem['msg']}" for problem in problems)
        msg = f"tool {tool.name!r}: {told}. Nothing was written or sent"
        raise ArgumentsRefused(msg, path=".".join(map(str, problems[0]["loc"]))) from None


def refuse_sets(value: object, path: str, depth: int = 0, *, done: str = "Nothing was written or sent") -> None:
    """A set has no order, so its JSON form would differ from process to process. Too deep is refused elsewhere."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, set | frozenset):
        msg = f"{path} is a set, whose order differs in every process; use a list. {done}"
        raise ArgumentsRefused(msg, path=path)
    if isinstance(value, dict):
        for name, member in value.items():
            refuse_sets(member, f"{path}.{name}", depth + 1, done=done)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            refuse_sets(member, f"{path}[{index}]", depth + 1, done=done)
    elif isinstance(value, BaseModel):
        refuse_sets(dict(value), path, depth, done=done)
    elif is_dataclass(value) and not isinstance(value, type):
        refuse_sets({one.name: getattr(value, one.name) for one in fields(value)}, path, depth, done=done)


def _path_names(tool: HttpTool) -> tuple[str, ...]:
    return tuple(re.findall(r"\{([A-Za-z_][A-Za-z0-9_]*)\}", tool.url))


def _body_args(tool: HttpTool, args: Mapping[str, Any]) -> dict[str, Any]:
    if tool.method not in BODY_METHODS:
        return {}
    elsewhere = {*_path_names(tool), *tool.query}
    return {name: value for name, value in args.items() if name not in elsewhere}


def _http(tool: HttpTool, args: dict[str, Any], scheme: Scheme) -> tuple[Request, bytes]:
    """Return the request and the text that its key is made over: the body, or all args where there is none."""
    url = _fill_path(tool, args)
    in_path = set(_path_names(tool))
    body_args = _body_args(tool, args)
    query = {name: value for name, value in args.items() if name not in in_path and name not in body_args}
    if query:
        url += ("&" if "?" in url else "?") + _query(tool, query)
    headers = {"Accept": "application/json", **tool.headers}
    body = b""
    if tool.method in BODY_METHODS:
        body = canonical_json(body_args, scheme)
        headers["Content-Type"] = "application/json"
    request = Request(method=tool.method, url=url, body=body, headers=tuple(headers.items()))
    check_url(request.url)
    check_headers(request.headers)
    return request, body or canonical_json(args, scheme)


def _fill_path(tool: HttpTool, args: Mapping[str, Any]) -> str:
    url = tool.url
    for name in _path_names(tool):
        if name not in args:
            msg = (
                f"tool {tool.name!r}: arg {name!r} is missing, and the URL's path needs it. Nothing was written or sent"
            )
            raise ArgumentsRefused(msg, path=f"$.{name}")
        text = _plain(tool, name, args[name])
        if text in {"", ".", ".."}:
            msg = f"tool {tool.name!r}: arg {name!r} is part of the URL's path and cannot be {text!r}"
            raise ArgumentsRefused(msg, path=f"$.{name}")
        url = url.replace("{" + name + "}", quote(text, safe=""))
    return url


def _query(tool: HttpTool, query: Mapping[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in sorted(query.items()):
        items = value if isinstance(value, list | tuple) else [value]
        pairs.extend((name, _plain(tool, name, item)) for item in items)
    return urlencode(pairs, quote_via=quote, safe="")


def _plain(tool: HttpTool, name: str, value: object) -> str:
    """Return an arg as text for a URL: a string as it is, numbers and Booleans as JSON writes them."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            msg = f"tool {tool.name!r}: arg {name!r} holds a lone surrogate"
            raise ArgumentsRefused(msg, path=f"$.{name}") from None
        return value
    if isinstance(value, bool | int | float):
        return canonical_json(value).decode()
    kind = "None" if value is None else type(value).__name__
    msg = f"tool {tool.name!r}: arg {name!r} goes into the URL and must be text, a number or a Boolean, not {kind}"
    raise ArgumentsRefused(msg, path=f"$.{name}")
