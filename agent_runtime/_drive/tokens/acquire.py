"""The protocol that gets a credential for one send: at hand, from memory, or fetched once for all who wait."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_runtime._core.effects import Boottime, Credential, NoCredential, Obtain, Share, ask
from agent_runtime._core.tokens import seed_digest, token_id
from agent_runtime._drive.tokens.fetch import fetch
from agent_runtime._drive.tokens.identity import OF_FUNCTION, advice, auth_of, bearer, principal_of, ready_made
from agent_runtime._drive.tokens.rotation import rotate
from agent_runtime._drive.tokens.scopes import note_scope
from agent_runtime._drive.tokens.sharing import share
from agent_runtime._oauth import Grant
from agent_runtime.config import FunctionTool, TokenCallable
from agent_runtime.config.auth import OAuth, OnBehalfOf, RefreshToken, StaticToken, TokenExchange, texts

if TYPE_CHECKING:
    from agent_runtime._core.effects import Acquire, Steps
    from agent_runtime._core.tokens import AccessToken, Subject
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime.config import Auth, HttpTool
    from agent_runtime.config.auth import SubjectToken

SUBJECT_REFUSED = frozenset({"invalid_grant", "invalid_request", "invalid_token"})
"""What servers say of a subject's token that they do not take; RFC 8693 section 2.2.2 has ``invalid_request``."""
CacheKey = tuple[str | tuple[str, ...] | None, ...]

TRIES = 3
"""Flights that one caller joins or begins before it says that there is no token now."""


def acquire(store: TokenStore, effect: Acquire, default: Auth | None) -> Steps[Credential | NoCredential]:
    """Return a credential that is good now.

    Raises:
        ConfigError: settings, or a user's token function, that cannot work.
    """
    auth = auth_of(effect.tool, default)
    subject = effect.subject
    principal = principal_of(effect.tool, default, subject.name if subject is not None else None)
    if principal != effect.principal:
        return Credential(principal=principal)  # the protocol refuses it
    made = ready_made(auth, principal)
    if made is not None:
        return made
    if isinstance(auth, TokenCallable):
        return bearer((yield from ask(Obtain(auth.function, auth.principal))), principal, OF_FUNCTION)
    assert isinstance(auth, OAuth)
    assert not isinstance(effect.tool, FunctionTool)
    store.check(effect.tool, default)
    now = yield from ask(Boottime())
    wanted = _Wanted(store, effect.tool, subject, now + effect.within)
    got = yield from _granted(wanted, auth, effect.rejected)
    if isinstance(got, NoCredential):
        return got
    grant, token = got
    credential = bearer(token.value, principal)
    return dataclasses.replace(credential, granted=store.granted.get(cache_key(grant), ""))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one caller wants: for which tool, on whose behalf, and until when (boot-time clock) it can wait."""

    store: TokenStore
    tool: HttpTool | None
    subject: Subject | None
    until: float


def _refuses_subject(auth: OAuth, got: AccessToken | NoCredential) -> bool:
    """Whether the server may mean the token of a provider that an exchange has for its subject."""
    if not isinstance(auth, TokenExchange) or not isinstance(auth.subject, OAuth):
        return False
    return isinstance(got, NoCredential) and got.error in SUBJECT_REFUSED


def _granted(wanted: _Wanted, auth: OAuth, rejected: str | None) -> Steps[tuple[Grant, AccessToken] | NoCredential]:
    """Return a token and what it was asked by; a subject's token that is refused is replaced once."""
    grant = yield from _grant(wanted, auth)
    if isinstance(grant, NoCredential):
        return grant
    token = yield from _token(wanted, grant, rejected)
    if _refuses_subject(auth, token):
        assert grant.subject is not None
        grant = yield from _grant(wanted, auth, refused=token_id(grant.subject))
        if isinstance(grant, NoCredential):
            return grant
        token = yield from _token(wanted, grant, rejected)
        if isinstance(token, NoCredential) and _refuses_subject(auth, token):
            told = f"{token.message}. A fresh token of the subject was refused as well: {advice(auth, None)}"
            return dataclasses.replace(token, message=told)
    return token if isinstance(token, NoCredential) else (grant, token)


