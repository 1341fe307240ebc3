"""Credentials as settings: what is sent to prove who calls. Secrets never show in a repr."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from agent_runtime.config._checks import header_name, header_value, one_of
from agent_runtime.errors import ConfigError

TokenFunction = Callable[[], "str | Awaitable[str]"]


@runtime_checkable
class AuthProvider(Protocol):
    """Anything of this module that a tool can take as ``auth=``; ``principal`` names the identity, never the secret."""

    @property
    def principal(self) -> str:
        """The identity that requests are sent under; part of the operation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticToken:
    """A bearer token that never changes.

    Attributes:
        token: sent as ``Authorization: Bearer <token>``.
        principal: name of the identity behind it, for example an account id; not the token.
    """

    token: str = field(repr=False)
    principal: str = "static-token"

    def __post_init__(self) -> None:
        header_value("Authorization", self.token)
        if not self.token:
            raise ConfigError("StaticToken(token=) is empty; nothing was sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key in a header of its own."""

    key: str = field(repr=False)
    header: str = "X-API-Key"
    principal: str = "api-key"

    def __post_init__(self) -> None:
        header_name(self.header)
        header_value(self.header, self.key)
        if not self.key:
            raise ConfigError("ApiKey(key=) is empty; nothing was sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCallable:
    """A function of the user's own that returns a bearer token, plain or awaitable; asked before every send."""

    function: TokenFunction = field(repr=False)
    principal: str = "callable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """OAuth 2.0 client credentials grant (RFC 6749 section 4.4).

    Attributes:
        token_url: token endpoint, an absolute https or http URL.
        client_id, client_secret: of the client.
        scope: space-separated scopes, or None.
        audience: sent as ``audience`` where the server wants one.
        auth_method: ``client_secret_basic`` or ``client_secret_post``.
    """

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    audience: str | None = None
    auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"

    def __post_init__(self) -> None:
        one_of("auth_method", self.auth_method, ("client_secret_basic", "client_secret_post"))
        if not self.token_url.startswith(("https://", "http://")):
            msg = f"token_url must be an absolute URL, not {self.token_url!r}"
            raise ConfigError(msg)

    @property
    def principal(self) -> str:
        """Issuer and client; there is no subject in this grant."""
        return f"{self.token_url}#{self.client_id}"


Auth = StaticToken | ApiKey | TokenCallable | ClientCredentials
