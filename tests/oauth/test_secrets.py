"""A40: no credential in logs, exceptions, pickles, the ledger or at a tool, in runs that end well and in others."""

from __future__ import annotations

import gc
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AgentRuntimeError, ClientCredentials, OnBehalfOf, StaticToken, TokenExchange
from agent_runtime._core.effects import Credential, EventStream, Send
from agent_runtime._core.tokens import AccessToken, KeptAccess, KeptTokens, Subject
from agent_runtime._drive.tokens.fetch import Reply
from agent_runtime._http._exchange import Exchange
from agent_runtime._model import Answer, Request
from agent_runtime._oauth import Grant, token_request
from tests.credentials import STATIC, SUBJECT
from tests.logs import logged
from tests.oauth.kit import CLIENT, TOKEN_URL, Api, Site, rotating, tool, unauthorised

if TYPE_CHECKING:
    from collections.abc import Iterator

PROVIDERS = {
    "client_credentials": (ClientCredentials(**CLIENT), {}),
    "in_the_form": (ClientCredentials(**CLIENT, auth_method="client_secret_post"), {}),
    "refresh_token": (rotating(), {}),
    "on_behalf_of": (OnBehalfOf(**CLIENT), {"actor": "alice", "subject_token": SUBJECT}),
    "exchange": (TokenExchange(**CLIENT), {"actor": "alice", "subject_token": SUBJECT}),
    "static": (StaticToken(token=STATIC), {}),
}


def echo(request: httpx.Request, site: Site) -> httpx.Response:
    """Refuse, and repeat everything that came, as careless servers do."""
    body = {"error": "invalid_grant", "error_description": request.content.decode() + repr(request.headers.raw)}
    return httpx.Response(400, json=body, headers={"X-Echo": request.content.decode()})


def lose(request: httpx.Request, site: Site) -> httpx.Response:
    raise httpx.ReadTimeout(f"lost {request.content!r} {request.headers!r}", request=request)


TROUBLE: dict[str, dict[str, Any]] = {
    "well": {},
    "echo": {"on_token": [echo]},
    "token lost": {"on_token": [lose]},
    "token 500": {"on_token": [lambda request, site: httpx.Response(500, text="x")] * 5},
    "tool refuses": {"on_tool": [lambda request, site: unauthorised()] * 2},
    "tool lost": {"on_tool": [lose] * 5},
}


GRANT = Grant(auth=ClientCredentials(**CLIENT, auth_method="client_secret_post"), subject=SUBJECT, actor=STATIC)
TOKEN = AccessToken(value=STATIC, issued_at=0.0, expires_at=1.0)
HEADERS = (("Authorization", f"Bearer {STATIC}"),)
PLAIN = Request(method="GET", url="https://tools.test/")
KEPT = KeptAccess(value=STATIC, sent_at=0.0, expires_at=1.0)
INSIDE = [
    Subject(name="alice", token=SUBJECT),
    TOKEN,
    KEPT,
    KeptTokens(refresh=SUBJECT, access={"": KEPT}, before=STATIC),
    Credential(HEADERS, "p", "id"),
    Send(PLAIN, HEADERS, connect=1, read=1, deadline=1, body_limit=1),
    EventStream(request=PLAIN, headers=HEADERS, connect=1, idle=1, seconds=1, body_limit=1),
    GRANT,
    token_request(GRANT, TOKEN_URL, jti="j", now=0.0),
    token_request(GRANT, TOKEN_URL, jti="j", now=0.0).request,
    Exchange(PLAIN, extra_headers=HEADERS, deadline=1, body_limit=1),
]


@pytest.mark.parametrize("inside", INSIDE, ids=lambda inside: type(inside).__name__)
def test_A40_what_holds_a_credential_inside_shows_none_and_is_not_pickled(inside: Any) -> None:
    """Debuggers and error trackers show reprs of local values, and of what these hold; pickles would hold all."""
    shown = [repr(one) for one in gc.get_referents(inside) if type(one).__module__.startswith("agent_runtime")]
    assert "canary" not in repr(inside) + "".join(shown)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(inside)


def test_A40_a_reply_with_a_token_shows_none() -> None:
    """The body of a token endpoint's answer is the token."""
    assert "canary" not in repr(Reply(result=Answer(status=200, body=STATIC.encode()), sent_at=0.0, sent_on=0.0))


@pytest.fixture
def everything_logged() -> Iterator[list[str]]:
    """Collect what is logged anywhere, at every level, with arguments and exceptions."""
    with logged() as lines:
        yield lines


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
@pytest.mark.parametrize("auth", PROVIDERS.values(), ids=PROVIDERS)
def test_A40_no_credential_is_left_anywhere(
    api: Api, site: Site, everything_logged: list[str], auth: Any, trouble: dict[str, Any], capfd: Any
) -> None:
    """Logs at DEBUG, errors with their causes, outcomes, reprs and pickles hold none; the fixture searches the rest."""
    provider, subject = auth
    site.on_token, site.on_tool = list(trouble.get("on_token", [])), list(trouble.get("on_tool", []))
    site.issued[STATIC] = (float("inf"), {})
    session = api.open(tool(auth=provider), **subject)
    seen: list[Any] = [session, session.steps()]
    try:
        seen.append(api.do(session.call, "pay", {"n": 1}))
    except AgentRuntimeError as error:
        seen += ["".join(traceback.format_exception(error)), repr(error), error.outcome]
        seen.append(pickle.dumps(error))
    outcome = api.do(session.try_call, "pay", {"n": 1})
    seen += [outcome, outcome.for_model() if hasattr(outcome, "for_model") else "", pickle.dumps(outcome)]
    seen += [str(session.steps()), session.report, *capfd.readouterr(), *everything_logged]
    assert not [one for one in seen if "canary" in repr(one)]
