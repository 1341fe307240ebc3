"""Replies of token endpoints, read member by member."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent_runtime._core.headers import check_headers
from agent_runtime._core.job_start import json_of
from agent_runtime._core.retry_after import http_date, retry_after
from agent_runtime._core.tokens import AccessToken
from agent_runtime._model import BodyState
from agent_runtime._oauth.echoes import may_be_shown
from agent_runtime.config import defaults
from agent_runtime.config.auth import ACCESS_TOKEN, JWT, can_be_sent
from agent_runtime.errors import AuthorisationRequired, ConfigError, TokenRefused, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._model import Answer

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
_KNOWN = _NEW_PROOF | _TRY_AGAIN | _REFUSALS
_ALSO_CALLED = {"bad_refresh_token": "invalid_grant"}
"""GitHub's word, which comes with status 200, and the standard's."""
_DESCRIPTION = 500
_ACCESS_KINDS = frozenset({ACCESS_TOKEN, JWT})


def read_token_reply(
    answer: Answer,
    *,
    sent_at: float,
    now: float | None = None,
    exchanged: bool = False,
    secrets: tuple[str, ...] = (),
) -> AccessToken:
    """Return the token that a token endpoint issued.

    Args:
        answer: what came back.
        sent_at: the boot-time clock when the request was sent.
        now: UTC epoch seconds at receipt, for a ``Retry-After`` that is a date; None takes the server's own clock.
        exchanged: it answers a token exchange, so ``issued_token_type`` must say what kind it is.
        secrets: that were sent; an error code that repeats one, or is no plain word, is not told.

    Raises:
        TokenUnavailable: it cannot serve now (408, 425, 429, 5xx, a cut body, ``temporarily_unavailable``); with
            ``retry_after`` in seconds if it named a wait.
        AuthorisationRequired: a person or the application must give new proof; with ``error`` and ``claims``.
        TokenRefused: everything else that is no usable token; with ``error`` and ``status``. Asking again won't help.

    Source: RFC 6749 sections 5.1 and 5.2, RFC 8693 section 2.2.
    """
    reply = json_of(answer)
    failed = isinstance(reply.get("error"), str)
    code, word = _code(reply.get("error"), secrets)
    # An error's own word goes before the status: some servers say "invalid_client" with 500, some say errors with 200.
    if code in _NEW_PROOF or (failed and isinstance(reply.get("claims"), str)):
        message = f"the authorisation server wants new proof ({word})"
        raise AuthorisationRequired(message, error=code, claims=_told(reply, "claims"), description=_described(reply))
    passing = answer.status in {408, 425, 429} or answer.status >= 500
    if code in _TRY_AGAIN or (passing and (code not in _REFUSALS or answer.status == 429)):
        message = f"the authorisation server cannot serve now (HTTP {answer.status})"
        raise TokenUnavailable(message, retry_after=_wait(answer, now))
    if failed or answer.status != 200:
        message = f"the authorisation server refused (HTTP {answer.status}, {word})"
        raise TokenRefused(message, error=code, status=answer.status, description=_described(reply))
    if answer.body_state is not BodyState.WHOLE:
        message = f"the token reply came {answer.body_state.value}"
        raise TokenUnavailable(message, retry_after=None)
    if exchanged and reply.get("issued_token_type") not in _ACCESS_KINDS:
        message = "the exchange's reply does not say that it holds an access token"
        raise TokenRefused(message, error=None, status=200)
    return _token(reply, sent_at)


def _code(error: object, secrets: tuple[str, ...]) -> tuple[str | None, str]:
    """Return an error code by its standard name, or None, and how it is told to people."""
    if not isinstance(error, str):
        return None, "no error code"
    if error in _KNOWN or may_be_shown(error, secrets):
        return _ALSO_CALLED.get(error, error), error
    return None, "an error code that is not shown"


def refresh_token_of(answer: Answer) -> str | None:
    """Return the refresh token of a reply that holds an access token, or None: then the old one goes on."""
    token = json_of(answer).get("refresh_token")
    return token if isinstance(token, str) and token and can_be_sent(token) else None


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
    renewed = reply.get("refresh_token")
    if renewed == value:
        raise TokenRefused("the token reply holds its refresh token as access token", error=None, status=200)
    if isinstance(renewed, str) and not can_be_sent(renewed):
        message = "the token reply holds a refresh token that no request can carry"
        raise TokenRefused(message, error=None, status=200)
    return AccessToken(
        value=value,
        issued_at=sent_at,
        expires_at=sent_at + _lifetime(reply.get("expires_in")),
        scope=scope if isinstance(scope, str) else None,
    )


def _lifetime(expires_in: object) -> float:
    """Return seconds: text is read as a number, nothing usable means 300, nothing left means 0 (to be used once)."""
    if isinstance(expires_in, bool) or not isinstance(expires_in, (int, float, str)):
        return defaults.TOKEN_LIFETIME_UNTOLD
    text = str(expires_in).strip()
    if _SECONDS.fullmatch(text) is None:  # also "inf", "nan", "1e999"
        return defaults.TOKEN_LIFETIME_UNTOLD
    return max(0.0, float(text))


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
