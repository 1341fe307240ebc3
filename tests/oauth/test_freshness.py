"""A token is good before every send; one request serves all who wait; a 401 costs one refresh and no second effect."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import (
    AsyncRuntime,
    ClientCredentials,
    ConfigError,
    HttpLookup,
    Idempotency,
    Member,
    OnBehalfOf,
    PollPolicy,
    Runtime,
    StaticToken,
    StepPending,
    StepUnknown,
    Timeouts,
    TokenCallable,
    TokenExchange,
    ToolContract,
)
from agent_runtime._core.polling import follow
from agent_runtime._core.run import Run
from tests.credentials import STATIC
from tests.oauth.kit import (
    CLIENT,
    TOKEN_KEY,
    TOOL_URL,
    Api,
    Site,
    open_ledger_closing,
    rotating,
    rows,
    tool,
    unauthorised,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_runtime.testing import VirtualClock

CREDENTIALS = ClientCredentials(**CLIENT)
OBO = OnBehalfOf(**CLIENT, scope="api://orders/.default")
OTHER = "static-canary-2"


def branches(api: Api, session: Any, count: int, name: str = "pay") -> list[Callable[[], Any]]:
    """Return calls that may run at once, each in a branch of its own."""
    return [lambda at=index: session.branch(f"b{at}").try_call(name, {"n": at}) for index in range(count)]


def test_O1_A30_many_calls_and_one_token_request(api: Api, site: Site, clock: VirtualClock) -> None:
    """Twenty calls at once, first without a token and then with an expired one, ask for one token each time."""
    session = api.open(tool(auth=CREDENTIALS))
    assert all(outcome.ok for outcome in api.gather(*branches(api, session, 20)))
    assert len(site.forms) == 1
    clock.advance(400)
    again = [lambda at=index: session.branch(f"c{at}").try_call("pay", {"n": at}) for index in range(20)]
    assert all(outcome.ok for outcome in api.gather(*again))
    assert (len(site.forms), site.expired) == (2, [])


def test_A30_two_sessions_share_a_token(api: Api, site: Site) -> None:
    """Sessions of one runtime with equal providers, made apart, share one token."""
    one = tool("one", auth=ClientCredentials(**CLIENT))
    other = tool("other", auth=ClientCredentials(**CLIENT))
    runtime = api.runtime(one, other)
    for alias, name in (("a", "one"), ("b", "other")):
        assert api.do(api.do(runtime.open, alias).try_call, name, {}).ok
    assert len(site.forms) == 1


def test_O2_a_short_lived_token_serves_more_than_one_call(api: Api, site: Site, clock: VirtualClock) -> None:
    """With expires_in 30 a token is not asked for at every call."""
    site.lifetime = 30
    session = api.open(tool(auth=CREDENTIALS))
    for number in range(10):
        assert api.do(session.try_call, "pay", {"n": number}).ok
        clock.advance(6)
    assert len(site.forms) == 2
    assert site.expired == []


def test_O4_a_401_costs_one_refresh_under_the_same_key(api: Api, site: Site) -> None:
    """After a 401 the token is replaced once, and the same key and bytes go to the same target."""
    site.on_tool = [unauthorised()]
    session = api.open(tool(auth=CREDENTIALS))
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.ok, outcome.attempts) == (True, 2)
    assert len(site.forms) == 2
    first, second = site.calls
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert (first.content, first.url, first.method) == (second.content, second.url, second.method)
    assert first.headers["Authorization"] != second.headers["Authorization"]


def test_O5_A33_a_second_401_stops(api: Api, site: Site) -> None:
    """A tool that refuses a fresh token too is asked twice; the step was not applied and waits for a person."""
    site.on_tool = [unauthorised(), unauthorised(), unauthorised()]
    session = api.open(tool(auth=CREDENTIALS))
    with pytest.raises(StepPending) as caught:
        api.do(session.call, "pay", {"n": 1})
    assert (caught.value.kind, caught.value.outcome.state) == ("auth", "ready")
    assert (len(site.calls), len(site.forms)) == (2, 2)


def test_A33_a_token_endpoint_that_is_down_for_a_moment(api: Api, site: Site) -> None:
    """A 503 of the token endpoint is tried again within the budget."""
    site.on_token = [httpx.Response(503)]
    session = api.open(tool(auth=CREDENTIALS))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), len(site.calls)) == (2, 1)


def test_O6_a_throttled_token_request_waits_as_asked(api: Api, site: Site, clock: VirtualClock) -> None:
    """A 429 with a body that looks like no error is no token: the asked wait is kept, then it is tried again."""
    site.on_token = [httpx.Response(429, json={"message": "x"}, headers={"Retry-After": "3"})]
    session = api.open(tool(auth=CREDENTIALS))
    began = clock.boottime()
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert 3 <= clock.boottime() - began < 4
    assert [call.headers["Authorization"] for call in site.calls] == ["Bearer issued-canary-1"]


def test_O6_a_token_that_is_good_is_not_touched_by_a_refresh_that_fails(api: Api, site: Site) -> None:
    """A tool's 401 followed by a throttled token endpoint waits, and ends with a fresh token."""
    session = api.open(tool(auth=CREDENTIALS))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    site.on_tool = [unauthorised()]
    site.on_token = [httpx.Response(429, json={"message": "x"}, headers={"Retry-After": "3"})]
    assert api.do(session.try_call, "pay", {"n": 2}).ok
    assert site.calls[-1].headers["Authorization"] == "Bearer issued-canary-2"


