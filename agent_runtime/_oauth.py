"""Token requests and token replies as plain values: the only home of Authlib, of which only transport-free parts serve.

The request goes out through the same sender as everything else, so that status, headers and the whole error body of the
authorisation server are seen.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote_plus

from authlib.oauth2.auth import ClientAuth  # type: ignore[import-untyped]
from authlib.oauth2.rfc6749.parameters import prepare_token_request  # type: ignore[import-untyped]

from agent_runtime._core.headers import check_headers
from agent_runtime._core.retry_after import http_date, retry_after
from agent_runtime._core.urls import check_url
from agent_runtime._model import BodyState, Request
from agent_runtime.errors import AuthorisationRequired, ConfigError, TokenRefused, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._model import Answer, Headers

AuthMethod = Literal["client_secret_basic", "client_secret_post"]

_UNKNOWN_LIFETIME = 300.0
_MOST_LEEWAY = 60.0
_LEAST_LEEWAY = 5.0

# RFC 6749 section 5.2 allows these characters in "error"; anything else is not repeated in a message.
_ERROR_CODE = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,64}")
_SECONDS = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_NEW_PROOF = frozenset({"consent_required", "interaction_required", "invalid_grant", "login_required"})
_TRY_AGAIN = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
# Only these outweigh a 5xx: frameworks put the status' own name into "error".
_REFUSALS = frozenset(
    {
        "access_denied",
        "invalid_client",
        "invalid_request",
        "invalid_resource",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
    },
)
_DESCRIPTION = 500


class SecretRequest(Request):
    """A request whose body holds a secret: never kept in the ledger, never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SecretRequest(method={self.method!r}, url={self.url!r})"

    def with_headers(self, extra: Headers) -> Request:
        """Return this request with ``extra`` headers, still hiding its body."""
        plain = Request(method=self.method, url=self.url, body=self.body, headers=self.headers).with_headers(extra)
        return SecretRequest(method=plain.method, url=plain.url, body=plain.body, headers=plain.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What to send to a token endpoint; its repr shows neither body nor headers.

    Attributes:
        request: the POST; its body may hold the client's secret.
        headers: secret headers, to be given to the sender as ``extra_headers``.
    """

    request: Request
    headers: Headers = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A bearer token as it was issued; its repr does not show it.

    Attributes:
        value: the token.
        issued_at: the monotonic clock when the request for it was SENT, so that its age is never too small.
        expires_at: ``issued_at`` plus its lifetime, in seconds of the same clock.
        token_type: ``Bearer``.
        scope: the scope that was granted, or None if it is the one that was asked for.
    """

    value: str = field(repr=False)
    issued_at: float
    expires_at: float
    token_type: str = "Bearer"  # noqa: S105 - a kind of token, not one
    scope: str | None = None

    def fresh(self, now: float) -> bool:
        """Return whether a request sent at ``now`` (same monotonic clock) may still carry it.

        It counts as stale a little early: by a tenth of its lifetime, at least 5 s and at most 60 s; but never by more
        than half of it, or a short-lived token would be asked for anew for every call.
        """
        lifetime = self.expires_at - self.issued_at
        leeway = min(max(_LEAST_LEEWAY, min(_MOST_LEEWAY, 0.1 * lifetime)), 0.5 * lifetime)
        return now < self.expires_at - leeway

    def header(self) -> tuple[str, str]:
        """Return the ``Authorization`` header that carries it (RFC 6750 section 2.1)."""
        return ("Authorization", f"Bearer {self.value}")


def client_credentials_request(
    token_url: str,
    client_id: str,
    client_secret: str,
    *,
    scope: str | None = None,
    audience: str | None = None,
    auth_method: AuthMethod = "client_secret_basic",
) -> TokenRequest:
    """Return the token request of the client credentials grant.

    Args:
        token_url: the token endpoint.
        client_id: the client's id.
        client_secret: its secret.
        scope: scopes, parted by blanks.
        audience: whom the token is for, for servers that want to be told.
        auth_method: ``client_secret_basic`` sends id and secret in a header, each form-encoded from UTF-8 first (many
            libraries leave that out, and fail for secrets with ``%``, ``+``, ``:`` or ``€``);
            ``client_secret_post`` sends them in the body.

    Raises:
        ConfigError: a URL that cannot be sent, no id or secret, an unknown method. No text holds the secret.

    Source: RFC 6749 sections 2.3.1 and 4.4.2.
    """
    check_url(token_url)
    if not client_id or not client_secret:
        raise ConfigError("the client credentials grant needs a client id and a client secret")
    if auth_method == "client_secret_basic":
        # Authlib neither form-encodes the two nor takes characters outside Latin-1; after this it need not.
        client = ClientAuth(quote_plus(client_id), quote_plus(client_secret), auth_method)
    elif auth_method == "client_secret_post":
        client = ClientAuth(client_id, client_secret, auth_method)
    else:
        raise ConfigError("auth_method is client_secret_basic or client_secret_post")
    form = prepare_token_request("client_credentials", scope=scope, audience=audience)
    _, secret, body = client.prepare("POST", token_url, {}, form)
    plain = (("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"))
    return TokenRequest(
        request=SecretRequest(method="POST", url=token_url, body=body.encode("ascii"), headers=plain),
        headers=tuple(secret.items()),
    )


def read_token_reply(answer: Answer, *, sent_at: float, now: float | None = None) -> AccessToken:
    """Return the token that a token endpoint issued.

    Args:
        answer: what came back.
        sent_at: the monotonic clock when the request was sent.
        now: UTC epoch seconds at receipt, for a ``Retry-After`` that is a date; None takes the server's own clock.

    Raises:
        TokenUnavailable: it cannot serve now (408, 425, 429, 5xx, a cut body, ``temporarily_unavailable``); with
            ``retry_after`` in seconds if it named a wait.
        AuthorisationRequired: a person or the application must give new proof; with ``error`` and ``claims``.
        TokenRefused: everything else that is no usable token; with ``error`` and ``status``. Asking again won't help.

    Source: RFC 6749 sections 5.1 and 5.2.
    """
    reply = _object(answer)
    error = reply.get("error")
    code = error if isinstance(error, str) and _ERROR_CODE.fullmatch(error) else None
    # An error's own word goes before the status: some servers say "invalid_client" with 500, some say errors with 200.
    if code in _NEW_PROOF or (code is not None and isinstance(reply.get("claims"), str)):
        message = f"the authorisation server wants new proof ({code})"
        raise AuthorisationRequired(message, error=code, claims=_told(reply, "claims"), description=_described(reply))
    passing = answer.status in {408, 425, 429} or answer.status >= 500
    if code in _TRY_AGAIN or (passing and (code not in _REFUSALS or answer.status == 429)):
        message = f"the authorisation server cannot serve now (HTTP {answer.status})"
        raise TokenUnavailable(message, retry_after=_wait(answer, now))
    if code is not None or answer.status != 200:
        message = f"the authorisation server refused (HTTP {answer.status}, {code or 'no error code'})"
        raise TokenRefused(message, error=code, status=answer.status, description=_described(reply))
    if answer.body_state is not BodyState.WHOLE:
        message = f"the token reply came {answer.body_state.value}"
        raise TokenUnavailable(message, retry_after=None)
    return _token(reply, sent_at)


def _token(reply: dict[str, Any], sent_at: float) -> AccessToken:
    """Check a 200 reply member by member; never by truthiness, an ``expires_in`` of 0 is no missing one."""
    value, kind, scope = reply.get("access_token"), reply.get("token_type"), reply.get("scope")
    if not isinstance(value, str) or value == "":
        raise TokenRefused("the token reply holds no access token", error=None, status=200)
    # Missing: RFC 6749 requires it, but servers that leave it out mean bearer tokens. "N_A" (RFC 8693) and DPoP do not.
    if kind is not None and not (isinstance(kind, str) and kind.lower() == "bearer"):
        raise TokenRefused("the token reply holds a token that is no bearer token", error=None, status=200)
    try:
        check_headers((("Authorization", f"Bearer {value}"),))
    except ConfigError:
        raise TokenRefused("the token reply holds a token that no header can carry", error=None, status=200) from None
    return AccessToken(
        value=value,
        issued_at=sent_at,
        expires_at=sent_at + _lifetime(reply.get("expires_in")),
        scope=scope if isinstance(scope, str) else None,
    )


def _lifetime(expires_in: object) -> float:
    """Return seconds: text is read as a number, nothing usable means 300, nothing left means 0 (to be used once)."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, (int, float, str)):
        return _UNKNOWN_LIFETIME
    text = str(expires_in).strip()
    if _SECONDS.fullmatch(text) is None:  # also "inf", "nan", "1e999"
        return _UNKNOWN_LIFETIME
    return max(0.0, float(text))


def _object(answer: Answer) -> dict[str, Any]:
    if answer.body_state is not BodyState.WHOLE:
        return {}
    try:
        reply = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


def _told(reply: dict[str, Any], name: str) -> str | None:
    value = reply.get(name)
    return value if isinstance(value, str) else None


def _described(reply: dict[str, Any]) -> str | None:
    description = _told(reply, "error_description")
    return None if description is None else description[:_DESCRIPTION]


def _wait(answer: Answer, now: float | None) -> float | None:
    if now is None:
        now = next((date for text in answer.header_list("date") if (date := http_date(text)) is not None), None)
    if now is None:
        # Without any clock a date says nothing; one far ahead makes it the past, numbers are read as they stand.
        return retry_after(answer.headers, now=float("inf"), status=answer.status) or None
    return retry_after(answer.headers, now=now, status=answer.status)
