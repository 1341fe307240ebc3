"""What is refused is not asked for again: 401 once, 403 never, a server's plain no never."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import (
    ApiKey,
    ClientCredentials,
    HttpLookup,
    Idempotency,
    Member,
    OnBehalfOf,
    PollPolicy,
    StaticToken,
    Timeouts,
    TokenCallable,
    TokenExchange,
    ToolContract,
)
from tests.oauth.kit import CLIENT, Api, Site, rotating, tool, unauthorised

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock

ALICE = {"actor": "alice", "subject_token": "subject-canary-1"}
CREDENTIALS = ClientCredentials(**CLIENT)
PROVIDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "client_credentials": (CREDENTIALS, {}),
    "refresh_token": (rotating(), {}),
    "exchange": (TokenExchange(**CLIENT), ALICE),
    "on_behalf_of": (OnBehalfOf(**CLIENT), ALICE),
}
every_provider = pytest.mark.parametrize(("auth", "named"), PROVIDERS.values(), ids=PROVIDERS)
LOOKED_UP = ToolContract(
    idempotency=Idempotency(key_bound_to_token=True),
    lookup=HttpLookup(url="/ops/{key}", done=Member(name="state", equals="done")),
    timeouts=Timeouts(step=1000),
)
POLLED = ToolContract(idempotency=Idempotency(), polling=PollPolicy(first=1, bound=60))


def forbidden() -> httpx.Response:
    return httpx.Response(403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="more"'})


def lose(request: httpx.Request, site: Site) -> httpx.Response:
    raise httpx.ReadTimeout("lost", request=request)


@every_provider
def test_O13_a_403_asks_for_no_token(api: Api, site: Site, auth: Any, named: dict[str, Any]) -> None:
    """Under every grant a 403 ends the step as a refusal: one send, one token."""
    site.on_tool = [forbidden() for _ in range(5)]
    outcome = api.do(api.open(tool(auth=auth), **named).try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.effect) == ("failed", "none")
    assert (len(site.forms), len(site.calls)) == (1, 1)


@every_provider
def test_O13_a_403_after_a_fresh_token_stops(api: Api, site: Site, auth: Any, named: dict[str, Any]) -> None:
    """A 401, a fresh token and then a 403: the refusal stands, and nothing more is asked for."""
    site.on_tool = [unauthorised(), *(forbidden() for _ in range(5))]
    outcome = api.do(api.open(tool(auth=auth), **named).try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.effect) == ("failed", "none")
    assert (len(site.forms), len(site.calls)) == (2, 2)


def test_a_403_that_names_claims_waits_and_goes_on(api: Api, site: Site) -> None:
    """Some tools ask for a second factor by 403: nothing is refused, and the user's new token goes on with the step."""
    claims = base64.b64encode(b'{"acrs":"c1"}').decode()
    value = f'Basic realm="tools", Bearer error="insufficient_claims", claims="{claims}"'
    site.on_tool = [httpx.Response(403, headers={"WWW-Authenticate": value})]
    session = api.open(tool(auth=OnBehalfOf(**CLIENT)), **ALICE)
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.error["claims"]) == ("ready", "auth", '{"acrs":"c1"}')
    api.do(session.authenticate, subject_token="subject-canary-2")
    assert api.do(session.call, "pay", {"n": 1}).value == {"for": "2"}
    assert len({call.headers["Idempotency-Key"] for call in site.calls}) == 1


def test_O13_a_403_to_a_resend_does_not_loop(api: Api, site: Site) -> None:
    """After a lost answer a 403 proves nothing: the step stays unknown, without another send or token."""
    site.on_tool = [lose, *(forbidden() for _ in range(5))]
    outcome = api.do(api.open(tool(auth=CREDENTIALS)).try_call, "pay", {"n": 1})
    assert outcome.state == "unknown"
    assert (len(site.forms), len(site.calls)) == (1, 2)


def test_O13_a_403_to_a_look_up_does_not_loop(api: Api, site: Site, clock: VirtualClock) -> None:
    """A look-up that is forbidden is given up after the attempts of its budget, and asks for no new token."""

    def late(request: httpx.Request, at: Site) -> httpx.Response:
        clock.advance(299)  # the token runs out, so that a key bound to it is looked up
        return lose(request, at)

    site.on_tool = [late, *(forbidden() for _ in range(50))]
    outcome = api.do(api.open(tool(auth=CREDENTIALS, contract=LOOKED_UP)).try_call, "pay", {"n": 1})
    assert outcome.state == "unknown"
    assert [call.method for call in site.calls] == ["POST"] + ["GET"] * 4
    assert len(site.forms) == 2  # the second one because the first ran out


def test_O13_a_403_to_a_poll_asks_for_no_token(api: Api, site: Site) -> None:
    """Polls that are forbidden go on at the policy's pace until its bound, under the token at hand."""
    started = httpx.Response(202, headers={"Location": "https://tools.test/jobs/1"})
    site.on_tool = [started, *(forbidden() for _ in range(99))]
    outcome = api.do(api.open(tool(auth=CREDENTIALS, contract=POLLED)).try_call, "pay", {"n": 1})
    assert outcome.state == "accepted"
    assert [call.method for call in site.calls].count("POST") == 1
    assert 2 < len(site.calls) < 20
    assert len(site.forms) == 1


@pytest.mark.parametrize("headers", [{}, {"WWW-Authenticate": 'Bearer realm="tools"'}, {"WWW-Authenticate": "Basic"}])
def test_O4_a_bare_401_counts_as_a_refused_token(api: Api, site: Site, headers: dict[str, str]) -> None:
    """A 401 that gives no reason costs one refresh as well, where a token was sent."""
    site.on_tool = [httpx.Response(401, headers=headers)]
    outcome = api.do(api.open(tool(auth=CREDENTIALS)).try_call, "pay", {"n": 1})
    assert (outcome.ok, outcome.attempts, len(site.forms)) == (True, 2, 2)