@pytest.mark.parametrize("lifetime", [3600, "3600", 3599.7, "3599.7", 0, None, -1, ...], ids=str)
def test_O7_every_form_of_expires_in(api: Api, site: Site, clock: VirtualClock, lifetime: Any) -> None:
    """Each form is read: about an hour, untold (300 s), or nothing left, which serves one call."""
    site.lifetime = lifetime
    session = api.open(tool(auth=CREDENTIALS))
    serve = dict.fromkeys((0, -1), (2, 3)).get(lifetime, (1, 2 if lifetime in {None, ...} else 1))
    for number in range(2):
        assert api.do(session.try_call, "pay", {"n": number}).ok
    assert len(site.forms) == serve[0]
    clock.advance(301)
    api.do(session.try_call, "pay", {"n": 3})
    assert len(site.forms) == serve[1]


@pytest.mark.parametrize("left", [0.1, 5])
def test_A31_a_token_is_replaced_before_it_runs_out(api: Api, site: Site, clock: VirtualClock, left: float) -> None:
    """A token with a moment left is not sent, though it is still good by the clock here."""
    session = api.open(tool(auth=CREDENTIALS))
    api.do(session.call, "pay", {"n": 1})
    clock.advance(300 - left)
    api.do(session.call, "pay", {"n": 2})
    assert (len(site.forms), site.expired) == (2, [])


@pytest.mark.parametrize("skew", [-30.0, 30.0])
def test_A31_a_server_whose_clock_is_wrong(api: Api, site: Site, clock: VirtualClock, skew: float) -> None:
    """The server's Date plays no part: a token's life is counted from when it was asked for."""

    def dated(request: httpx.Request, at: Site) -> httpx.Response:
        answer = at.issue(request)
        answer.headers["Date"] = "Thu, 01 Jan 2026 00:00:30 GMT" if skew > 0 else "Wed, 31 Dec 2025 23:59:30 GMT"
        return answer

    site.on_token = [dated]
    session = api.open(tool(auth=CREDENTIALS))
    api.do(session.call, "pay", {"n": 1})
    clock.advance(269)
    api.do(session.call, "pay", {"n": 2})
    assert len(site.forms) == 1
    clock.advance(2)
    api.do(session.call, "pay", {"n": 3})
    assert (len(site.forms), site.expired) == (2, [])


