"""OAuth 2.0 providers: which grant, at which server, as which client, on whose behalf."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields
from typing import Final, Literal
from urllib.parse import urlsplit

from agent_runtime.config import defaults
from agent_runtime.config._checks import Duration, check_settings, seconds, settle
from agent_runtime.config.auth._secret import Secretive, check_can_be_sent
from agent_runtime.config.auth.ready import StaticToken, TokenCallable
from agent_runtime.errors import ConfigError

AuthMethod = Literal["client_secret_basic", "client_secret_basic_raw", "client_secret_post", "private_key_jwt", "none"]
SubjectToken = str | Callable[[], "str | Awaitable[str]"]
"""A user's token, or a function that returns the current one, plain or awaitable."""

ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  a kind of token, not one
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKey(Secretive):
    """The key that a client signs its assertions with (``private_key_jwt``, RFC 7523).

    Attributes:
        key: PEM or JWK, as text.
        algorithm: of the signature, for example ``RS256``, ``PS256`` or ``ES256``.
        key_id: sent as ``kid``, or None.
        thumbprint: of the client's certificate, base64url SHA-256; sent as ``x5t#S256``, which Entra looks for.
        audience: whom the assertion is for; None = the issuer, or the token endpoint where no issuer is set.
        lifetime: seconds that an assertion is good for; a new one is made for every request.
    """

    key: str = field(repr=False)
    algorithm: str = "RS256"
    key_id: str | None = None
    thumbprint: str | None = None
    audience: str | None = None
    lifetime: int = 60

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.key.strip().startswith(("-----BEGIN", "{")):
            raise ConfigError("PrivateKey(key=) must be the text of a PEM or of a JWK; nothing was sent")
        if not self.algorithm.startswith(("RS", "PS", "ES", "Ed")):
            msg = f"PrivateKey(algorithm=) must be one of a key pair, not {self.algorithm!r}"
            raise ConfigError(msg)
        if not 0 < self.lifetime <= 3600:
            msg = f"PrivateKey(lifetime=) must be 1 to 3600 seconds, not {self.lifetime!r}"
            raise ConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client(Secretive):
    """What all grants share: the server and the client. Strictly private.

    Attributes:
        token_url: token endpoint, an absolute URL; may be left out where ``issuer`` is given.
        issuer: its metadata document names the token endpoint (RFC 8414, OpenID Connect Discovery).
        client_id: of the client.
        client_secret: of the client, or None.
        private_key: instead of a secret.
        auth_method: ``client_secret_basic`` (id and secret form-encoded first, as RFC 6749 section 2.3.1 wants),
            ``client_secret_basic_raw`` for servers that do not decode them, ``client_secret_post``, ``private_key_jwt``
            or ``none``; None chooses by what is given.
        scope: space-separated scopes, or None; a tool's own go before it.
        audience: whom the token is for; a tool's own goes before it.
        resource: absolute URIs of the targets (RFC 8707); may be several.
    """

    client_id: str
    token_url: str | None = None
    issuer: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    private_key: PrivateKey | None = field(default=None, repr=False)
    auth_method: AuthMethod | None = None
    scope: str | None = None
    audience: str | tuple[str, ...] | None = None
    resource: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        for one in fields(self):
            value = getattr(self, one.name)
            for text in texts(value) if isinstance(value, str | tuple) else ():
                check_can_be_sent(f"{type(self).__name__}({one.name}=)", text)
        _check_server(type(self).__name__, self.token_url, self.issuer)
        _check_client(self)
        for uri in texts(self.resource):
            parts = urlsplit(uri)
            if not parts.scheme or parts.fragment:
                msg = f"resource= must be absolute URIs without a fragment (RFC 8707), not {uri!r}"
                raise ConfigError(msg)

    @property
    def method(self) -> AuthMethod:
        """How the client proves itself: as set, or by what it has."""
        if self.auth_method is not None:
            return self.auth_method
        if self.private_key is not None:
            return "private_key_jwt"
        return "client_secret_basic" if self.client_secret is not None else "none"

    @property
    def server(self) -> str:
        """The issuer where it is known, else the token endpoint; host in lower case, without the scheme's own port."""
        return _spelled(self.issuer or self.token_url or "")

    @property
    def principal(self) -> str:
        """Issuer and client; grants that have a subject add its name."""
        return f"{self.server}#{part(self.client_id)}"


def part(name: str) -> str:
    """Return a name as a part of a principal: what parts and their marks are told by is escaped in it."""
    return name.replace("%", "%25").replace("#", "%23").replace(" ", "%20")


def texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Return one or several texts as a tuple."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


_PORTS: Final = {"http": 80, "https": 443}


