"""The protocol of one token request: find the endpoint, ask, read the reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Boottime, NewId, NoCredential, Now, Send, ask
from agent_runtime._core.retry_after import retry_after
from agent_runtime._drive.tokens.identity import advice
from agent_runtime._model import Answer, Request
from agent_runtime._oauth import LIKE_A_TOKEN, metadata_urls, read_metadata, read_token_reply, repeats, token_request
from agent_runtime.config import defaults
from agent_runtime.config.auth import TokenExchange
from agent_runtime.errors import AuthorisationRequired, TokenRefused, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import AccessToken
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._model import Headers, SendFailure
    from agent_runtime._oauth import Grant
    from agent_runtime.config.auth import OAuth

BODY_LIMIT = 1024 * 1024
ENDPOINT_KEPT = 24 * 3600.0
"""Seconds for which an issuer's token endpoint is remembered."""
ENDING = NoCredential("unavailable", "the runtime is being closed; the authorisation server was not asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back from a token endpoint, and when the request was sent by both clocks."""

    result: Answer | SendFailure = field(repr=False)
    sent_at: float
    sent_on: float


def fetch(store: TokenStore, grant: Grant) -> Steps[AccessToken | NoCredential]:
    """Ask for a token; asking twice does no harm with the grants that come here."""
    url = yield from endpoint(store, grant.auth)
    if isinstance(url, NoCredential):
        return url
    reply = yield from request(store, grant, url)
    return read(grant, reply)


def endpoint(store: TokenStore, auth: OAuth) -> Steps[str | NoCredential]:
    """Return the token endpoint of a provider, or why it may not be asked now."""
    if store.ending:
        return ENDING
    url = yield from _known_endpoint(store, auth)
    closed = None if isinstance(url, NoCredential) else (yield from left_alone(store, url))
    return url if closed is None else closed


def left_alone(store: TokenStore, url: str) -> Steps[NoCredential | None]:
    """Return why a token endpoint may not be asked now, or None: it wants to be left alone, or the runtime ends."""
    if store.ending:
        return ENDING
    now = yield from ask(Boottime())
    left = store.closed_for(url, now)
    if left is None:
        return None
    message = f"the authorisation server has asked to be left alone for {left:.0f} s more; it was not asked"
    return NoCredential("unavailable", message, left)


def _known_endpoint(store: TokenStore, auth: OAuth) -> Steps[str | NoCredential]:
    """Return the token endpoint of a provider: as set, or as the issuer's metadata name it."""
    if auth.token_url is not None:
        return auth.token_url
    assert auth.issuer is not None
    now = yield from ask(Boottime())
    known = store.endpoints.get(auth.issuer)
    if known is not None and now - known[1] < ENDPOINT_KEPT:
        return known[0]
    for url in metadata_urls(auth.issuer):
        answer = yield from ask(_send(Request(method="GET", url=url, headers=(("Accept", "application/json"),))))
        if not isinstance(answer, Answer):
            return NoCredential("unavailable", f"the issuer {auth.issuer} gave no answer ({answer.error})")
        try:
            found = read_metadata(answer, auth.issuer)
        except TokenUnavailable as error:
            return NoCredential("unavailable", str(error), error.retry_after)
        except TokenRefused as error:
            return NoCredential("refused", str(error))
        if found is not None:
            store.endpoints[auth.issuer] = (found, now)
            return found
    return NoCredential("refused", f"the issuer {auth.issuer} publishes no metadata; set token_url=")


def request(store: TokenStore, grant: Grant, url: str) -> Steps[Reply]:
    """Send one token request, and note a wait that its answer names.

    Each is made anew: a client's assertion is never sent twice.
    """
    sent_on = yield from ask(Now())
    jti = yield from ask(NewId())
    wanted = token_request(grant, url, jti=jti, now=sent_on)
    sent_at = yield from ask(Boottime())
    result = yield from ask(_send(wanted.request, wanted.headers))
    if isinstance(result, Answer) and result.status in {429, 503}:
        wait = retry_after(result.headers, now=(yield from ask(Now())), status=result.status)
        if wait is not None:
            store.close_endpoint(url, (yield from ask(Boottime())), wait)
    return Reply(result=result, sent_at=sent_at, sent_on=sent_on)


def _send(what: Request, headers: Headers = ()) -> Send:
    return Send(
        what,
        headers,
        connect=defaults.CONNECT_TIMEOUT,
        read=defaults.READ_TIMEOUT,
        deadline=defaults.READ_TIMEOUT,
        body_limit=BODY_LIMIT,
    )


def read(grant: Grant, reply: Reply) -> AccessToken | NoCredential:
    """Return the token that a reply holds, or why there is none and what to do."""
    result, auth = reply.result, grant.auth
    if not isinstance(result, Answer):
        return NoCredential("unavailable", f"the token endpoint gave no answer ({result.error})")
    try:
        exchanged = isinstance(auth, TokenExchange)
        token = read_token_reply(
            result, sent_at=reply.sent_at, now=reply.sent_on, exchanged=exchanged, secrets=_secrets(grant)
        )
        return _own(grant, token)
    except AuthorisationRequired as error:
        message = f"{error}: {advice(auth, grant.name)}"
        return NoCredential(
            "required",
            message,
            error=getattr(error, "error", None),
            claims=_harmless_claims(grant, getattr(error, "claims", None)),
            description=_harmless(grant, getattr(error, "description", None)),
        )
    except TokenRefused as error:
        description = _harmless(grant, getattr(error, "description", None))
        return NoCredential(
            "refused",
            f"{error}: look at the settings of client {auth.client_id!r}",
            error=error.error,
            description=description,
        )
    except TokenUnavailable as error:
        return NoCredential("unavailable", str(error), error.retry_after)


def _harmless(grant: Grant, text: str | None) -> str | None:
    """Return what a server says for people, without what may be a secret: servers repeat what they were sent."""
    if text is None or repeats(text, _secrets(grant)):
        return None
    return LIKE_A_TOKEN.sub("[cut]", text)


def _harmless_claims(grant: Grant, claims: str | None) -> str | None:
    """Return claims as they are, or None where they repeat a secret: cut, they would be of no use."""
    return None if claims is None or repeats(claims, _secrets(grant)) else claims


def _secrets(grant: Grant) -> tuple[str, ...]:
    key = grant.auth.private_key
    known = (grant.subject, grant.actor, grant.auth.client_secret, key.key if key is not None else None)
    return tuple(secret for secret in known if secret)


def _own(grant: Grant, token: AccessToken) -> AccessToken | NoCredential:
    """Refuse a token that is what the server was sent: it would hand the user's own proof, or ours, to a tool."""
    if token.value not in _secrets(grant):
        return token
    return NoCredential(
        "refused",
        f"the authorisation server gave client {grant.auth.client_id!r} back what it was sent, in place of a token; "
        "it was not used",
    )
