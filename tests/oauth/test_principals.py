"""An identity is one text, and no two identities are the same text."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from agent_runtime import ClientCredentials, OnBehalfOf, StaticToken, TokenExchange
from agent_runtime._drive.tokens import principal_of
from tests.oauth.kit import CLIENT, TOKEN_URL, rotating, tool

ROBOT = StaticToken(token="static-canary-of-a-robot", principal="robot")
ALICE = StaticToken(token="static-canary-of-alice", principal="alice")


def client(name: str) -> dict[str, Any]:
    return CLIENT | {"client_id": name}


def named(auth: Any, actor: str | None = None, principal: str | None = None) -> str:
    return principal_of(tool(auth=auth, principal=principal), None, actor)


@pytest.mark.parametrize(
    ("auth", "actor", "principal", "wanted"),
    [
        (ClientCredentials(**CLIENT), None, None, "#agent"),
        (rotating(), None, None, "#agent#alice@crm"),
        (OnBehalfOf(**CLIENT), "alice", None, "#agent#alice"),
        (OnBehalfOf(**CLIENT), "Alice A", "acct-7", "#agent#Alice%20A#as acct-7"),
        (TokenExchange(**CLIENT, actor_token=ROBOT), "alice", None, "#agent#alice#by robot"),
        (TokenExchange(**CLIENT, subject=ALICE), None, None, "#agent#of alice"),
        (TokenExchange(**CLIENT, subject=rotating()), None, None, f"#agent#of {TOKEN_URL}%23agent%23alice@crm"),
    ],
)
def test_a_principal_is_issuer_client_and_subject(auth: Any, actor: Any, principal: Any, wanted: str) -> None:
    """Recorded steps hold this text, so it is held to the letter."""
    assert named(auth, actor, principal) == TOKEN_URL + wanted


def test_no_two_identities_make_one_text() -> None:
    """Whatever stands in the names of clients, accounts, users, actors and in what tools declare."""
    exchange = TokenExchange(**CLIENT)
    identities = [
        named(exchange, "alice#by robot"),
        named(exchange, "alice%23by robot"),
        named(exchange, "alice", "by robot"),
        named(exchange, "by robot"),
        named(exchange, "of alice"),
        named(TokenExchange(**CLIENT, actor_token=ROBOT), "alice"),
        named(TokenExchange(**CLIENT, subject=ALICE)),
        named(OnBehalfOf(**client("agent#x")), "y"),
        named(OnBehalfOf(**CLIENT), "x#y"),
        named(OnBehalfOf(**CLIENT), "x", "y"),
        named(OnBehalfOf(**CLIENT), "x#as y"),
        named(ClientCredentials(**CLIENT), None, "y"),
        named(rotating(account="y")),
        named(rotating(account="y#z")),
        named(rotating(account="y"), None, "z"),
    ]
    assert [pair for pair in combinations(identities, 2) if pair[0] == pair[1]] == []