def _grant(wanted: _Wanted, auth: OAuth, refused: str | None = None) -> Steps[Grant | NoCredential]:
    """Find out everything that a token request holds; what is asked for by a tool goes before the provider's own.

    ``refused``: id of the token of the account that is the subject, where the server does not take it.
    """
    tool, subject = wanted.tool, wanted.subject
    scope = tool.scope if tool is not None and tool.scope is not None else auth.scope
    audience = tool.audience if tool is not None and tool.audience is not None else auth.audience
    proof: str | NoCredential | None = None
    acting: str | NoCredential | None = None
    if isinstance(auth, RefreshToken) and not auth.rotates:
        proof = yield from _text(auth.refresh_token, auth.principal)
    elif isinstance(auth, TokenExchange) and auth.subject is not None:
        proof = yield from _of_provider(wanted, auth.subject, refused)
    elif isinstance(auth, OnBehalfOf | TokenExchange):
        proof = yield from _of_session(auth, subject)
    if isinstance(auth, TokenExchange) and auth.actor_token is not None and not isinstance(proof, NoCredential):
        acting = yield from _of_provider(wanted, auth.actor_token)
    if isinstance(proof, NoCredential):
        return proof
    if isinstance(acting, NoCredential):
        return acting
    return Grant(
        auth=auth,
        scopes=tuple(sorted(set((scope or "").split()))),
        audiences=texts(audience),
        resources=texts(auth.resource),
        subject=proof,
        actor=acting,
        name=subject.name if subject is not None else None,
    )


def _of_session(auth: OnBehalfOf | TokenExchange, subject: Subject | None) -> Steps[str | NoCredential]:
    if subject is None or subject.token is None:
        name = subject.name if subject is not None else None
        message = f"no token of {name or 'the user'} is at hand: {advice(auth, name)}"
        return NoCredential("required", message, error="subject_token_missing")
    return (yield from _text(subject.token, subject.name or "the user"))


def _of_provider(wanted: _Wanted, auth: Any, refused: str | None = None) -> Steps[str | NoCredential]:
    """Return the token of a provider that serves as proof for another one."""
    if isinstance(auth, StaticToken):
        return auth.token
    if isinstance(auth, TokenCallable):
        return (yield from ask(Obtain(auth.function, auth.principal)))
    own = dataclasses.replace(wanted, tool=None, subject=None)
    grant = yield from _grant(own, auth)
    if isinstance(grant, NoCredential):
        return grant
    token = yield from _token(own, grant, refused)
    return token if isinstance(token, NoCredential) else token.value


def _text(token: SubjectToken, whose: str) -> Steps[str]:
    if isinstance(token, str):
        return token
    return (yield from ask(Obtain(token, whose)))


def _token(wanted: _Wanted, grant: Grant, rejected: str | None) -> Steps[AccessToken | NoCredential]:
    store, key = wanted.store, cache_key(grant)
    for _ in range(TRIES):
        now = yield from ask(Boottime())
        held = store.remembered(key, rejected, now)
        if held is not None:
            return held
        flight: Share[AccessToken | NoCredential] = Share(
            key, lambda: _flight(store, grant, key, rejected), wanted.until
        )
        got, mine = yield from ask(flight)
        # One that came on a flight begun before the tool refused it, or that serves once, is not for this caller.
        if mine or isinstance(got, NoCredential) or not (got.once or got.id == rejected):
            return got
    return NoCredential("unavailable", "the authorisation server gives tokens that serve no second caller")


def _flight(store: TokenStore, grant: Grant, key: CacheKey, rejected: str | None) -> Steps[AccessToken | NoCredential]:
    now = yield from ask(Boottime())
    held = store.remembered(key, rejected, now)  # another flight may have ended since the caller looked
    if held is not None:
        return held
    token = yield from _asked(store, grant, key, rejected)
    if not isinstance(token, NoCredential):
        now = yield from ask(Boottime())
        store.remember(key, token, now)
        note_scope(store, grant, key, token)
    return token


def _asked(store: TokenStore, grant: Grant, key: CacheKey, rejected: str | None) -> Steps[AccessToken | NoCredential]:
    """Ask for a token, in turn with other processes where there is a key to seal under what they share."""
    auth = grant.auth
    if isinstance(auth, RefreshToken) and auth.rotates:
        return (yield from rotate(store, grant, rejected))
    if store.seal is None or auth.principal in store.unshared:
        token = yield from fetch(store, grant)
    else:
        token = yield from share(store, store.seal, grant, store.row_of_access(key), rejected)
    if not isinstance(token, NoCredential):
        store.note_sharing(auth.principal, shared=not token.once)
    return token


def cache_key(grant: Grant) -> CacheKey:
    """Return what two requests must have in common to share a token; never a token itself."""
    auth = grant.auth
    return (
        auth.server,
        auth.token_url if auth.issuer is not None else None,
        auth.client_id,
        type(auth).__name__,
        getattr(auth, "account", None),
        getattr(auth, "requested_token_type", None),
        grant.name if grant.subject is not None else None,
        _digest(grant.subject),
        _digest(grant.actor),
        grant.scopes,
        grant.audiences,
        grant.resources,
    )


def _digest(secret: str | None) -> str | None:
    return None if secret is None else seed_digest(secret)
