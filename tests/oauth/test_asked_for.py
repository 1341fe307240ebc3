"""What two requests must have in common to share a token: everything that the token is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_runtime import ClientCredentials, OnBehalfOf, StaticToken, TokenExchange
from tests.oauth.kit import CLIENT, Api, Site, rotating, tool

if TYPE_CHECKING:
    from agent_runtime.config import Auth

ACCESS = "urn:ietf:params:oauth:token-type:access_token"
JWT = "urn:ietf:params:oauth:token-type:jwt"


def client(**settings: Any) -> ClientCredentials:
    return ClientCredentials(**CLIENT | settings)


def exchange(**settings: Any) -> TokenExchange:
    return TokenExchange(**CLIENT | settings)


PAIRS: dict[str, tuple[Auth, Auth]] = {
    "server": (client(), client(token_url="https://as.test/other")),
    "issuer": (client(issuer="https://one.test"), client(issuer="https://two.test")),
    "endpoint of an issuer": (
        client(issuer="https://one.test"),
        client(issuer="https://one.test", token_url="https://as.test/other"),
    ),
    "client": (client(), client(client_id="other")),
    "grant": (exchange(), OnBehalfOf(**CLIENT)),
    "account": (rotating(rotates=False), rotating(rotates=False, account="bob@crm")),
    "requested type": (exchange(requested_token_type=ACCESS), exchange(requested_token_type=JWT)),
    "actor": (
        exchange(actor_token=StaticToken(token="static-canary-a")),
        exchange(actor_token=StaticToken(token="static-canary-b")),
    ),
    "subject": (
        exchange(subject=StaticToken(token="static-canary-a")),
        exchange(subject=StaticToken(token="static-canary-b")),
    ),
    "scope": (client(scope="a"), client(scope="b")),
    "audience": (client(audience="a"), client(audience="b")),
    "resource": (client(resource="https://a.test"), client(resource="https://b.test")),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_tokens_that_differ_in_one_thing_are_not_shared(api: Api, site: Site, pair: tuple[Any, Any]) -> None:
    """Two tools of one session each get a token of their own, and keep it."""
    site.sends_refresh = False
    one, other = tool("one", auth=pair[0]), tool("other", auth=pair[1])
    session = api.open(one, other, actor="alice", subject_token="subject-canary-1")
    for number in range(2):
        for name in ("one", "other"):
            assert api.do(session.try_call, name, {"n": number}).ok
    assert len(site.forms) == 2
    tokens = [call.headers["Authorization"] for call in site.calls]
    assert tokens[:2] == tokens[2:]
    assert len(set(tokens)) == 2


def test_users_with_the_same_proof_share_no_token(api: Api, site: Site) -> None:
    """Two names are two users, even if an application brings one token for both."""
    runtime = api.runtime(tool(auth=exchange()))
    for actor in ("alice", "bob"):
        session = api.do(runtime.open, actor, actor=actor, subject_token="subject-canary-1")
        assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 2


def test_what_is_the_same_shares_a_token(api: Api, site: Site) -> None:
    """Two providers that are set up alike ask once, whatever the order of their scopes."""
    session = api.open(tool("one", auth=client(scope="a b")), tool("other", auth=client(scope="b a")))
    for name in ("one", "other"):
        assert api.do(session.try_call, name, {"n": 1}).ok
    assert len(site.forms) == 1
