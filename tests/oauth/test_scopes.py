"""Scopes that were not granted are told once in the log, and again where a tool refuses for want of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import ClientCredentials
from tests.oauth.kit import CLIENT, Api, Site, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock


def granting(scope: str):
    def answer(request: httpx.Request, site: Site) -> httpx.Response:
        issued = site.issue(request)
        return httpx.Response(200, json=issued.json() | {"scope": scope})

    return answer


def forbidden() -> httpx.Response:
    return httpx.Response(403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'})


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="agent_runtime")
    return caplog


def scopes_told(warned: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in warned.records if "did not grant" in record.getMessage()]


def test_scopes_that_were_not_granted_are_told_once(
    api: Api, site: Site, clock: VirtualClock, warned: pytest.LogCaptureFixture
) -> None:
    """One warning for each thing asked for, however often it is asked; it names what is missing."""
    tools = [
        tool(name, auth=ClientCredentials(**CLIENT), scope=scope, url=f"https://tools.test/{name}")
        for name, scope in (("one", "write read admin"), ("other", "pay"))
    ]
    session = api.open(*tools)
    for number in range(3):
        site.on_token = [granting("read"), granting("")]
        assert api.do(session.try_call, "one", {"n": number}).ok
        assert api.do(session.try_call, "other", {"n": number}).ok
        clock.advance(400)
    first, second = scopes_told(warned)
    assert "the scopes 'admin write' that" in first
    assert "the scopes 'pay' that" in second


@pytest.mark.parametrize("scope", ["read write", "write read"])
def test_what_was_granted_as_asked_is_not_told(
    api: Api, site: Site, warned: pytest.LogCaptureFixture, scope: str
) -> None:
    """The order of scopes says nothing; a reply without any grants what was asked for."""
    site.on_token = [granting(scope)]
    session = api.open(tool(auth=ClientCredentials(**CLIENT), scope="write read"))
    site.on_tool = [forbidden()]
    assert "granted_scope" not in api.do(session.try_call, "pay", {}).error
    assert scopes_told(warned) == []


def test_a_refusal_for_want_of_a_scope_says_what_was_granted(api: Api, site: Site) -> None:
    """A person sees at once that the tool is right, and where the right has to be given; no odd word is repeated."""
    site.on_token = [granting("read canary-0123456789abcdef")]
    site.on_tool = [forbidden()]
    session = api.open(tool(auth=ClientCredentials(**CLIENT), scope="read write"))
    outcome = api.do(session.try_call, "pay", {})
    assert (outcome.state, outcome.error["granted_scope"]) == ("failed", "read [cut]")
    assert "was granted other scopes than were asked for: read [cut]." in outcome.for_model()["message"]
