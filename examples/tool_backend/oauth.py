"""A token desk: issues Bearer tokens for client credentials, knows whom a token stands for, refuses the rest."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote_plus

from examples.tool_backend.answers import Answer, json_answer, problem
from examples.tool_backend.keys import Refused
from examples.tool_backend.store import PREFIX

if TYPE_CHECKING:
    from fastapi import Request
    from redis.asyncio import Redis

    from examples.tool_backend.settings import Settings

ANONYMOUS = "anonymous"
_REALM = 'Bearer realm="tool-backend"'
_ISSUED = f"{PREFIX}oauth:issued"
_REVOKED = f"{PREFIX}oauth:revoked"


class TokenDesk:
    """Issues tokens and names the caller of a request."""

    def __init__(self, valkey: Redis, settings: Settings) -> None:
        self._valkey = valkey
        self._settings = settings

    async def issue(self, request: Request) -> Answer:
        """Answer a token request (RFC 6749, 4.4), the client's secret in the header or in the form."""
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        client, secret, challenge = _client_of(request, form)
        expected = self._settings.clients.get(client)
        if expected is None or not hmac.compare_digest(expected.encode(), secret.encode()):
            return _oauth_error(401, "invalid_client", challenge)
        if form.get("grant_type") != "client_credentials":
            return _oauth_error(400, "unsupported_grant_type")
        token = secrets.token_urlsafe(32)
        await self._valkey.set(_token_entry(token), client, ex=self._settings.token_seconds)
        await self._valkey.incr(_ISSUED)
        granted = {"access_token": token, "token_type": "Bearer", "expires_in": self._settings.token_seconds}
        if "scope" in form:
            granted["scope"] = form["scope"]
        return _never_cached(json_answer(granted))

    async def issued(self) -> int:
        """Return how many tokens were issued."""
        return int(await self._valkey.get(_ISSUED) or 0)

    async def caller(self, request: Request) -> str:
        """Return whose operations a request is about, or refuse it with 401.

        The principal, never the token: a refreshed token must find what its predecessor did. Where tokens are not
        demanded, ``X-Caller`` names the caller; failing that, a credential of unknown origin is its own principal.
        """
        credential = request.headers.get("authorization", "")
        if await self._valkey.sismember(_REVOKED, _digest(credential)):
            raise Refused(_challenge("The token is no longer valid.", error=True))
        scheme, _, token = credential.partition(" ")
        client = await self._valkey.get(_token_entry(token.strip())) if scheme.lower() == "bearer" else None
        if client is not None:
            return f"client:{client.decode()}"
        if self._settings.require_token:
            detail = "The token is unknown or has expired." if credential else "A Bearer token is wanted."
            raise Refused(_challenge(detail, error=bool(credential)))
        named = request.headers.get("x-caller")
        if named:
            return f"caller:{named}"
        return f"credential:{_digest(credential)}" if credential else ANONYMOUS

    async def revoke(self, request: Request) -> Answer:
        """Refuse this request's credential from now on; the answer is the 401 that says so."""
        await self._valkey.sadd(_REVOKED, _digest(request.headers.get("authorization", "")))
        return _challenge("The token is no longer valid.", error=True)


def _client_of(request: Request, form: dict[str, str]) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return id and secret of the client, and the challenge that its way of sending them calls for."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return form.get("client_id", ""), form.get("client_secret", ""), ()
    try:
        client, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        client, secret = "", ""
    return unquote_plus(client), unquote_plus(secret), (("WWW-Authenticate", 'Basic realm="tool-backend"'),)


def _oauth_error(status: int, code: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    answer = json_answer({"error": code}, status=status)
    return _never_cached(Answer(answer.status, answer.body, (*answer.headers, *headers)))


def _never_cached(answer: Answer) -> Answer:
    return Answer(answer.status, answer.body, (*answer.headers, ("Cache-Control", "no-store")))


def _challenge(detail: str, *, error: bool) -> Answer:
    # RFC 6750, 3.1: a request without any credential is told no error code.
    value = f'{_REALM}, error="invalid_token", error_description="{detail}"' if error else _REALM
    return problem(401, "unauthorised", detail, headers=(("WWW-Authenticate", value),))


def _token_entry(token: str) -> str:
    return f"{PREFIX}oauth:token:{_digest(token)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