def test_A31_a_wait_between_two_attempts_costs_the_token(api: Api, site: Site) -> None:
    """A token that runs out during a Retry-After of a minute is replaced before the second attempt."""
    site.lifetime = 50
    site.on_tool = [httpx.Response(429, headers={"Retry-After": "54"})]
    session = api.open(tool(auth=CREDENTIALS))
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.ok, outcome.attempts) == (True, 2)
    assert (len(site.forms), site.expired) == (2, [])


def test_A31_life_is_counted_from_the_sending(api: Api, site: Site, clock: VirtualClock) -> None:
    """A token request that was long on its way shortens the life of what it brings."""

    def slow(request: httpx.Request, at: Site) -> httpx.Response:
        answer = at.issue(request)
        clock.advance(25)
        return answer

    site.on_token = [slow]
    session = api.open(tool(auth=CREDENTIALS))
    api.do(session.call, "pay", {"n": 1})
    clock.advance(246)
    api.do(session.call, "pay", {"n": 2})
    assert (len(site.forms), site.expired) == (2, [])


def test_O8_users_never_get_each_others_tokens(api: Api, site: Site) -> None:
    """Calls of two users' sessions at once: each carries the token that was exchanged for its own user."""
    runtime = api.runtime(tool(auth=OBO))
    sessions = {
        user: api.do(runtime.open, f"plan-{user}", actor=user, subject_token=f"subject-canary-{user}")
        for user in ("a", "b")
    }
    calls = [
        lambda user=user, at=at: sessions[user].branch(f"x{at}").try_call("pay", {"user": user, "n": at})
        for at in range(10)
        for user in ("a", "b")
    ]
    assert all(outcome.ok for outcome in api.gather(*calls))
    for call in site.calls:
        assert site.of(call)["assertion"] == f"subject-canary-{json.loads(call.content)['user']}"
    assert len(site.forms) == 2


def test_A34_each_assertion_scope_and_audience_has_its_own_token(api: Api, site: Site) -> None:
    """One user with two assertions, two scopes and two audiences, and another user: no call has another's token."""
    exchange = TokenExchange(**CLIENT)
    tools = [
        tool(f"t{at}", auth=exchange, scope=scope, audience=audience, url=f"https://tools.test/{at}")
        for at, (scope, audience) in enumerate([("read", "one"), ("write", "one"), ("read", "two")])
    ]
    runtime = api.runtime(*tools)
    proofs = [("u1", "a1"), ("u1", "a2"), ("u2", "a3")]
    sessions = [
        api.do(runtime.open, proof, actor=user, subject_token=f"subject-canary-{proof}") for user, proof in proofs
    ]
    calls = [
        lambda session=session, at=at, name=one.name, proof=proof[1]: session.branch(f"b{at}").try_call(
            name, {"p": proof}
        )
        for at in range(6)
        for session, proof in zip(sessions, proofs, strict=True)
        for one in tools
        if at % 3 == tools.index(one)
    ]
    assert all(outcome.ok for outcome in api.gather(*calls))
    wanted = {f"/{at}": (one.scope, one.audience) for at, one in enumerate(tools)}
    for call in site.calls:
        form = site.of(call)
        assert form["subject_token"] == "subject-canary-" + json.loads(call.content)["p"]
        assert (form["scope"], form["audience"]) == wanted[call.url.path]
    assert len(site.forms) == 9


def test_A34_a_session_without_its_assertion_uses_no_other(api: Api, site: Site) -> None:
    """Resumed without the user's token, a session says what it wants, though another user's token is at hand."""
    first = api.open(tool(auth=OBO), actor="a", subject_token="subject-canary-a")
    site.on_tool = [httpx.Response(429, headers={"Retry-After": "900"})]
    assert api.do(first.try_call, "pay", {"n": 1}).kind == "parked"
    api.do(first.close)
    site.clock.advance(1000)
    runtime = api.runtime(tool(auth=OBO))
    api.do(api.do(runtime.open, "other", actor="b", subject_token="subject-canary-b").call, "pay", {"n": 2})
    resumed = api.do(runtime.resume, first.id)
    outcome = api.do(resumed.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.attempts) == ("ready", "auth", 1)
    assert outcome.error["code"] == "subject_token_missing"
    assert "session.authenticate(subject_token=" in outcome.error["detail"]
    api.do(resumed.authenticate, subject_token="subject-canary-a2")
    assert api.do(resumed.call, "pay", {"n": 1}).value == {"for": "a2"}
    assert len({call.headers["Idempotency-Key"] for call in site.calls}) == 2


