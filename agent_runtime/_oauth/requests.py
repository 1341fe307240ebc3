"""Token requests as plain values: the grant's form and the client's proof."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode

from agent_runtime._core.urls import check_url
from agent_runtime._model import Request
from agent_runtime.config import ClientCredentials
from agent_runtime.config.auth import OnBehalfOf, RefreshToken, Secretive, TokenExchange, check_can_be_sent
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent_runtime._model import Headers
    from agent_runtime.config.auth import AuthMethod, OAuth, PrivateKey

# Authlib and joserfc are imported where they serve: who asks for no token does not wait for them at start-up.

Form = list[tuple[str, str]]

EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_PLAIN: Final = (("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"))


class SecretRequest(Secretive, Request):
    """A request whose body holds a secret: never kept in the ledger, never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"SecretRequest(method={self.method!r}, url={self.url!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest(Secretive):
    """What to send to a token endpoint; its repr shows neither body nor headers.

    Attributes:
        request: the POST; its body may hold the client's secret.
        headers: secret headers, to be given to the sender as ``extra_headers``.
    """

    request: Request
    headers: Headers = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Secretive):
    """What a token is asked for, once everything that had to be found out is known.

    Attributes:
        auth: the provider.
        scopes: scopes wanted, sorted.
        audiences, resources: targets wanted.
        subject: the refresh token, or the subject's token; None for grants without one.
        actor: the acting party's token, or None.
        name: of the session's actor, or None.
    """

    auth: OAuth
    scopes: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    subject: str | None = field(default=None, repr=False)
    actor: str | None = field(default=None, repr=False)
    name: str | None = None


def token_request(grant: Grant, token_url: str, *, jti: str, now: float) -> TokenRequest:
    """Return the request for a token.

    Args:
        grant: what is asked for.
        token_url: the endpoint.
        jti: a fresh random id: an assertion is never sent twice.
        now: UTC epoch seconds, for an assertion.

    Raises:
        ConfigError: a URL that cannot be sent, or a key that cannot sign. No text holds a secret.

    Source: RFC 6749 sections 4.4.2 and 6, RFC 8693 section 2.1, RFC 7523 section 2.2.
    """
    form = _grant_form(grant)
    if grant.scopes:
        form.append(("scope", " ".join(grant.scopes)))
    form += [("resource", uri) for uri in grant.resources]
    form += [("audience", name) for name in grant.audiences]
    auth = grant.auth
    if auth.method == "private_key_jwt":
        form += _assertion(auth, token_url, jti=jti, now=now)
    return _signed(token_url, form, auth.client_id, auth.client_secret or "", auth.method)


def _grant_form(grant: Grant) -> Form:
    match grant.auth:
        case ClientCredentials():
            return [("grant_type", "client_credentials")]
        case RefreshToken():
            assert grant.subject is not None
            return [("grant_type", "refresh_token"), ("refresh_token", grant.subject)]
        case OnBehalfOf():
            assert grant.subject is not None
            return [("grant_type", JWT_BEARER), ("assertion", grant.subject), ("requested_token_use", "on_behalf_of")]
        case TokenExchange():
            assert grant.subject is not None
            return _exchange_form(grant.auth, grant.subject, grant.actor)


def _exchange_form(auth: TokenExchange, subject: str, actor: str | None) -> Form:
    form = [
        ("grant_type", EXCHANGE),
        ("subject_token", subject),
        ("subject_token_type", auth.subject_token_type),
    ]
    if actor is not None:  # its type must not stand without it
        form += [("actor_token", actor), ("actor_token_type", auth.actor_token_type)]
    if auth.requested_token_type is not None:
        form.append(("requested_token_type", auth.requested_token_type))
    return form


def _assertion(auth: OAuth, token_url: str, *, jti: str, now: float) -> Form:
    from authlib.oauth2.rfc7523 import private_key_jwt_sign  # type: ignore[import-untyped] # noqa: PLC0415  slow

    key = auth.private_key
    assert key is not None
    header: dict[str, Any] = {}
    if key.key_id is not None:
        header["kid"] = key.key_id
    if key.thumbprint is not None:
        header["x5t#S256"] = key.thumbprint
    try:
        signed = private_key_jwt_sign(
            _key(key),
            auth.client_id,
            key.audience or auth.issuer or token_url,
            alg=key.algorithm,
            claims={"jti": jti},
            header=header,
            issued_at=int(now),
            expires_in=key.lifetime,
        )
    except Exception as error:  # noqa: BLE001  whatever the library raises, its text could quote the key
        msg = f"the private key of client {auth.client_id!r} cannot sign with {key.algorithm} ({type(error).__name__})"
        raise ConfigError(msg) from None
    text = signed.decode("ascii") if isinstance(signed, bytes) else str(signed)
    return [("client_id", auth.client_id), ("client_assertion_type", ASSERTION), ("client_assertion", text)]


def _key(key: PrivateKey) -> Any:
    from joserfc.jwk import import_key  # noqa: PLC0415  slow

    if key.key.lstrip().startswith("{"):
        return import_key(json.loads(key.key))
    kind: Any = {"RS": "RSA", "PS": "RSA", "ES": "EC"}.get(key.algorithm[:2], "OKP")
    return import_key(key.key, kind)


def _signed(
    token_url: str, form: Sequence[tuple[str, str]], client: str, secret: str, method: AuthMethod
) -> TokenRequest:
    from authlib.oauth2.auth import ClientAuth  # type: ignore[import-untyped] # noqa: PLC0415  slow

    check_url(token_url)
    for name, value in form:
        check_can_be_sent(f"the token request's {name}", value)
    body, headers = urlencode(form), {}
    if method == "client_secret_basic":
        # Authlib neither form-encodes the two nor takes characters outside Latin-1; after this it need not.
        client, secret = quote_plus(client), quote_plus(secret)
    if method == "client_secret_basic_raw":
        headers = {"Authorization": "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode("ascii")}
    elif method != "private_key_jwt":
        _, headers, body = ClientAuth(client, secret, method).prepare("POST", token_url, {}, body)
    return TokenRequest(
        request=SecretRequest(method="POST", url=token_url, body=body.encode("ascii"), headers=_PLAIN),
        headers=tuple(headers.items()),
    )
