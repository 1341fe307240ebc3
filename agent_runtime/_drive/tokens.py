"""Credentials for each send: kept in memory while fresh, one request at a time for each provider."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Acquire, Credential, NoCredential, Now, Send, ask
from agent_runtime._core.headers import check_headers
from agent_runtime._model import Answer
from agent_runtime._oauth import client_credentials_request, read_token_reply
from agent_runtime.config import ApiKey, ClientCredentials, FunctionTool, StaticToken, defaults
from agent_runtime.errors import AuthorisationRequired, ConfigError, TokenRefused, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._oauth import AccessToken
    from agent_runtime.config import AnyTool, Auth

BODY_LIMIT = 1024 * 1024
NO_PRINCIPAL = "none"


def auth_of(tool: AnyTool, default: Auth | None) -> Auth | None:
    """Return the credentials of a tool: its own, or the runtime's; a function tool has none."""
    if isinstance(tool, FunctionTool):
        return None
    return tool.auth if tool.auth is not None else default


def principal_of(tool: AnyTool, default: Auth | None) -> str:
    """Return the identity that a tool's requests are sent under."""
    if tool.principal is not None:
        return tool.principal
    auth = auth_of(tool, default)
    return auth.principal if auth is not None else NO_PRINCIPAL


class TokenStore:
    """Access tokens in memory, and the locks that make one request serve all who wait. Strictly private."""

    def __init__(self) -> None:
        self.tokens: dict[ClientCredentials, AccessToken] = {}
        self._locks: dict[ClientCredentials, threading.Lock] = {}
        self._async_locks: dict[tuple[int, ClientCredentials], asyncio.Lock] = {}
        self._guard = threading.Lock()

    def lock(self, auth: ClientCredentials) -> threading.Lock:
        """Return the lock of a provider for threads."""
        with self._guard:
            return self._locks.setdefault(auth, threading.Lock())

    def async_lock(self, auth: ClientCredentials) -> asyncio.Lock:
        """Return the lock of a provider for the tasks of the running loop."""
        with self._guard:
            return self._async_locks.setdefault((id(asyncio.get_running_loop()), auth), asyncio.Lock())


def ready_made(tool: AnyTool, auth: Auth | None) -> Credential | None:
    """Return the credential of settings that hold it, or None where it has to be asked for."""
    principal = principal_of(tool, auth)
    own = auth_of(tool, auth)
    if own is None:
        return Credential(principal=principal)
    if isinstance(own, StaticToken):
        return bearer(own.token, principal)
    if isinstance(own, ApiKey):
        return Credential(((own.header, own.key),), principal, token_id(own.key))
    return None


def bearer(token: object, principal: str) -> Credential:
    """Return a bearer credential, or raise `ConfigError` if a token function gave no text."""
    if not isinstance(token, str) or not token:
        msg = f"the token function of {principal!r} returned {type(token).__name__}, not a token; nothing was sent"
        raise ConfigError(msg)
    headers = (("Authorization", f"Bearer {token}"),)
    check_headers(headers)
    return Credential(headers, principal, token_id(token))


def token_id(secret: str) -> str:
    """Return what tells secrets apart without showing them."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def refuse_awaitable(token: object) -> None:
    """Raise `ConfigError` for an awaitable token in a blocking session."""
    if inspect.isawaitable(token):
        if inspect.iscoroutine(token):
            token.close()
        raise ConfigError("an async token function needs an AsyncSession; nothing was sent")


def exchange(store: TokenStore, auth: ClientCredentials, acquire: Acquire) -> Steps[Credential | NoCredential]:
    """Return a fresh token of the store, or fetch one; its holder has the provider's lock."""
    now = yield from ask(Now())
    principal = principal_of(acquire.tool, auth)
    held = store.tokens.get(auth)
    if held is not None and held.fresh(now) and token_id(held.value) != acquire.rejected:
        return bearer(held.value, principal)
    wanted = client_credentials_request(
        auth.token_url,
        auth.client_id,
        auth.client_secret,
        scope=auth.scope,
        audience=auth.audience,
        auth_method=auth.auth_method,
    )
    send = Send(
        wanted.request,
        wanted.headers,
        connect=defaults.CONNECT_TIMEOUT,
        read=defaults.READ_TIMEOUT,
        deadline=defaults.READ_TIMEOUT,
        body_limit=BODY_LIMIT,
    )
    reply = yield from ask(send)
    if not isinstance(reply, Answer):
        return NoCredential("unavailable", f"the token endpoint gave no answer ({reply.error})")
    try:
        token = read_token_reply(reply, sent_at=now, now=now)
    except AuthorisationRequired as error:
        return NoCredential("required", str(error))
    except TokenRefused as error:
        return NoCredential("refused", str(error))
    except TokenUnavailable as error:
        return NoCredential("unavailable", str(error), error.retry_after)
    store.tokens[auth] = token
    return bearer(token.value, principal)
