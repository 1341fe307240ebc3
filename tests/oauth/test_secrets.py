"""A40: no credential in logs, exceptions, pickles, the ledger or at a tool, in runs that end well and in others."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import AgentRuntimeError, ClientCredentials, OnBehalfOf, StaticToken, TokenExchange
from tests.credentials import STATIC, SUBJECT
from tests.logs import logged
from tests.oauth.kit import CLIENT, Api, Site, rotating, tool, unauthorised

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