def test_O9_new_proof_is_asked_for_with_its_claims(api: Api, site: Site) -> None:
    """interaction_required makes the step wait with the claims; no tool request was sent; new proof lets it go on."""
    claims = '{"access_token":{"acrs":{"essential":true,"value":"c1"}}}'
    refusal = {
        "error": "interaction_required",
        "error_codes": [50076],
        "error_description": "AADSTS50076: multi-factor authentication is wanted",
        "claims": claims,
    }
    site.on_token = [httpx.Response(400, json=refusal)]
    session = api.open(tool(auth=OBO), actor="alice", subject_token="subject-canary-1")
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.reason, outcome.attempts) == ("ready", "auth", 0)
    assert (outcome.error["code"], outcome.error["claims"]) == ("interaction_required", claims)
    assert "AADSTS50076" in outcome.error["description"]
    assert "let alice sign in again" in outcome.error["detail"]
    assert site.calls == []
    api.do(session.authenticate, subject_token="subject-canary-2")
    assert api.do(session.call, "pay", {"n": 1}).step == "step_002"
    assert len({call.headers["Idempotency-Key"] for call in site.calls}) == 1


def test_a_claims_challenge_of_the_tool_waits_without_a_refresh(api: Api, site: Site) -> None:
    """A 401 that names claims is nothing for a fresh token of the same proof: the step waits with the claims."""
    claims = '{"access_token":{"nbf":{"essential":true}}}'
    packed = base64.b64encode(claims.encode()).decode()
    site.on_tool = [unauthorised(f'Bearer realm="", error="insufficient_claims", claims="{packed}"')]
    session = api.open(tool(auth=OBO), actor="alice", subject_token="subject-canary-1")
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.error["claims"]) == ("ready", "auth", claims)
    assert (len(site.forms), len(site.calls)) == (1, 1)


def test_an_ambiguous_step_without_a_token_stays_unknown(api: Api, site: Site) -> None:
    """Where an earlier attempt may have been applied, a lack of proof leaves the step unknown and says what to do."""

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        clock = at.clock
        clock.advance(400)
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [lose]
    session = api.open(tool(auth=OBO, contract=slow_contract()), actor="alice", subject_token="subject-canary-1")
    site.on_token = [site_issue, httpx.Response(400, json={"error": "invalid_grant"})]
    with pytest.raises(StepUnknown) as caught:
        api.do(session.call, "pay", {"n": 1})
    assert "session.authenticate(subject_token=" in str(caught.value)
    assert caught.value.outcome.error["code"] == "invalid_grant"
    assert len(site.calls) == 1
    api.do(session.authenticate, subject_token="subject-canary-2")
    assert api.do(session.call, "pay", {"n": 1}).value == {"for": "2"}
    assert len({call.headers["Idempotency-Key"] for call in site.calls}) == 1


def slow_contract(**more: Any) -> ToolContract:
    return ToolContract(idempotency=Idempotency(**more), timeouts=Timeouts(step=1000))


def site_issue(request: httpx.Request, site: Site) -> httpx.Response:
    return site.issue(request)


