"""Tools: what can be called, where it is, what it promises."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, get_type_hints
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, create_model

from agent_runtime._model.naming import check_name
from agent_runtime.config._checks import check_arguments, header_name, header_value, one_of, shown
from agent_runtime.config.auth import Auth, check_auth
from agent_runtime.config.contract import ToolContract
from agent_runtime.errors import ConfigError

Fill = Literal["now", "uuid"] | Callable[[], Any]
METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")
NO_CONTRACT: Final = ToolContract()
READ_ONLY: Final = ToolContract(kind="read")


class Key(str):
    """Annotation of a function tool's parameter that takes the idempotency key; the model's schema never shows it."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class _ToolBase:
    name: str
    args: type[BaseModel] | None = None
    result: Any = None
    contract: ToolContract = NO_CONTRACT
    description: str = ""
    sensitive: bool = False
    contract_declared: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        self.result_adapter()

    @property
    def is_read(self) -> bool:
        """Whether the tool changes nothing."""
        return self.contract.kind == "read"

    def result_adapter(self) -> TypeAdapter[Any] | None:
        """Return what decodes and checks results, or None where any JSON value is taken."""
        if self.result is None:
            return None
        adapter: TypeAdapter[Any] | None = self.__dict__.get("_adapter")
        if adapter is None:
            adapter = _adapter(self.name, self.result)
            self.__dict__["_adapter"] = adapter
        return adapter

    def args_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the args for a model; an open object where no ``args=`` was given."""
        return self.args.model_json_schema() if self.args is not None else {"type": "object"}


@dataclass(frozen=True, kw_only=True, eq=False)
class HttpTool(_ToolBase):
    """A tool behind HTTP; made by `Tool`.

    Attributes:
        url: absolute; ``{name}`` in its path is filled from the args.
        method: POST, PUT, PATCH, DELETE, GET or HEAD.
        query: names of args that go to the query string; of GET, HEAD and DELETE all that are not in the path do.
        fill: args that must be fresh but stable: made once when the step is recorded, then frozen. ``now`` is RFC 3339
            UTC, ``uuid`` a random UUID; or a function that returns a JSON value.
        headers: plain headers that are frozen with the request, and go with each request about its jobs on its own
            origin; no secrets.
        auth: credentials; None = the runtime's own.
        scope, audience: what an OAuth provider asks for on behalf of this tool, instead of its own.
        principal: name of the identity that requests are sent under, where it is not told by ``auth``.
    """

    url: str = ""
    method: str = "POST"
    query: tuple[str, ...] = ()
    fill: Mapping[str, Fill] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: Auth | None = None
    scope: str | None = None
    audience: str | tuple[str, ...] | None = None
    principal: str | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port of the target."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def Tool(  # noqa: N802  reads as the class it stands for
    name: str,
    *,
    url: str,
    method: str = "POST",
    args: type[BaseModel] | None = None,
    result: Any = None,
    contract: ToolContract | None = None,
    auth: Auth | None = None,
    scope: str | None = None,
    audience: str | tuple[str, ...] | None = None,
    query: tuple[str, ...] = (),
    fill: Mapping[str, Fill] | None = None,
    headers: Mapping[str, str] | None = None,
    principal: str | None = None,
    sensitive: bool = False,
    description: str = "",
) -> HttpTool:
    """Describe a tool behind HTTP.

    Args:
        name: letters, digits, ``_`` and ``-``, in parts joined by dots, at most 64; part of some keys.
        url: absolute; ``{name}`` in its path is filled from the args, percent-encoded.
        method: POST (default), PUT, PATCH, DELETE, GET or HEAD.
        args: pydantic model that checks what goes.
        result: pydantic model, or any type that pydantic knows, that checks what comes.
        contract: what the tool promises. Without one it is a write that honours no key (GET and HEAD: a read): an
            unanswered call stays ``unknown``.
        auth: credentials; None = the runtime's own.
        scope: space-separated scopes that an OAuth provider asks for on behalf of this tool, instead of its own.
        audience: whom such a token is for, instead of the provider's own.
        query: names of args for the query string.
        fill: args made once when the step is recorded: ``now``, ``uuid`` or a function.
        headers: plain headers, frozen with the request, and on each request about its jobs on its own origin; no
            secrets.
        principal: name of the identity that requests are sent under, where ``auth`` does not tell it.
        sensitive: an args hash in a header could be guessed; keys are ``uuid`` with HMAC only.
        description: for a model.

    Raises:
        ConfigError: a name, URL, header, format or carrier that cannot work.
    """
    _check_types(Tool, name, locals())
    verb = method.upper()
    one_of("method", verb, METHODS)
    _check_url(name, url)
    check_auth(f"tool {name!r}: ", auth)
    for key, value in (headers or {}).items():
        header_value(header_name(key), value)
        if key.lower() in {"authorization", "proxy-authorization", "cookie"}:
            msg = f"tool {name!r}: header {key!r} is a secret and would be stored; use auth="
            raise ConfigError(msg)
    declared = contract if contract is not None else (READ_ONLY if verb in {"GET", "HEAD"} else NO_CONTRACT)
    _check_sensitive(name, sensitive=sensitive, contract=declared)
    return HttpTool(
        name=name,
        url=url,
        method=verb,
        args=args,
        result=result,
        contract=declared,
        auth=auth,
        scope=scope,
        audience=audience,
        query=tuple(query),
        fill=dict(fill or {}),
        headers=dict(headers or {}),
        principal=principal,
        sensitive=sensitive,
        description=description,
        contract_declared=contract is not None or verb in {"GET", "HEAD"},
    )


def _check_types(maker: Callable[..., Any], name: object, given: Mapping[str, Any]) -> None:
    """Hold what a tool is made of to the annotations; ``auth`` and ``result`` have checks of their own."""
    if not isinstance(name, str):
        msg = f"a tool's name is text, not {shown(name)}"
        raise ConfigError(msg)
    check_name("tool", name)
    rest = {one: value for one, value in given.items() if one not in {"name", "auth", "result"}}
    query = rest.get("query")
    if isinstance(query, list):
        rest["query"] = tuple(query)
    check_arguments(f"tool {name!r}", maker, rest)
    for arg, fill in (rest.get("fill") or {}).items():
        if inspect.iscoroutinefunction(fill):
            msg = f"tool {name!r}: fill[{arg!r}] is async; write a plain function that returns a JSON value"
            raise ConfigError(msg)


def _adapter(name: str, result: Any) -> TypeAdapter[Any]:
    if isinstance(result, str):  # pydantic would look for a class of this name, here
        msg = f"tool {name!r}: result must be a type that pydantic can check, not its name as text"
        raise ConfigError(msg)
    try:
        return TypeAdapter(result)
    except Exception as error:
        given = getattr(result, "__name__", type(result).__name__)
        msg = (
            f"tool {name!r}: result must be a type that pydantic can check, which {given} is not "
            f"({type(error).__name__}); use a pydantic model, a built-in type such as dict, or leave it out"
        )
        raise ConfigError(msg) from error


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or any(ord(char) <= 0x20 or ord(char) == 0x7F for char in url):
        msg = f"tool {name!r}: url must be an absolute http or https URL without spaces"
        raise ConfigError(msg)
    if parts.username or parts.password:
        msg = f"tool {name!r}: url holds a user name or password, which would be stored; use auth="
        raise ConfigError(msg)
    if parts.fragment:
        msg = f"tool {name!r}: url has a fragment, which is never sent"
        raise ConfigError(msg)
    if "{" in (parts.netloc + parts.query):
        msg = f"tool {name!r}: only the path of url can hold {{names}}; put {parts.query!r} into query="
        raise ConfigError(msg)
    if re.sub(r"\{[A-Za-z_][A-Za-z0-9_]*\}", "", parts.path).count("{"):
        msg = f"tool {name!r}: {{names}} in url must be names of args"
        raise ConfigError(msg)


def _check_sensitive(name: str, *, sensitive: bool, contract: ToolContract) -> None:
    if sensitive and contract.idempotency is not None and contract.idempotency.format != "uuid":
        msg = (
            f"tool {name!r} is sensitive: an args hash in a header can be guessed by dictionary; use "
            "Idempotency(format='uuid') and Runtime(key_secret=...)"
        )
        raise ConfigError(msg)


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTool(_ToolBase):
    """A Python function as a tool; made by the decorator `tool`.

    Calling it calls the plain function. ``key_parameter`` names the parameter that takes the key, or is None.
    ``single_request``: the function makes one HTTP request and has no other effect.
    """

    function: Callable[..., Any] = field(repr=False)
    is_async: bool = False
    key_parameter: str | None = None
    single_request: bool = False
    principal: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, outside any session."""
        return self.function(*args, **kwargs)


