"""Token exchange and on-behalf-of, against Authlib's own server, and the forms that go out."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import httpx
import pytest

from agent_runtime import (
    ApiKey,
    ClientCredentials,
    ConfigError,
    OnBehalfOf,
    PrivateKey,
    StaticToken,
    TokenCallable,
    TokenExchange,
)
from agent_runtime._oauth import metadata_urls
from tests.credentials import CLIENT_SECRET, REFRESH
from tests.oauth.authority import Authority, user_token
from tests.oauth.kit import CLIENT, TOKEN_URL, Api, Site, rotating, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock

JWT = "urn:ietf:params:oauth:token-type:jwt"
ACCESS = "urn:ietf:params:oauth:token-type:access_token"


@pytest.fixture
def authority() -> Authority:
    return Authority()


def test_O11_an_exchange_says_everything(api: Api, authority: Authority) -> None:
    """Subject, actor, two resources, two audiences, scopes and the type wanted all reach the server, repeated."""
    auth = TokenExchange(
        **CLIENT,
        subject_token_type=JWT,
        actor_token=StaticToken(token="static-canary-of-the-agent"),
        resource=("https://one.test", "https://two.test/x"),
        audience=("one", "two"),
        scope="write read",
        requested_token_type=JWT,
    )
    session = api.open(tool(auth=auth), actor="alice", subject_token=user_token("alice"), handler=authority)
    assert api.do(session.call, "pay", {}).value == {"user": "alice"}
    (form,) = authority.forms()
    assert form["resource"] == ["https://one.test", "https://two.test/x"]
    assert form["audience"] == ["one", "two"]
    assert form["scope"] == ["read write"]
    assert (form["subject_token_type"], form["requested_token_type"]) == ([JWT], [JWT])
    assert (form["actor_token"], form["actor_token_type"]) == (["static-canary-of-the-agent"], [ACCESS])


def test_an_actor_type_never_stands_alone(api: Api, authority: Authority) -> None:
    """Without an actor's token there is no actor's type, which the server would refuse."""
    session = api.open(
        tool(auth=TokenExchange(**CLIENT)), actor="alice", subject_token=user_token("alice"), handler=authority
    )
    assert api.do(session.call, "pay", {}).value == {"user": "alice"}
    assert "actor_token_type" not in authority.forms()[0]


def test_on_behalf_of_is_entras_form(api: Api, authority: Authority) -> None:
    """The jwt-bearer grant goes out with the assertion, the client in the form, and requested_token_use."""
    auth = OnBehalfOf(**CLIENT, scope="api://orders/.default")
    session = api.open(tool(auth=auth), actor="alice", subject_token=user_token("alice"), handler=authority)
    assert api.do(session.call, "pay", {}).value == {"user": "alice"}
    (form,) = authority.forms()
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert (form["requested_token_use"], form["scope"]) == (["on_behalf_of"], ["api://orders/.default"])


def test_O9_a_second_factor_is_asked_for(api: Api, authority: Authority) -> None:
    """A user without a second factor makes the step wait with the claims; a token with one lets it go on."""
    auth = OnBehalfOf(**CLIENT, scope="api://orders/.default")
    session = api.open(tool(auth=auth), actor="alice", subject_token=user_token("alice", mfa=False), handler=authority)
    outcome = api.do(session.try_call, "pay", {})
    assert (outcome.state, outcome.kind, outcome.error["code"]) == ("ready", "auth", "interaction_required")
    assert "acrs" in outcome.error["claims"]
    assert authority.calls == []
    api.do(session.authenticate, subject_token=user_token("alice"))
    assert api.do(session.call, "pay", {}).value == {"user": "alice"}


@pytest.mark.parametrize("wrong", [{"audience": "another-app"}, {"expires": 1.0}])
def test_an_assertion_that_is_not_good_waits(api: Api, authority: Authority, wrong: Any) -> None:
    """An assertion for another application, or an expired one, is refused by the server, and the step waits."""
    auth = OnBehalfOf(**CLIENT, scope="s")
    session = api.open(tool(auth=auth), actor="alice", subject_token=user_token("alice", **wrong), handler=authority)
    outcome = api.do(session.try_call, "pay", {})
    assert (outcome.kind, outcome.error["code"], authority.calls) == ("auth", "invalid_grant", [])


def test_a_wrong_secret_is_told(api: Api, authority: Authority) -> None:
    """invalid_client makes the step wait and names the client."""
    auth = OnBehalfOf(**CLIENT | {"client_secret": "client-secret-canary-wrong"}, scope="s")
    session = api.open(tool(auth=auth), actor="alice", subject_token=user_token("alice"), handler=authority)
    outcome = api.do(session.try_call, "pay", {})
    assert (outcome.kind, outcome.error["code"]) == ("auth", "invalid_client")
    assert "client 'agent'" in outcome.error["detail"]


def test_the_agents_own_token_may_be_the_actor(api: Api, site: Site, clock: VirtualClock) -> None:
    """The actor's token comes from client credentials, is cached by itself, and is refreshed by itself."""
    auth = TokenExchange(**CLIENT, actor_token=ClientCredentials(**CLIENT | {"client_id": "robot"}))
    session = api.open(tool(auth=auth), actor="alice", subject_token="subject-canary-1")
    api.do(session.call, "pay", {"n": 1})
    clock.advance(200)
    api.do(session.authenticate, subject_token="subject-canary-2")
    api.do(session.call, "pay", {"n": 2})
    kinds = [dict(form)["grant_type"].rpartition(":")[2] for form in site.forms]
    assert kinds == ["client_credentials", "token-exchange", "token-exchange"]
    assert dict(site.forms[1])["actor_token"] == "issued-canary-1"