def test_O13_a_403_never_loops(api: Api, site: Site) -> None:
    """insufficient_scope is a refusal: no refresh, no second send."""
    site.on_tool = [httpx.Response(403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope"'})]
    session = api.open(tool(auth=CREDENTIALS))
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.effect) == ("failed", "none")
    assert (len(site.forms), len(site.calls)) == (1, 1)


@pytest.mark.parametrize("status", [401, 403])
def test_a_marked_refusal_is_the_stored_end_of_its_key(api: Api, site: Site, status: int) -> None:
    """A 401 or 403 with the replay mark after a lost answer ends the step: no refresh, no resend."""

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [lose, httpx.Response(status, headers={"Idempotent-Replayed": "true"})]
    session = api.open(tool(auth=CREDENTIALS))
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.reason) == ("failed", "stored")
    assert (len(site.forms), len(site.calls)) == (1, 2)
    assert "reissue" in outcome.message


def test_O14_a_look_after_two_hours_has_a_fresh_token(api: Api, site: Site, clock: VirtualClock) -> None:
    """What asks the tool after a wait of two hours gets a new token first."""
    contract = ToolContract(
        idempotency=Idempotency(in_progress_ttl=60),
        lookup=HttpLookup(url="/ops/{key}", done=Member(name="state", equals="done")),
    )

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        clock.advance(7200)
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [lose, lambda request, at: at.serve(request) if at.serve(request).status_code == 401 else done()]
    session = api.open(tool(auth=CREDENTIALS, contract=contract))
    api.do(session.try_call, "pay", {"n": 1})
    outcome = api.do(session.settle)[0]
    assert outcome.ok
    assert [call.method for call in site.calls] == ["POST", "GET"]
    assert (len(site.forms), site.expired) == (2, [])


def done() -> httpx.Response:
    return httpx.Response(200, json={"state": "done"})


def test_a_key_that_is_bound_to_the_token_is_looked_up(api: Api, site: Site) -> None:
    """After a lost answer and a refresh, a tool that binds keys to tokens is asked, and nothing is resent."""
    contract = ToolContract(
        idempotency=Idempotency(key_bound_to_token=True),
        lookup=HttpLookup(url="/ops/{key}", done=Member(name="state", equals="done")),
    )

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        at.clock.advance(299)
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [lose, lambda request, at: done()]
    session = api.open(tool(auth=CREDENTIALS, contract=contract))
    api.do(session.try_call, "pay", {"n": 1})
    api.do(session.settle)
    assert session.steps()[0].state == "succeeded"
    assert [call.method for call in site.calls] == ["POST", "GET"]
    assert len(site.forms) == 2


@pytest.mark.parametrize("place", ["https://other.test/ops/{key}", "http://tools.test/ops/{key}", "/ops/{key}"])
def test_credentials_never_cross_an_origin(api: Api, site: Site, place: str) -> None:
    """A look-up on another origin, or without TLS, carries no token; one on the tool's own does."""
    contract = ToolContract(
        idempotency=Idempotency(key_bound_to_token=True),
        lookup=HttpLookup(url=place, done=Member(name="state", equals="done")),
    )

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        at.clock.advance(299)
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [lose, lambda request, at: done()]
    session = api.open(tool(auth=CREDENTIALS, contract=contract))
    api.do(session.try_call, "pay", {"n": 1})
    api.do(session.settle)
    assert [call.method for call in site.calls] == ["POST", "GET"]
    assert ("Authorization" in site.calls[1].headers) is place.startswith("/")


ANOTHER = {
    # before, after, and what each session is opened with
    "client": (CREDENTIALS, ClientCredentials(**CLIENT | {"client_id": "other"}), {}),
    "account": (rotating(), rotating(account="bob@crm", refresh_token="refresh-canary-bob"), {}),
    "static account": (StaticToken(token=STATIC, principal="acct-1"), StaticToken(token=OTHER, principal="acct-2"), {}),
    "subject": (
        TokenExchange(**CLIENT),
        TokenExchange(**CLIENT, subject=StaticToken(token=OTHER, principal="bob")),
        {"actor": "alice", "subject_token": "subject-canary-1"},
    ),
    "function": (
        TokenCallable(function=lambda: "t", principal="acct-1"),
        TokenCallable(function=lambda: pytest.fail("asked"), principal="acct-2"),
        {},
    ),
}