F = TypeVar("F", bound=Callable[..., Any])


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    contract: ToolContract | None = None,
    description: str | None = None,
    sensitive: bool = False,
    principal: str | None = None,
    single_request: bool = False,
) -> Any:
    """Make a function a tool: its parameters are the args, its return annotation the result.

    A parameter annotated `Key`, or named ``idempotency_key``, receives the key. An exception of the function is
    ambiguous (the step ends ``unknown``) unless it is `NotApplied`. With ``single_request=True``, said of a function
    that makes one HTTP request and has no other effect, an HTTP client's error of the not-sent kinds is proof as well.

    Raises:
        ConfigError: a name or parameter that cannot work.
    """

    def wrap(fn: Callable[..., Any]) -> FunctionTool:
        if not inspect.isroutine(fn):
            msg = f"@tool makes a tool of a function, not of {shown(fn)}; a name goes into @tool(name=...)"
            raise ConfigError(msg)
        return _function_tool(
            fn, name, contract, description, sensitive=sensitive, principal=principal, single_request=single_request
        )

    return wrap if function is None else wrap(function)


def _function_tool(
    fn: Callable[..., Any],
    name: str | None,
    contract: ToolContract | None,
    description: str | None,
    *,
    sensitive: bool,
    principal: str | None,
    single_request: bool,
) -> FunctionTool:
    tool_name = name if name is not None else getattr(fn, "__name__", "")
    settings = {"contract": contract, "description": description, "sensitive": sensitive, "principal": principal}
    _check_types(tool, tool_name, settings)
    hints = _hints(fn, tool_name)
    fields: dict[str, Any] = {}
    key_parameter = None
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            msg = f"tool {tool_name!r}: parameter {parameter.name!r} must be a plain named one"
            raise ConfigError(msg)
        annotation = hints.get(parameter.name, Any)
        if annotation is Key or parameter.name == "idempotency_key":
            key_parameter = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    declared = contract if contract is not None else NO_CONTRACT
    _check_sensitive(tool_name, sensitive=sensitive, contract=declared)
    return FunctionTool(
        name=tool_name,
        args=_args_model(tool_name, fields),
        result=hints.get("return"),
        contract=declared,
        contract_declared=contract is not None,
        description=description if description is not None else inspect.getdoc(fn) or "",
        sensitive=sensitive,
        function=fn,
        is_async=inspect.iscoroutinefunction(fn),
        key_parameter=key_parameter,
        single_request=single_request,
        principal=principal,
    )


def _args_model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(f"{name}_args", __config__={"extra": "forbid"}, **fields)
    except Exception as error:
        msg = f"tool {name!r}: a parameter is annotated with what pydantic cannot check: {error}"
        raise ConfigError(msg) from error


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(fn, include_extras=True)
    except Exception as error:
        msg = f"tool {name!r}: its annotations cannot be read: {error}"
        raise ConfigError(msg) from error


AnyTool = HttpTool | FunctionTool


def warn_without_contract(given: AnyTool, *, stacklevel: int) -> None:
    """Warn once that a registered tool says nothing of what it promises, and what to declare."""
    if given.contract_declared:
        return
    warnings.warn(
        f"tool {given.name!r} has no contract: an unanswered call of it stays unknown and is never sent again. "
        "If it honours an Idempotency-Key, declare contract=ToolContract(idempotency=Idempotency()); "
        "if it only reads, ToolContract(kind='read'); if neither, ToolContract() says so and ends this warning.",
        UserWarning,
        stacklevel=stacklevel,
    )