def test_a_subject_may_be_an_account(api: Api, site: Site) -> None:
    """An exchange may take the token of an account with a rotating refresh token as its subject."""
    auth = TokenExchange(**CLIENT, subject=rotating(), audience="orders")
    session = api.open(tool(auth=auth))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert [dict(form)["grant_type"] for form in site.forms] == [
        "refresh_token",
        "urn:ietf:params:oauth:grant-type:token-exchange",
    ]
    assert site.of(site.calls[0])["subject_token"] == "issued-canary-1"


def choosy(refused: set[str]) -> Any:
    """Return a server that does not take some subjects' tokens any more."""

    def answer(request: httpx.Request, site: Site) -> httpx.Response:
        form = dict(parse_qsl(request.content.decode()))
        if form.get("subject_token") in refused:
            return httpx.Response(400, json={"error": "invalid_request"})
        return site.issue(request)

    return answer


def test_a_subjects_token_that_is_refused_is_refreshed_once(api: Api, site: Site) -> None:
    """The server has ended the token of the account before its time: a fresh one is got and exchanged."""
    site.on_token = [choosy({"issued-canary-1"}) for _ in range(9)]
    session = api.open(tool(auth=TokenExchange(**CLIENT, subject=rotating())))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    kinds = [dict(form)["grant_type"].rpartition(":")[2] for form in site.forms]
    assert kinds == ["refresh_token", "token-exchange", "refresh_token", "token-exchange"]
    assert dict(site.forms[3])["subject_token"] == "issued-canary-2"


@pytest.mark.parametrize("code", ["invalid_request", "invalid_grant", "invalid_token"])
def test_a_subject_that_stays_refused_is_named(api: Api, site: Site, code: str) -> None:
    """One refresh, not more; and the advice is about the account whose token it is."""
    site.on_token = [lambda request, at: at.issue(request), httpx.Response(400, json={"error": code})] * 4
    outcome = api.do(api.open(tool(auth=TokenExchange(**CLIENT, subject=rotating()))).try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.error["code"], len(site.forms)) == ("ready", "auth", code, 4)
    assert "authorise account 'alice@crm' anew" in outcome.error["detail"]
    assert "fresh token of the subject was refused as well" in outcome.error["detail"]


def test_a_subject_that_has_no_fresh_token_is_named(api: Api, site: Site) -> None:
    """Where the account's own refresh is refused that is what is told."""
    site.on_token = [choosy({"issued-canary-1"}), choosy({"issued-canary-1"})]
    site.on_token.append(httpx.Response(400, json={"error": "invalid_grant"}))
    outcome = api.do(api.open(tool(auth=TokenExchange(**CLIENT, subject=rotating()))).try_call, "pay", {"n": 1})
    assert (outcome.kind, outcome.error["code"], len(site.forms)) == ("auth", "invalid_grant", 3)
    assert "authorise account 'alice@crm' anew" in outcome.error["detail"]


def test_other_refusals_of_an_exchange_refresh_no_subject(api: Api, site: Site) -> None:
    """A target that is not allowed has nothing to do with the subject's token."""
    site.on_token = [lambda request, at: at.issue(request), httpx.Response(400, json={"error": "invalid_target"})]
    outcome = api.do(api.open(tool(auth=TokenExchange(**CLIENT, subject=rotating()))).try_call, "pay", {"n": 1})
    assert (outcome.error["code"], len(site.forms)) == ("invalid_target", 2)


