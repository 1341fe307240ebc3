"""Authlib's own authorisation server: client credentials, token exchange (RFC 8693) and Entra's on-behalf-of."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import httpx
from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    BaseGrant,
    ClientCredentialsGrant,
    ClientMixin,
    OAuth2Request,
    TokenEndpointMixin,
)
from authlib.oauth2.rfc6749.errors import InvalidGrantError, InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6749.requests import OAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7523 import JWTBearerGrant
from joserfc import jwt
from joserfc.jwk import OctKey

from tests.credentials import CLIENT_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USERS = OctKey.import_key("the key that users' tokens are signed with")
SECRET = CLIENT_SECRET
LIFETIME = 3600
"""Seconds that each access token lives."""


def user_token(subject: str, *, audience: str = "agent", mfa: bool = True, expires: float = 2e9) -> str:
    """Return a user's token as a sign-in gives it to the application ``agent``."""
    claims = {"iss": "https://as.test", "sub": subject, "aud": audience, "exp": int(expires), "mfa": mfa, "n": "canary"}
    return jwt.encode({"alg": "HS256"}, claims, USERS)


class Client(ClientMixin):
    """The application ``agent``, which knows its secret."""

    def get_client_id(self) -> str:
        return "agent"

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or ""

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return True

    def check_grant_type(self, grant_type: str) -> bool:
        return True


class InteractionRequired(OAuth2Error):
    """Entra's wish for a second factor."""

    error = "interaction_required"

    def get_body(self) -> list[tuple[str, str]]:
        return [*super().get_body(), ("claims", '{"access_token":{"acrs":{"essential":true,"value":"c1"}}}')]


class ExchangeGrant(BaseGrant, TokenEndpointMixin):
    """RFC 8693, section 2."""

    GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

    def validate_token_request(self) -> None:
        self.request.client = self.authenticate_token_endpoint_client()
        data = self.request.payload.data
        if not data.get("subject_token") or not data.get("subject_token_type"):
            raise InvalidRequestError("subject_token and its type are required")
        if ("actor_token" in data) != ("actor_token_type" in data):
            raise InvalidRequestError("actor_token_type goes with actor_token, and only with it")
        self.request.user = _subject(data["subject_token"])

    def create_token_response(self) -> Any:
        token = self.generate_token(
            user=self.request.user, scope=self.request.payload.scope, include_refresh_token=False
        )
        requested = self.request.payload.data.get("requested_token_type")
        token["issued_token_type"] = requested or "urn:ietf:params:oauth:token-type:access_token"
        self.save_token(token)
        return 200, token, self.TOKEN_RESPONSE_HEADER


class OnBehalfOfGrant(JWTBearerGrant):
    """The jwt-bearer grant as Entra extends it: client's own proof, the assertion is for the client."""

    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_post",)

    def validate_token_request(self) -> None:
        self.request.client = self.authenticate_token_endpoint_client()
        if self.request.form.get("requested_token_use") != "on_behalf_of":
            raise InvalidRequestError("requested_token_use")
        claims = self.process_assertion_claims(self.request.form["assertion"])
        if not claims["mfa"]:
            raise InteractionRequired("AADSTS50076: the user must use multi-factor authentication")
        self.request.user = claims["sub"]

    def resolve_issuer_client(self, issuer: str) -> Client:
        return Client()

    def resolve_client_public_key(self, client: Client) -> OctKey:
        return USERS

    def get_audiences(self) -> list[str]:
        return ["agent"]


def _subject(token: str) -> str:
    try:
        return str(jwt.decode(token, USERS).claims["sub"])
    except ValueError:
        raise InvalidGrantError("no token of ours") from None


class _Payload(OAuth2Payload):
    def __init__(self, form: Mapping[str, list[str]]) -> None:
        self._form = form

    @property
    def data(self) -> dict[str, str]:
        return {name: values[0] for name, values in self._form.items()}

    @property
    def datalist(self) -> defaultdict[str, list[str]]:
        return defaultdict(list, self._form)


class _Request(OAuth2Request):
    @property
    def form(self) -> dict[str, str]:
        return self.payload.data


class Authority(AuthorizationServer):
    """Answers token requests, and a tool's requests with whom the token is of.

    Attributes:
        issued: by access token: user and the form that it was asked with.
        calls: of the tool.
    """

    def __init__(self) -> None:
        super().__init__()
        self.issued: dict[str, tuple[str, dict[str, list[str]]]] = {}
        self.calls: list[httpx.Request] = []
        names = (f"issued-canary-{number}" for number in range(1000))
        make = BearerTokenGenerator(lambda *_, **__: next(names), expires_generator=lambda *_: LIFETIME)
        self.register_token_generator("default", make)
        self.register_grant(ClientCredentialsGrant)
        self.register_grant(ExchangeGrant)
        self.register_grant(OnBehalfOfGrant)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if request.url.host == "as.test":
            return self.create_token_response(request)
        self.calls.append(request)
        user, _ = self.issued[request.headers["Authorization"].removeprefix("Bearer ")]
        return httpx.Response(200, json={"user": user})

    def forms(self) -> list[dict[str, list[str]]]:
        """Return the forms of the token requests that were granted."""
        return [form for _, form in self.issued.values()]

    def query_client(self, client_id: str) -> Client | None:
        return Client() if client_id == "agent" else None

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        self.issued[token["access_token"]] = (request.user, dict(request.payload.datalist))

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        return

    def create_oauth2_request(self, request: httpx.Request) -> OAuth2Request:
        made = _Request(request.method, str(request.url), headers=request.headers)
        made.payload = _Payload(parse_qs(request.content.decode(), keep_blank_values=True))
        return made

    def handle_response(self, status: int, body: Any, headers: Any) -> httpx.Response:
        text = body if isinstance(body, str) else json.dumps(dict(body))
        return httpx.Response(status, headers=list(headers), text=text)


@contextmanager
def running_authority() -> Iterator[tuple[Authority, str]]:
    """Serve an authority over TCP until the block ends; gives it and its token endpoint."""
    authority = Authority()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked = httpx.Request("POST", "https://as.test/token", headers=list(self.headers.items()), content=body)
            answer = authority(asked)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield authority, f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