@pytest.mark.parametrize("parked", [False, True], ids=["unknown", "ready"])
@pytest.mark.parametrize(("before", "after", "named"), ANOTHER.values(), ids=ANOTHER)
def test_another_identity_sends_nothing_and_asks_for_no_token(
    api: Api, site: Site, before: Any, after: Any, named: dict[str, str], parked: bool
) -> None:
    """A step that is recorded for one client, account or subject is refused to another before a token is asked for."""

    def lose(request: httpx.Request, at: Site) -> httpx.Response:
        raise httpx.ReadTimeout("lost", request=request)

    site.on_tool = [httpx.Response(429, headers={"Retry-After": "900"})] if parked else [lose] * 9
    site.issued[STATIC] = site.issued[OTHER] = (float("inf"), {})
    first = api.open(tool(auth=before), **named)
    state = "ready" if parked else "unknown"
    assert api.do(first.try_call, "pay", {"n": 1}).state == state
    api.do(first.close)
    site.on_tool = []
    site.clock.advance(1000)
    sent = (len(site.calls), len(site.token_requests))
    resumed = api.do(api.runtime(tool(auth=after)).resume, first.id, **{k: v for k, v in named.items() if k != "actor"})
    outcome = api.do(resumed.try_call, "pay", {"n": 1})
    assert outcome.state == state
    assert "bring the recorded identity" in outcome.error["detail"]
    assert (len(site.calls), len(site.token_requests)) == sent


def test_a_session_is_not_lent_to_another_actor(api: Api) -> None:
    """A session that acts for one user cannot be opened or authenticated for another."""
    session = api.open(tool(auth=OBO), actor="alice", subject_token="subject-canary-1")
    with pytest.raises(ConfigError, match="acts for 'alice', not for 'bob'"):
        api.do(session.authenticate, subject_token="subject-canary-x", actor="bob")
    api.do(session.close)
    with pytest.raises(ConfigError, match="acts for 'alice', not for 'bob'"):
        api.open(tool(auth=OBO), actor="bob", subject_token="subject-canary-2")
    again = api.open(tool(auth=OBO), actor="alice", subject_token="subject-canary-1")  # the refused one holds no lease
    assert again.id == session.id


def test_a_subject_needs_a_name(api: Api) -> None:
    """A user's token without the user's name is refused, and so is a call for a user that nobody named."""
    with pytest.raises(ConfigError, match="needs actor="):
        api.open(tool(auth=OBO), subject_token="subject-canary-1")
    session = api.open(tool(auth=OBO), alias="nameless")
    with pytest.raises(ConfigError, match="does not say for whom"):
        api.do(session.call, "pay", {"n": 1})


def test_a_token_function_is_asked_before_every_send(api: Api, site: Site) -> None:
    """A callable is asked each time, and after a 401 its new token is used."""
    names = ["call-canary-1", "call-canary-2", "call-canary-3"]
    given = iter(names)
    for name in names:
        site.issued[name] = (float("inf"), {})
    site.on_tool = [unauthorised()]
    session = api.open(tool(auth=TokenCallable(function=lambda: next(given))))
    api.do(session.call, "pay", {"n": 1})
    api.do(session.call, "pay", {"n": 2})
    assert [call.headers["Authorization"] for call in site.calls] == [f"Bearer {name}" for name in names]


def test_what_a_token_function_raises_reaches_the_caller(api: Api, site: Site) -> None:
    """It comes as it is; nothing was sent, and the same call goes on once the function works."""
    broken = [True]

    def function() -> str:
        if broken[0]:
            raise OSError("the vault is away")
        return STATIC

    site.issued[STATIC] = (float("inf"), {})
    session = api.open(tool(auth=TokenCallable(function=function)))
    with pytest.raises(OSError, match="the vault is away"):
        api.do(session.call, "pay", {"n": 1})
    assert (site.calls, [step.state for step in session.steps()]) == ([], ["ready"])
    broken[0] = False
    assert api.do(session.call, "pay", {"n": 1}) is not None
    assert len(site.calls) == 1