def _spelled(url: str) -> str:
    """Return a URL in the one spelling that names a server: two spellings must not be two identities."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _PORTS[parts.scheme]} else f":{parts.port}"
    return f"{parts.scheme}://{name}{port}{url[len(parts.scheme) + 3 + len(parts.netloc) :]}"


def _check_server(name: str, token_url: str | None, issuer: str | None) -> None:
    if token_url is None and issuer is None:
        msg = f"{name} needs token_url= or issuer="
        raise ConfigError(msg)
    for what, url in (("token_url", token_url), ("issuer", issuer)):
        if url is not None and not _names_a_server(url):
            msg = f"{name}({what}=) must be an absolute URL without user name, password and fragment"
            raise ConfigError(msg)


def _names_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # brackets that do not match, a port out of range
        return False
    return whole and url.startswith(("https://", "http://")) and "@" not in parts.netloc and "#" not in url


def _check_client(client: _Client) -> None:
    name = type(client).__name__
    if not client.client_id:
        msg = f"{name}(client_id=) is empty"
        raise ConfigError(msg)
    if client.method == "private_key_jwt" and client.private_key is None:
        msg = f"{name}: private_key_jwt needs private_key=PrivateKey(...)"
        raise ConfigError(msg)
    if client.method.startswith("client_secret") and not client.client_secret:
        msg = f"{name}: {client.method} needs client_secret="
        raise ConfigError(msg)
    if client.method == "client_secret_basic_raw" and ":" in client.client_id:
        msg = f"{name}(client_id=) holds a colon, which client_secret_basic_raw cannot send (RFC 7617 section 2)"
        raise ConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials(_Client):
    """OAuth 2.0 client credentials grant (RFC 6749 section 4.4): the client acts for itself."""

    def __post_init__(self) -> None:
        _Client.__post_init__(self)
        if self.method == "none":
            raise ConfigError("ClientCredentials needs client_secret= or private_key=: the client is all its proof")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshToken(_Client):
    """OAuth 2.0 refresh token grant (RFC 6749 section 6): an account that was authorised once, for example by a login.

    Attributes:
        account: name of the account that the token is of; part of the principal and of the place where it is kept.
        refresh_token: as the authorisation gave it, or a function that returns it, plain or awaitable. With ``rotates``
            it only begins the chain: what the server gave in exchange since then stands in the ledger and goes before
            it. A new authorisation brings another text here, which then goes before the chain.
        rotates: the server gives a new refresh token in exchange and may revoke all if an old one comes again. Its
            tokens are then kept in the ledger, encrypted under ``Runtime(token_key=)``, and one worker at a time
            refreshes. False: the token given here is used for ever, and nothing is kept.
        rotation_grace: seconds for which the server takes an old token again after it was used. A refresh whose answer
            was lost is then tried once more within them, counted from when the first one began; after that, and without
            it, the step waits for a new authorisation, since a repeat could revoke the grant. True means 30; False or
            None means none.
    """

    account: str
    refresh_token: SubjectToken = field(repr=False)
    rotates: bool = True
    rotation_grace: bool | Duration | None = False

    def __post_init__(self) -> None:
        _Client.__post_init__(self)
        if not self.account:
            raise ConfigError("RefreshToken(account=) is empty: it names the account that the token is of")
        if not self.refresh_token:
            raise ConfigError("RefreshToken(refresh_token=) is empty; nothing was sent")
        grace = self.rotation_grace
        if grace is None or isinstance(grace, bool):
            grace = defaults.ROTATION_GRACE if grace else 0.0
        settle(self, rotation_grace=seconds("RefreshToken(rotation_grace=)", grace))

    @property
    def grace(self) -> float:
        """Seconds within which a refresh may be repeated, counted from when the first one began."""
        assert isinstance(self.rotation_grace, float)
        return self.rotation_grace

    @property
    def principal(self) -> str:
        """Issuer, client and account."""
        return f"{self.server}#{part(self.client_id)}#{part(self.account)}"


ActorProof = StaticToken | TokenCallable | ClientCredentials
"""What an acting party can prove itself with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenExchange(_Client):
    """OAuth 2.0 token exchange (RFC 8693): the subject's token for one that a tool takes.

    Attributes:
        subject: whose token is exchanged; None = the one that the session was opened with
            (``runtime.open(..., actor=, subject_token=)``).
        subject_token_type: URN of the kind of the subject's token.
        actor_token: proof of the acting party, or None.
        actor_token_type: URN of its kind.
        requested_token_type: URN of the kind of token wanted, or None for what the server chooses.
    """

    subject: StaticToken | TokenCallable | ClientCredentials | RefreshToken | None = field(default=None, repr=False)
    subject_token_type: str = ACCESS_TOKEN
    actor_token: ActorProof | None = field(default=None, repr=False)
    actor_token_type: str = ACCESS_TOKEN
    requested_token_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnBehalfOf(_Client):
    """Microsoft Entra's on-behalf-of flow: the session's user token for one of a downstream API.

    The user's token must be for this client (its ``aud``). ``token_url`` is
    ``https://login.microsoftonline.com/<tenant>/oauth2/v2.0/token``; ``scope`` for example ``api://<app>/.default``.
    """

    def __post_init__(self) -> None:
        _Client.__post_init__(self)
        if self.method == "none":
            raise ConfigError("OnBehalfOf needs client_secret= or private_key=: the flow is for confidential clients")
        if texts(self.audience) or texts(self.resource):
            raise ConfigError("OnBehalfOf tells its target by scope=, for example 'api://<app>/.default'")

    @property
    def method(self) -> AuthMethod:
        """How the client proves itself: in the form, where Entra's documents show it, unless set otherwise."""
        inherited = _Client.method.fget(self)  # type: ignore[attr-defined]
        if self.auth_method is None and inherited == "client_secret_basic":
            return "client_secret_post"
        chosen: AuthMethod = inherited
        return chosen


OAuth = ClientCredentials | RefreshToken | TokenExchange | OnBehalfOf
"""Providers that ask an authorisation server."""