@pytest.mark.parametrize(
    ("auth", "named"), [*PROVIDERS.values(), (CREDENTIALS, {"token_key": None})], ids=[*PROVIDERS, "no_token_key"]
)
def test_O4_O1_many_401s_at_once_cost_one_refresh(api: Api, site: Site, auth: Any, named: dict[str, Any]) -> None:
    """Ten calls that are refused one token share its replacement: a token is dropped only if it is the one used."""
    session = api.open(tool(auth=auth), **named)
    assert api.do(session.try_call, "pay", {"n": 0}).ok
    site.issued = dict.fromkeys(site.issued, (0.0, {}))
    calls = [lambda at=at: session.branch(f"b{at}").try_call("pay", {"n": at}) for at in range(10)]
    assert all(outcome.ok and outcome.attempts <= 2 for outcome in api.gather(*calls))
    assert (len(site.forms), site.revoked) == (2, False)


@every_provider
def test_O5_a_tool_that_refuses_every_token_is_asked_twice(
    api: Api, site: Site, auth: Any, named: dict[str, Any]
) -> None:
    """Under every grant a second 401 stops: two sends, two token requests, the step waits for a person."""
    site.on_tool = [unauthorised() for _ in range(9)]
    outcome = api.do(api.open(tool(auth=auth), **named).try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind) == ("ready", "auth")
    assert (len(site.forms), len(site.calls)) == (2, 2)


@pytest.mark.parametrize(
    "code",
    [
        *("invalid_grant", "invalid_client", "invalid_scope", "invalid_target", "unauthorized_client"),
        *("invalid_request", "unsupported_grant_type", "access_denied", "consent_required", "interaction_required"),
    ],
)
@every_provider
def test_a_plain_no_is_not_asked_again(api: Api, site: Site, auth: Any, named: dict[str, Any], code: str) -> None:
    """Errors that asking again cannot mend are told at once; no request goes to the tool, so nothing is unknown."""
    site.on_token = [httpx.Response(400, json={"error": code}) for _ in range(9)]
    outcome = api.do(api.open(tool(auth=auth), **named).try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.error["code"]) == ("ready", "auth", code)
    assert (len(site.forms), site.calls) == (1, [])


def test_a_refresh_token_that_github_calls_bad_is_sent_once(api: Api, site: Site) -> None:
    """Its error comes under 200; the account waits for a new authorisation, in every session and process."""
    site.on_token = [httpx.Response(200, json={"error": "bad_refresh_token"}) for _ in range(9)]
    for alias in ("one", "two"):
        outcome = api.do(api.open(tool(auth=rotating()), alias=alias).try_call, "pay", {"n": 1})
        assert (outcome.kind, outcome.error["code"]) == ("auth", "invalid_grant")
        assert "authorise account 'alice@crm' anew" in outcome.error["detail"]
    assert len(site.forms) == 1


def test_O2_short_lived_tokens_of_a_rotating_account(api: Api, site: Site, clock: VirtualClock) -> None:
    """With expires_in 30 and many calls at once no stale refresh token is sent, and not one for each call."""
    site.lifetime = 30
    session = api.open(tool(auth=rotating()))
    for round_ in range(5):
        calls = [
            lambda at=at, round_=round_: session.branch(f"b{round_}-{at}").try_call("pay", {"n": at}) for at in range(8)
        ]
        assert all(outcome.ok for outcome in api.gather(*calls))
        clock.advance(13)
    sent = [dict(form)["refresh_token"] for form in site.forms]
    assert (len(sent), len(set(sent))) == (3, 3)
    assert (site.revoked, site.expired) == (False, [])


def test_O6_a_token_that_is_good_serves_while_its_server_is_away(api: Api, site: Site, clock: VirtualClock) -> None:
    """A throttled request for one scope leaves the token of another scope at hand, which goes on serving."""
    tools = [tool(name, auth=CREDENTIALS, scope=name, url=f"https://tools.test/{name}") for name in ("one", "other")]
    session = api.open(*tools)
    assert api.do(session.try_call, "one", {"n": 1}).ok
    site.on_token = [httpx.Response(429, json={"message": "x"}, headers={"Retry-After": "3"})]
    began = clock.boottime()
    assert api.do(session.try_call, "other", {"n": 1}).ok
    assert 3 <= clock.boottime() - began < 4
    assert api.do(session.try_call, "one", {"n": 2}).ok
    assert len(site.forms) == 3


ADVICE = [
    (None, "no credential"),
    (StaticToken(token="static-canary-7"), "another credential in the settings"),
    (ApiKey(header="X-API-Key", key="key-canary-7"), "another credential in the settings"),
    (TokenCallable(function=lambda: "call-canary-7"), "token function"),
    (ClientCredentials(**CLIENT), "let the user sign in again"),
]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(("auth", "advice"), ADVICE, ids=["none", "static", "key", "function", "oauth"])
def test_what_to_do_about_claims_fits_the_credential(api: Api, site: Site, auth: Any, advice: str, status: int) -> None:
    """Nobody can sign in anew for a credential that stands in the settings or comes from a function."""
    challenge = {"WWW-Authenticate": 'Bearer error="insufficient_claims", claims="eyJhIjoxfQ=="'}
    site.on_tool = [httpx.Response(status, headers=challenge)]
    outcome = api.do(api.open(tool(auth=auth)).try_call, "pay", {"n": 1})
    assert (outcome.kind, outcome.error["claims"]) == ("auth", '{"a":1}')
    assert advice in outcome.error["detail"]
    assert ("sign in" in outcome.error["detail"]) == (advice == "let the user sign in again")