def test_a_token_that_is_none_is_refused(api: Api, site: Site) -> None:
    """An exchange whose reply is N_A, or does not say what it holds, or holds another kind, gives no token."""
    refresh = "urn:ietf:params:oauth:token-type:refresh_token"
    for reply in (
        {"access_token": "x", "token_type": "N_A", "issued_token_type": JWT},
        {"access_token": "x"},
        {"access_token": "x", "issued_token_type": refresh, "token_type": "Bearer", "expires_in": 300},
    ):
        site.on_token = [httpx.Response(200, json=reply)]
        session = api.open(
            tool(auth=TokenExchange(**CLIENT)), alias=str(len(reply)), actor="a", subject_token="subject-canary-t"
        )
        assert api.do(session.try_call, "pay", {"n": 1}).kind == "auth"
    assert site.calls == []


def test_what_is_asked_for_by_a_tool_goes_before_the_providers(api: Api, site: Site) -> None:
    """One provider for the runtime, scope and audience by tool: each tool's calls carry a token of their own."""
    one, other = tool("one", scope="b a", audience="one"), tool("other")
    session = api.open(one, other, auth=ClientCredentials(**CLIENT, scope="c", audience="all"))
    api.do(session.call, "one", {})
    api.do(session.call, "other", {})
    assert [(dict(form)["scope"], dict(form)["audience"]) for form in site.forms] == [("a b", "one"), ("c", "all")]


def metadata(**more: Any) -> httpx.Response:
    return httpx.Response(200, json={"issuer": "https://as.test/t1", "token_endpoint": TOKEN_URL} | more)


def test_another_issuers_metadata_name_it(api: Api, site: Site) -> None:
    """Servers whose issuer ends in a slash are met often; what was found tells what to write."""
    auth = ClientCredentials(issuer="https://as.test/t1", client_id="agent", client_secret=CLIENT_SECRET)
    session = api.open(tool(auth=auth), handler=lambda request: metadata(issuer="https://as.test/t1/"))
    detail = api.do(session.try_call, "pay", {}).error["detail"]
    assert "'https://as.test/t1/'" in detail
    assert "a slash at the end counts" in detail


@pytest.mark.parametrize("place", [0, 1])
def test_the_token_endpoint_is_discovered_once(api: Api, site: Site, place: int) -> None:
    """Both places of a metadata document are known, and what it says is remembered."""
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            return site(request)
        asked.append(str(request.url))
        return metadata() if len(asked) == place + 1 else httpx.Response(404)

    auth = ClientCredentials(issuer="https://as.test/t1", client_id="agent", client_secret=CLIENT_SECRET)
    session = api.open(tool(auth=auth), handler=handler)
    for number in range(2):
        assert api.do(session.try_call, "pay", {"n": number}).ok
        site.clock.advance(400)
    assert asked == list(metadata_urls("https://as.test/t1"))[: place + 1]
    assert metadata_urls("https://as.test/t1") == (
        "https://as.test/t1/.well-known/openid-configuration",
        "https://as.test/.well-known/oauth-authorization-server/t1",
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (metadata(issuer="https://evil.test"), "auth"),
        (metadata(token_endpoint="http://as.test/token"), "auth"),
        (metadata(token_endpoint=None), "auth"),
        (httpx.Response(404), "auth"),
        (httpx.Response(200, text="<html>"), "auth"),
        (httpx.Response(503), "parked"),
    ],
)
def test_metadata_that_cannot_be_used(api: Api, site: Site, answer: httpx.Response, kind: str) -> None:
    """Another issuer's document, an endpoint without TLS or none: no secret is sent anywhere."""
    secrets: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        secrets.extend([request] if request.method == "POST" else [])
        return httpx.Response(answer.status_code, content=answer.content)

    auth = ClientCredentials(issuer="https://as.test/t1", client_id="agent", client_secret=CLIENT_SECRET)
    session = api.open(tool(auth=auth), handler=handler)
    assert api.do(session.try_call, "pay", {}).kind == kind
    assert secrets == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: ClientCredentials(client_id="c", client_secret=CLIENT_SECRET),
        lambda: ClientCredentials(token_url="as.test", client_id="c", client_secret=CLIENT_SECRET),
        lambda: ClientCredentials(token_url="https://u:canary@as.test", client_id="c", client_secret=CLIENT_SECRET),
        lambda: ClientCredentials(token_url=TOKEN_URL, client_id="c"),
        lambda: ClientCredentials(token_url=TOKEN_URL, client_id="", client_secret=CLIENT_SECRET),
        lambda: ClientCredentials(token_url=TOKEN_URL, client_id="c", auth_method="private_key_jwt"),
        lambda: ClientCredentials(token_url=TOKEN_URL, client_id="c", auth_method="client_secret_post"),
        lambda: ClientCredentials(**CLIENT | {"client_id": "a:b"}, auth_method="client_secret_basic_raw"),
        lambda: ClientCredentials(token_url=TOKEN_URL, client_id="c", auth_method="client_secret_basic_raw"),
        lambda: ClientCredentials(**CLIENT | {"token_url": TOKEN_URL + "#x"}),
        lambda: ClientCredentials(**CLIENT, resource="not-absolute"),
        lambda: ClientCredentials(**CLIENT, resource="https://r.test/#part"),
        lambda: OnBehalfOf(token_url=TOKEN_URL, client_id="c", scope="s"),
        lambda: OnBehalfOf(**CLIENT, audience="a"),
        lambda: ClientCredentials(**CLIENT | {"client_secret": "canary-\udc80"}),
        lambda: ClientCredentials(**CLIENT, audience=("one", "canary-\udc80")),
        lambda: rotating(refresh_token="canary-\udc80"),
        lambda: PrivateKey(key="canary"),
        lambda: PrivateKey(key="{}", algorithm="HS256"),
        lambda: PrivateKey(key="{}", lifetime=0),
    ],
)
def test_settings_that_cannot_work_are_refused(build: Any) -> None:
    """What cannot work is refused when it is built, without showing a secret."""
    with pytest.raises(ConfigError) as caught:
        build()
    assert "canary" not in str(caught.value)


