"""Under which identity a tool's requests go, and the credentials that are at hand."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from agent_runtime._core.effects import Credential
from agent_runtime._core.headers import check_headers
from agent_runtime._core.tokens import token_id
from agent_runtime.config import ApiKey, FunctionTool, StaticToken
from agent_runtime.config.auth import OAuth, OnBehalfOf, RefreshToken, TokenExchange, check_can_be_sent, part
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime.config import AnyTool, Auth

NO_PRINCIPAL = "none"
OF_SETTINGS = "bring another credential in the settings, one that has the claims that it names"
OF_FUNCTION = "let the token function return another token, one that has the claims that it names"
OF_NOTHING = "the tool has no credential; give it one in the settings (auth=) that has the claims that it names"


def auth_of(tool: AnyTool, default: Auth | None) -> Auth | None:
    """Return the credentials of a tool: its own, or the runtime's; a function tool has none."""
    if isinstance(tool, FunctionTool):
        return None
    return tool.auth if tool.auth is not None else default


def principal_of(tool: AnyTool, default: Auth | None, actor: str | None = None) -> str:
    """Return the identity that a tool's requests are sent under; never read from a token.

    It is issuer, client and subject of an OAuth provider, with who acts (``by``) and what the tool declares (``as``)
    behind it; else what the tool declares, or the name that the provider has. Names are escaped, so that no two
    identities make one text.

    Args:
        tool: whose requests.
        default: the runtime's credentials.
        actor: on whose behalf the session calls.

    Raises:
        ConfigError: the provider acts for a user, and the session does not say for whom.
    """
    auth = auth_of(tool, default)
    if not isinstance(auth, OAuth):
        if tool.principal is not None:
            return tool.principal
        return auth.principal if auth is not None else NO_PRINCIPAL
    parts = [auth.principal]
    if isinstance(auth, TokenExchange) and auth.subject is not None:
        parts.append(f"of {part(auth.subject.principal)}")
    elif isinstance(auth, OnBehalfOf | TokenExchange):
        if actor is None:
            msg = (
                f"tool {tool.name!r} acts for a user, and this session does not say for whom. Nothing was sent. Open "
                "it with actor= (a name that stays the same when the user's token is renewed) and subject_token="
            )
            raise ConfigError(msg)
        parts.append(part(actor))
    if isinstance(auth, TokenExchange) and auth.actor_token is not None:
        parts.append(f"by {part(auth.actor_token.principal)}")
    if tool.principal is not None:
        parts.append(f"as {part(tool.principal)}")
    return "#".join(parts)


def advice(auth: OAuth, actor: str | None) -> str:
    """Return what a person must do where the authorisation server wants new proof."""
    if isinstance(auth, RefreshToken):
        return f"authorise account {auth.account!r} anew and bring its new refresh token in the settings"
    if isinstance(auth, TokenExchange) and isinstance(auth.subject, OAuth):
        return advice(auth.subject, None)
    if isinstance(auth, OnBehalfOf | TokenExchange) and getattr(auth, "subject", None) is None:
        return (
            f"let {actor or 'the user'} sign in again and bring the new token: session.authenticate(subject_token=...)"
        )
    return f"let an administrator of {auth.server} look at client {auth.client_id!r}"


def ready_made(auth: Auth | None, principal: str) -> Credential | None:
    """Return the credential of settings that hold it, or None where it has to be asked for."""
    if auth is None:
        return Credential(principal=principal, renewal=OF_NOTHING)
    if isinstance(auth, StaticToken):
        return bearer(auth.token, principal, OF_SETTINGS)
    if isinstance(auth, ApiKey):
        return Credential(((auth.header, auth.key),), principal, token_id(auth.key), renewal=OF_SETTINGS)
    return None


def bearer(token: str, principal: str, renewal: str = "") -> Credential:
    """Return a bearer credential, or raise `ConfigError` for a token that a header cannot carry."""
    headers = (("Authorization", f"Bearer {token}"),)
    check_headers(headers)
    return Credential(headers, principal, token_id(token), renewal=renewal)


def checked_token(token: object, whose: str) -> str:
    """Return what a token function gave, or raise `ConfigError` if it is no text."""
    if not isinstance(token, str) or not token:
        msg = f"the token function of {whose!r} returned {type(token).__name__}, not a token; nothing was sent"
        raise ConfigError(msg)
    check_can_be_sent(f"the token of {whose!r}", token)
    return token


def refuse_awaitable(token: Any) -> None:
    """Raise `ConfigError` for an awaitable token in a blocking session."""
    if inspect.isawaitable(token):
        if inspect.iscoroutine(token):
            token.close()
        raise ConfigError("an async token function needs an AsyncSession; nothing was sent")