def test_a_users_token_may_be_a_function(api: Api, site: Site) -> None:
    """A function gives the user's current token at each exchange, so that a long plan outlives the first one."""
    current = ["subject-canary-1"]
    session = api.open(tool(auth=OBO), actor="alice", subject_token=lambda: current[0])
    api.do(session.call, "pay", {"n": 1})
    site.clock.advance(400)
    current[0] = "subject-canary-2"
    assert api.do(session.call, "pay", {"n": 2}).value == {"for": "2"}


def slow_authority(api: Api, site: Site, seconds: float) -> tuple[Any, Any]:
    """Return an authorisation server that lets so much time pass, and answers once the gate is set."""
    gate: Any = threading.Event() if api.name == "sync" else asyncio.Event()

    def slow(request: httpx.Request) -> bool:
        first = request.url.host == "as.test" and not gate.is_set()
        if first:
            site.clock.advance(seconds)
        return first

    def handler(request: httpx.Request) -> httpx.Response:
        if slow(request):
            assert gate.wait(30)
        return site(request)

    async def async_handler(request: httpx.Request) -> httpx.Response:
        if slow(request):
            await asyncio.wait_for(gate.wait(), 30)
        return site(request)

    return (handler if api.name == "sync" else async_handler), gate


@pytest.mark.parametrize("auth", [CREDENTIALS, rotating()], ids=["client_credentials", "refresh_token"])
def test_a_token_is_waited_for_no_longer_than_the_step(api: Api, site: Site, auth: Any) -> None:
    """The step is parked at the end of its budget; the request goes on, and what it brings serves the next try."""
    handler, gate = slow_authority(api, site, 6)
    contract = ToolContract(idempotency=Idempotency(), timeouts=Timeouts(step=5))
    session = api.open(tool(auth=auth, contract=contract), handler=handler)
    outcome = api.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind) == ("ready", "parked")
    assert "under way for longer than this step can wait" in outcome.error["detail"]
    assert (site.forms, site.calls) == ([], [])
    gate.set()
    site.clock.advance(5)
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), len(site.calls)) == (1, 1)


def test_a_token_that_comes_in_time_is_waited_for(api: Api, site: Site) -> None:
    """A request that takes long, and not too long, costs the step nothing but the time."""
    handler, gate = slow_authority(api, site, 4)
    contract = ToolContract(idempotency=Idempotency(), timeouts=Timeouts(step=5))
    session = api.open(tool(auth=CREDENTIALS, contract=contract), handler=handler)
    if api.name == "sync":
        opener = threading.Timer(0.3, gate.set)
        opener.start()
        assert api.do(session.try_call, "pay", {"n": 1}).ok
        return

    async def call() -> Any:
        asyncio.get_running_loop().call_later(0.3, gate.set)
        return await session.try_call("pay", {"n": 1})

    assert api.do(call).ok


def test_O12_a_cancelled_caller_does_not_tear_the_refresh(tmp_path: Path, site: Site) -> None:
    """A call that is cancelled while its token is asked for leaves the request going; the next call has its token."""
    arrived, answered = asyncio.Event(), asyncio.Event()

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.host == "as.test":
                arrived.set()
                await answered.wait()
            await request.aread()
            return site(request)

    async def run() -> None:
        async with (
            httpx.AsyncClient(transport=Slow()) as client,
            AsyncRuntime(
                f"sqlite:///{tmp_path}/agent.db", tools=[tool(auth=CREDENTIALS)], client=client, clock=site.clock
            ) as runtime,
        ):
            session = await runtime.open("plan")
            call = asyncio.ensure_future(session.call("pay", {"n": 1}))
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert session.steps()[0].state == "ready"
            answered.set()
            assert (await session.call("pay", {"n": 1})).step == "step_002"

    asyncio.run(run())
    assert (len(site.forms), len(site.calls)) == (1, 1)