UNSENDABLE = "subject-canary-\udc80"


def test_a_users_token_that_cannot_be_sent_is_refused(api: Api, site: Site) -> None:
    """A lone surrogate has no encoding: a config error at once, which does not show the token; nothing was sent."""
    seen = []
    with pytest.raises(ConfigError, match="subject_token holds a lone surrogate") as caught:
        api.open(tool(auth=OnBehalfOf(**CLIENT)), alias="at-once", actor="alice", subject_token=UNSENDABLE)
    seen.append(caught.value)
    session = api.open(tool(auth=OnBehalfOf(**CLIENT)), actor="alice", subject_token=lambda: UNSENDABLE)
    with pytest.raises(ConfigError, match="lone surrogate") as caught:
        api.do(session.call, "pay", {})
    seen.append(caught.value)
    with pytest.raises(ConfigError, match="lone surrogate") as caught:
        api.do(session.authenticate, subject_token=UNSENDABLE)
    seen.append(caught.value)
    assert "canary" not in repr(seen) + "".join("".join(traceback.format_exception(error)) for error in seen)
    assert (site.token_requests, site.calls) == ([], [])


def test_a_refresh_token_of_a_function_that_cannot_be_sent_is_refused(api: Api, site: Site) -> None:
    """Nothing is sent and no row is taken: the right token goes through at once."""
    brought = [UNSENDABLE]
    session = api.open(tool(auth=rotating(refresh_token=lambda: brought[0])))
    with pytest.raises(ConfigError, match="lone surrogate"):
        api.do(session.call, "pay", {})
    assert site.token_requests == []
    brought[0] = REFRESH
    began = site.clock.boottime()
    assert api.do(session.try_call, "pay", {}).ok
    assert site.clock.boottime() == began


def test_a_scope_that_cannot_be_sent_is_refused(api: Api, site: Site) -> None:
    """What a tool asks for is looked at before the request goes out, and the secret beside it is not shown."""
    session = api.open(tool(auth=ClientCredentials(**CLIENT), scope="\udc80"), token_key=None)
    with pytest.raises(ConfigError, match="the token request's scope holds a lone surrogate") as caught:
        api.do(session.call, "pay", {})
    assert "canary" not in "".join(traceback.format_exception(caught.value))
    assert site.token_requests == []


def test_a_key_that_cannot_sign_is_told_and_not_shown(api: Api, site: Site) -> None:
    """A private key that cannot be read is a config error of the call; nothing was sent."""
    auth = ClientCredentials(token_url=TOKEN_URL, client_id="c", private_key=PrivateKey(key="-----BEGIN canary"))
    session = api.open(tool(auth=auth))
    with pytest.raises(ConfigError, match="cannot sign") as caught:
        api.do(session.call, "pay", {})
    assert "canary" not in repr(caught.value)
    assert (site.token_requests, site.calls) == ([], [])


PROVIDERS = [
    StaticToken(token="secret-canary"),
    ApiKey(key="secret-canary"),
    TokenCallable(function=lambda: "secret-canary"),
    PrivateKey(key="{canary}"),
    ClientCredentials(**CLIENT),
    rotating(),
    TokenExchange(**CLIENT, subject=StaticToken(token="secret-canary")),
    OnBehalfOf(**CLIENT),
]


@pytest.mark.parametrize("auth", PROVIDERS, ids=lambda auth: type(auth).__name__)
def test_A40_settings_show_no_secret_and_are_never_pickled(auth: Any) -> None:
    """No repr holds a secret; a pickle, which would, is refused; copies are the thing itself."""
    assert "canary" not in repr(auth) + str(auth)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(auth)
    assert copy.copy(auth) is copy.deepcopy(auth) is auth
