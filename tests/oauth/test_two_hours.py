"""A plan of two hours with tokens of five minutes: no call with an expired token, no refresh that was not due."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import httpx

from agent_runtime import ClientCredentials, OnBehalfOf
from tests.oauth.kit import CLIENT, Api, Site, rotating, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock

LIFE, LEEWAY, HOURS = 300.0, 30.0, 7200.0
PROVIDERS = {
    "client_credentials": ClientCredentials(**CLIENT),
    "refresh_token": rotating(),
    "jwt-bearer": OnBehalfOf(**CLIENT, scope="s"),
}


def test_a_plan_of_two_hours(api: Api, site: Site, clock: VirtualClock) -> None:
    """Calls at odd moments, throttled and lost ones among them: each request's token is good, and each was needed."""
    chance = random.Random(5)
    sends: dict[str, list[float]] = {name: [] for name in PROVIDERS}
    asked: dict[str, list[float]] = {name: [] for name in PROVIDERS}

    def watched(request: httpx.Request) -> httpx.Response:
        if request.url.host == "tools.test":
            sends[request.url.path[1:]].append(clock.boottime())
        else:
            grant = dict(parse_qsl(request.content.decode()))["grant_type"]
            asked[grant.rpartition(":")[2]].append(clock.boottime())
        return site(request)

    def lost(request: httpx.Request, at: Site) -> httpx.Response:
        at.serve(request)
        clock.advance(20)
        raise httpx.ReadTimeout("lost", request=request)

    def busy(request: httpx.Request, at: Site) -> httpx.Response:
        at.serve(request)
        return httpx.Response(429, headers={"Retry-After": "50"})

    tools = [tool(name, auth=auth, url=f"https://tools.test/{name}") for name, auth in PROVIDERS.items()]
    session = api.open(*tools, handler=watched, actor="alice", subject_token="subject-canary-1")
    began, number = clock.boottime(), 0
    while clock.boottime() - began < HOURS:
        number += 1
        site.on_tool = chance.choice([[], [], [], [], [busy], [lost]])
        assert api.do(session.try_call, chance.choice(tools), {"n": number}).ok
        clock.advance(chance.choice([1, 7, 20, 40, 70, 130, 290]))
    assert site.expired == []
    assert {name: due(moments, LEEWAY) for name, moments in sends.items()} == asked
    assert all(due(moments, 0.0) != asked[name] for name, moments in sends.items())  # tokens did run out on the way
    assert not site.revoked


def due(sends: list[float], leeway: float) -> list[float]:
    """Return when these requests need a new token: whenever the last one is within its leeway."""
    asked: list[float] = []
    for moment in sends:
        if not asked or moment >= asked[-1] + LIFE - leeway:
            asked.append(moment)
    return asked
