"""A plan of two hours with tokens of five minutes: no call with an expired token, no refresh that was not due."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import ClientCredentials, OnBehalfOf
from tests.oauth.kit import CLIENT, Api, Site, rotating, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock

LIFE, LEEWAY, HOURS = 300.0, 30.0, 7200.0
PROVIDERS = {
    "client_credentials": ClientCredentials(**CLIENT),
    "refresh_token": rotating(),
    "on_behalf_of": OnBehalfOf(**CLIENT, scope="s"),
}


@pytest.mark.parametrize("auth", PROVIDERS.values(), ids=PROVIDERS)
def test_a_plan_of_two_hours(api: Api, site: Site, clock: VirtualClock, auth: Any) -> None:
    """Calls at odd moments, throttled and lost ones among them: each request's token is good, and each was needed."""
    chance = random.Random(5)
    sends: list[float] = []

    def watched(request: httpx.Request) -> httpx.Response:
        if request.url.host == "tools.test":
            sends.append(clock.boottime())
        return site(request)

    def lost(request: httpx.Request, at: Site) -> httpx.Response:
        at.serve(request)
        clock.advance(20)
        raise httpx.ReadTimeout("lost", request=request)

    def busy(request: httpx.Request, at: Site) -> httpx.Response:
        at.serve(request)
        return httpx.Response(429, headers={"Retry-After": "50"})

    subject = {"actor": "alice", "subject_token": "subject-canary-1"} if isinstance(auth, OnBehalfOf) else {}
    session = api.open(tool(auth=auth), handler=watched, **subject)
    began, number = clock.boottime(), 0
    while clock.boottime() - began < HOURS:
        number += 1
        site.on_tool = chance.choice([[], [], [], [busy], [lost], [lost, busy]])
        assert api.do(session.try_call, "pay", {"n": number}).ok
        clock.advance(chance.choice([1, 7, 40, 130, 299, 700]))
    assert site.expired == []
    assert len(site.forms) == due(sends)
    assert not site.revoked


def due(sends: list[float]) -> int:
    """Return how many tokens these moments need: one whenever the last is within its leeway."""
    count, until = 0, 0.0
    for moment in sends:
        if moment >= until - LEEWAY:
            count, until = count + 1, moment + LIFE
    return count
