"""Signed assertions: what a client proves itself with where it has a key pair (private_key_jwt, RFC 7523)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from agent_runtime import ClientCredentials, PrivateKey
from agent_runtime._oauth import Grant, token_request

URL = "https://as.test/token"
ISSUER = "https://as.test/tenant"
NOW = 1_800_000_000.5
RSA = RSAKey.generate_key(2048, private=True)
KEYS: dict[str, Key] = {
    "RS256": RSA,
    "PS256": RSA,
    "ES256": ECKey.generate_key("P-256", private=True),
    "ES384": ECKey.generate_key("P-384", private=True),
    "Ed25519": OKPKey.generate_key("Ed25519", private=True),
}


def text_of(key: Key, form: str) -> str:
    if form == "jwk":
        return json.dumps(key.as_dict(private=True))
    return key.as_pem(private=True).decode()


def signed(algorithm: str = "RS256", form: str = "pem", *, server: Any = None, **settings: Any) -> tuple[Any, Any]:
    """Return header and claims of an assertion, its signature checked."""
    key = PrivateKey(key=text_of(KEYS[algorithm], form), algorithm=algorithm, **settings)
    auth = ClientCredentials(client_id="agent", private_key=key, **server or {"token_url": URL})
    sent = token_request(Grant(auth=auth), URL, jti="one-time", now=NOW)
    sent_form = parse_qs(sent.request.body.decode())
    assert sent.headers == ()
    assert sent_form["client_id"] == ["agent"]
    assert sent_form["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]
    token = jwt.decode(sent_form["client_assertion"][0], KEYS[algorithm], algorithms=[algorithm])
    return token.header, token.claims


@pytest.mark.parametrize("form", ["pem", "jwk"])
@pytest.mark.parametrize("algorithm", KEYS)
def test_O10_an_assertion_is_signed_by_each_kind_of_key(algorithm: str, form: str) -> None:
    """The server checks it with the public half; it is for one use, and for a minute."""
    header, claims = signed(algorithm, form)
    assert header["alg"] == algorithm
    assert claims == {
        "iss": "agent",
        "sub": "agent",
        "aud": URL,
        "jti": "one-time",
        "iat": int(NOW),
        "exp": int(NOW) + 60,
    }


def test_an_assertion_names_its_key() -> None:
    """kid and x5t#S256 (which Entra looks for) stand in the header; without settings neither does."""
    header, _ = signed(key_id="key-7", thumbprint="dGh1bWI")
    assert (header["kid"], header["x5t#S256"]) == ("key-7", "dGh1bWI")
    bare, _ = signed()
    assert not {"kid", "x5t#S256"} & set(bare)


@pytest.mark.parametrize(
    ("server", "audience", "wanted"),
    [
        ({"token_url": URL}, None, URL),
        ({"issuer": ISSUER}, None, ISSUER),
        ({"issuer": ISSUER, "token_url": URL}, None, ISSUER),
        ({"issuer": ISSUER, "token_url": URL}, "https://as.test/other", "https://as.test/other"),
    ],
)
def test_an_assertion_is_for_the_server(server: dict[str, str], audience: str | None, wanted: str) -> None:
    """Its audience is as set, else the issuer, else the token endpoint."""
    _, claims = signed(server=server, audience=audience)
    assert claims["aud"] == wanted


def test_an_assertion_lives_as_long_as_set() -> None:
    """Servers with clocks that are off need more than a minute."""
    _, claims = signed(lifetime=300)
    assert claims["exp"] - claims["iat"] == 300
