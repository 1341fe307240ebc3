"""Against a certified authorisation server that nobody here wrote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AsyncRuntime, ClientCredentials, PrivateKey, RefreshToken, Runtime
from tests.credentials import CLIENT_SECRET
from tests.oauth.kit import TOKEN_KEY, tool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oauth.provider import Provider

pytestmark = pytest.mark.node


class Front:
    """Plays the tool and keeps the tokens that came; the provider is asked over the network."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.answers: list[httpx.Response] = []

    def take(self, request: httpx.Request) -> httpx.Response:
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        return self.answers.pop(0) if self.answers else httpx.Response(200, json={"ok": True})


class Transport(httpx.HTTPTransport):
    def __init__(self, front: Front) -> None:
        super().__init__(trust_env=False)
        self.front = front

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.front.take(request) if request.url.host == "tools.test" else super().handle_request(request)


class AsyncTransport(httpx.AsyncHTTPTransport):
    def __init__(self, front: Front) -> None:
        super().__init__(trust_env=False)
        self.front = front

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "tools.test":
            return self.front.take(request)
        return await super().handle_async_request(request)


def run(kind: str, tmp_path: Path, auth: Any, front: Front, calls: int = 1) -> list[Any]:
    """Call the tool some times, by a runtime of its own each time, and return the outcomes."""
    outcomes = []
    for number in range(calls):
        if kind == "sync":
            with (
                httpx.Client(transport=Transport(front)) as client,
                Runtime(
                    f"sqlite:///{tmp_path}/a.db", tools=[tool()], auth=auth, client=client, token_key=TOKEN_KEY
                ) as rt,
                rt.start() as session,
            ):
                outcomes.append(session.try_call("pay", {"n": number}))
            continue

        async def once(number: int = number) -> Any:
            async with (
                httpx.AsyncClient(transport=AsyncTransport(front)) as client,
                AsyncRuntime(
                    f"sqlite:///{tmp_path}/a.db", tools=[tool()], auth=auth, client=client, token_key=TOKEN_KEY
                ) as rt,
                rt.start() as session,
            ):
                return await session.try_call("pay", {"n": number})

        outcomes.append(asyncio.run(once()))
    return outcomes


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_O10_a_secret_with_every_character_is_taken(kind: str, tmp_path: Path, provider: Provider) -> None:
    """Id and secret are form-encoded in the Basic header as the standard wants, so the server knows the client."""
    front = Front()
    auth = ClientCredentials(
        token_url=provider.token_url,
        client_id="cli:ent",
        client_secret='canary s%cr+t: &=~"',
        scope="pay",
        resource="https://r.test",
    )
    assert run(kind, tmp_path, auth, front)[0].ok
    known = provider.token(front.tokens[0])
    assert (known["active"], known["client"], known["scope"]) == (True, "cli:ent", "pay")
    assert "https://r.test" in str(known["audience"])


def test_a_secret_in_the_form_is_taken(kind: str, tmp_path: Path, provider: Provider) -> None:
    """client_secret_post works, and the endpoint is found in the issuer's metadata."""
    front = Front()
    auth = ClientCredentials(
        issuer=provider.issuer,
        client_id="poster",
        client_secret=f"{CLIENT_SECRET}-of-poster",
        auth_method="client_secret_post",
    )
    assert run(kind, tmp_path, auth, front)[0].ok
    assert provider.token(front.tokens[0])["client"] == "poster"


def test_an_assertion_is_taken_and_never_sent_twice(kind: str, tmp_path: Path, provider: Provider) -> None:
    """private_key_jwt works twice at a server that refuses an assertion id it has seen, the second time after a 401."""
    front = Front()
    front.answers = [httpx.Response(200, json={}), httpx.Response(401)]
    auth = ClientCredentials(
        issuer=provider.issuer, client_id="signer", private_key=PrivateKey(key=provider.private_key)
    )
    assert [outcome.ok for outcome in run(kind, tmp_path, auth, front, calls=2)] == [True, True]
    assert len(set(front.tokens)) == 2
    assert all(provider.token(token)["client"] == "signer" for token in front.tokens)


def account(provider: Provider, refresh_token: str, **more: Any) -> RefreshToken:
    return RefreshToken(
        token_url=provider.token_url,
        client_id="app",
        client_secret=CLIENT_SECRET,
        account=f"alice-{refresh_token[:6]}",
        refresh_token=refresh_token,
        **more,
    )


def test_a_rotating_token_goes_on_after_a_restart(kind: str, tmp_path: Path, provider: Provider) -> None:
    """The settings still bring the first refresh token; a new process goes on with the newest, and none is reused."""
    front = Front()
    before = provider.counts()
    auth = account(provider, provider.grant())
    assert all(outcome.ok for outcome in run(kind, tmp_path, auth, front, calls=3))
    assert len(set(front.tokens)) == 1  # the row's access token was still good
    front.answers = [
        httpx.Response(401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'}) for _ in range(1)
    ]
    assert run(kind, tmp_path, auth, front)[0].ok
    after = provider.counts()
    assert after["refreshed"] - before["refreshed"] == 2
    assert after["revoked"] == before["revoked"]
    assert provider.token(front.tokens[-1])["subject"] == "alice"


def test_A33_a_grant_that_is_over_is_told_once(kind: str, tmp_path: Path, provider: Provider) -> None:
    """invalid_grant makes the step wait for a person, and the dead refresh token is not sent again."""
    front = Front()
    before = provider.counts()
    auth = account(provider, "refresh-canary-never-issued")
    outcomes = run(kind, tmp_path, auth, front, calls=2)
    assert [(outcome.state, outcome.kind, outcome.attempts) for outcome in outcomes] == [("ready", "auth", 0)] * 2
    assert provider.counts()["refused"] - before["refused"] == 1
    assert front.tokens == []
    assert "authorise account" in outcomes[1].error["detail"]


def test_a_new_authorisation_replaces_a_dead_grant(kind: str, tmp_path: Path, provider: Provider) -> None:
    """A refresh token that the ledger has never seen begins a new chain for the same account."""
    front = Front()
    dead = account(provider, "refresh-canary-never-issued-2")
    assert run(kind, tmp_path, dead, front)[0].kind == "auth"
    fresh = RefreshToken(
        token_url=provider.token_url,
        client_id="app",
        client_secret=CLIENT_SECRET,
        account=dead.account,
        refresh_token=provider.grant(),
    )
    assert run(kind, tmp_path, fresh, front)[0].ok
