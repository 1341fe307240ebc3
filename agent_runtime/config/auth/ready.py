"""Credentials that are at hand: a static token, an API key, a function of the user's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from agent_runtime.config._checks import check_settings, header_name, header_value
from agent_runtime.config.auth._secret import Secretive
from agent_runtime.errors import ConfigError

TokenFunction = Callable[[], "str | Awaitable[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticToken(Secretive):
    """A bearer token that never changes.

    Attributes:
        token: sent as ``Authorization: Bearer <token>``.
        principal: name of the identity behind it, for example an account id; not the token.
    """

    token: str = field(repr=False)
    principal: str = "static-token"

    def __post_init__(self) -> None:
        check_settings(self)
        header_value("Authorization", self.token)
        if not self.token:
            raise ConfigError("StaticToken(token=) is empty; nothing was sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Secretive):
    """An API key in a header of its own."""

    key: str = field(repr=False)
    header: str = "X-API-Key"
    principal: str = "api-key"

    def __post_init__(self) -> None:
        check_settings(self)
        header_name(self.header)
        header_value(self.header, self.key)
        if not self.key:
            raise ConfigError("ApiKey(key=) is empty; nothing was sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCallable(Secretive):
    """A function of the user's own that returns a bearer token, plain or awaitable; asked before every send."""

    function: TokenFunction = field(repr=False)
    principal: str = "callable"

    def __post_init__(self) -> None:
        check_settings(self)