def test_O12_ctrl_c_does_not_tear_the_refresh(tmp_path: Path, site: Site) -> None:
    """Ctrl-C while a rotating token is refreshed ends the call; the refresh goes on and its token is kept."""
    arrived, answer = threading.Event(), threading.Event()

    class Slow(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.host == "as.test":
                arrived.set()
                answer.wait(10)
            return site(request)

    def interrupt() -> None:
        arrived.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=interrupt)
    try:
        with (
            httpx.Client(transport=Slow()) as client,
            Runtime(
                f"sqlite:///{tmp_path}/agent.db",
                tools=[tool(auth=rotating())],
                client=client,
                clock=site.clock,
                token_key=TOKEN_KEY,
            ) as runtime,
        ):
            session = runtime.open("plan")
            presser.start()
            with pytest.raises(KeyboardInterrupt):
                session.call("pay", {"n": 1})
            presser.join(10)
            assert session.steps()[0].state == "ready"
            answer.set()
            assert session.call("pay", {"n": 1}).step == "step_002"
    finally:
        answer.set()
        signal.signal(signal.SIGINT, before)
    assert (len(site.forms), len(site.calls), site.revoked) == (1, 1, False)


def test_O12_closing_waits_for_a_refresh_that_is_out(tmp_path: Path, site: Site) -> None:
    """A cancelled program that leaves its runtime's block keeps what the refresh brings."""
    arrived = asyncio.Event()

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            arrived.set()
            for _ in range(50):
                await asyncio.sleep(0)
            await request.aread()
            return site(request)

    async def program() -> None:
        async with (
            httpx.AsyncClient(transport=Slow()) as client,
            AsyncRuntime(
                f"sqlite:///{tmp_path}/agent.db",
                tools=[tool(auth=rotating())],
                client=client,
                clock=site.clock,
                token_key=TOKEN_KEY,
            ) as runtime,
        ):
            session = await runtime.open("plan")
            await session.call("pay", {"n": 1})

    async def run() -> None:
        running = asyncio.ensure_future(program())
        await arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    with open_ledger_closing(f"sqlite:///{tmp_path}/agent.db", site) as ledger:
        row = rows(ledger)[0]
    assert (row["holder"], row["doubts"], row["version"]) == (None, 0, 2)
    assert site.refresh != "refresh-canary-0"


def test_the_user_token_is_never_forwarded(api: Api, site: Site) -> None:
    """No tool request holds the user's own token, in any header, URL or body."""
    session = api.open(tool(auth=OBO), actor="alice", subject_token="subject-canary-x")
    api.do(session.call, "pay", {"n": 1})
    for call in site.calls:
        assert "subject-canary-x" not in str(call.url) + repr(call.headers.raw) + call.content.decode()
    assert site.calls[0].url == TOOL_URL


def test_O14_a_poll_after_two_hours_refreshes_first(api: Api, site: Site, clock: VirtualClock) -> None:
    """The look at a job's status URL two hours after the last one gets a new token first, and repeats no POST."""
    slow = ToolContract(idempotency=Idempotency(), polling=PollPolicy(first=7200, bound=20_000))
    site.on_tool = [
        lambda request, at: httpx.Response(202, headers={"Location": "https://tools.test/jobs/1"}),
        lambda request, at: at.serve(request) if at.serve(request).status_code == 401 else done(),
    ]
    paying = tool(auth=CREDENTIALS, contract=slow)
    session = api.open(paying)
    hold = session._hold
    outcome = api.do(session.try_call, "pay", {"n": 1})
    if len(site.calls) == 1:  # the call did not wait for the job's end
        clock.advance(7200)
        operation = hold.desk.book.operations[outcome.operation_id]
        run = Run(operation=operation, tool=paying, fence=hold.desk.fence, body_limit=1000, follow="once")
        run.deadline = clock.wall() + 300
        driver = hold.settings.driver if api.name == "sync" else hold.settings.async_driver
        api.do(driver.drive, follow(run), hold.lease)
    assert [call.method for call in site.calls] == ["POST", "GET"]
    assert (len(site.forms), site.expired) == (2, [])
