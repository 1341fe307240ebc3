"""What a turn at a row promises: nothing is sent late, and nothing is given out that was not kept."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import ClientCredentials
from agent_runtime._core.tokens import KeptAccess, KeptTokens
from agent_runtime._drive.tokens.turns import PROMPT
from agent_runtime._oauth import Seal
from agent_runtime.ledger import open_ledger
from tests.oauth.kit import CLIENT, TOKEN_KEY, Api, Site, open_ledger_closing, rotating, rows, tool
from tests.oauth.odd import odd, once

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.testing import VirtualClock
    from tests.conftest import Backend

EACH = pytest.mark.parametrize("auth", [rotating(), ClientCredentials(**CLIENT)], ids=["rotating", "shared"])


@EACH
@pytest.mark.parametrize(("slept", "turns"), [(PROMPT, 1), (PROMPT + 1, 2)])
def test_a_worker_that_slept_after_taking_the_row_looks_again(
    api_on_both: Api, site: Site, auth: Any, slept: float, turns: int
) -> None:
    """What it saw may be long ago: it gives the row back, unsent, and takes another turn."""
    events: list[str] = []

    def asleep(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        hold = method(*args, **named)
        assert hold.result(10).record.holder == named["holder"]
        if not events:
            site.clock.advance(slept)
        events.append("turn")
        return hold

    def issue(request: httpx.Request, at: Site) -> httpx.Response:
        events.append("sent")
        return at.issue(request)

    site.on_token = [issue]
    with open_ledger_closing(api_on_both.url, site) as ledger:
        session = api_on_both.open(tool(auth=auth), url=odd(ledger, hold_token=asleep))
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        assert [row["doubts"] for row in rows(ledger)] == [0]
        api_on_both.close_runtimes()
    assert events == ["turn"] * turns + ["sent"]


@pytest.mark.parametrize("kind", ["Bearer", "DPoP"])
def test_what_a_refresh_brought_and_was_not_kept_is_left_alone(api_on_both: Api, site: Site, kind: str) -> None:
    """If something newer was kept while a refresh was out, that is used, whether what came was of use or not."""

    def overtaken(request: httpx.Request, at: Site) -> httpx.Response:
        reply = at.issue(request)
        at.issued["issued-canary-newer"] = (at.clock.wall() + 300, {})
        with open_ledger_closing(api_on_both.url, at) as ledger:
            (row,) = rows(ledger)
            access = KeptAccess(value="issued-canary-newer", sent_at=at.clock.wall(), expires_at=at.clock.wall() + 300)
            kept = KeptTokens(refresh="refresh-canary-newer", access={json.dumps([[], [], []]): access})
            sealed = Seal([TOKEN_KEY]).close(row["id"], kept)
            seeds = tuple(json.loads(row["seeds"]))
            new = ledger.keep_token(row["id"], holder="late", version=row["version"], sealed=sealed, seeds=seeds)
            assert new.result(10) is not None
        return httpx.Response(200, json=reply.json() | {"token_type": kind})

    site.on_token = [overtaken]
    session = api_on_both.open(tool(auth=rotating()))
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assert [call.headers["Authorization"] for call in site.calls] == ["Bearer issued-canary-newer"]
    assert len(site.forms) == 1


def test_a_row_knows_since_when_its_token_may_be_used_up(backend: Backend, clock: VirtualClock) -> None:
    """It is when the row was taken for the first refresh of the token that stands; a repeat does not move it."""
    ledger = open_ledger(backend.url, clock=clock)

    def hold(holder: str) -> float | None:
        taken = ledger.hold_token("r", name="n", holder=holder, seconds=45).result(10)
        assert taken.took
        return taken.record.tried_at

    def tried() -> float | None:
        return ledger.token("r").result(10).tried_at

    first = clock.wall()
    assert hold("a") == first
    ledger.free_token("r", holder="a").result(10)
    assert tried() is None
    clock.advance(100)
    assert hold("b") == first + 100
    clock.advance(50)
    assert hold("c") == first + 100
    ledger.free_token("r", holder="c").result(10)
    clock.advance(1)
    assert hold("d") == first + 100
    ledger.free_token("r", holder="d", doubt=True).result(10)
    assert tried() == first + 100
    hold("e")
    assert ledger.keep_token("r", holder="e", version=0, sealed=b"1", release=False).result(10) == 1
    assert tried() == clock.wall()
    assert ledger.keep_token("r", holder="e", version=1, sealed=b"2").result(10) == 2
    assert tried() is None
    ledger.close()


def test_a_turn_that_is_told_to_be_over_is_taken(backend: Backend, clock: VirtualClock) -> None:
    """Only that holder's: another one has the row until its own time is over. It is counted as a doubt."""
    ledger = open_ledger(backend.url, clock=clock)
    assert ledger.hold_token("r", name="n", holder="a", seconds=45).result(10).took
    assert not ledger.hold_token("r", name="n", holder="b", seconds=45, ended="z").result(10).took
    hold = ledger.hold_token("r", name="n", holder="b", seconds=45, ended="a").result(10)
    assert (hold.took, hold.record.doubts) == (True, 1)
    ledger.close()


def begin_closing(api: Api, runtime: Any) -> Callable[[], None]:
    """Close a runtime as far as its waiting for token requests; return what waits for the end."""
    if api.name == "async":
        task = asyncio.get_running_loop().create_task(runtime.close())
        return lambda: api.do(asyncio.wait_for, task, 30)
    thread = threading.Thread(target=runtime.close)
    thread.start()
    until = time.monotonic() + 30
    while not runtime._store.ending and time.monotonic() < until:
        thread.join(0.001)
    return lambda: thread.join(30)


@EACH
@pytest.mark.parametrize("moment", ["token", "hold_token"])
def test_a_runtime_that_is_being_closed_asks_for_no_token(api_on_both: Api, site: Site, auth: Any, moment: str) -> None:
    """Closed before it has the row, or between that and the request: nothing goes out, and the row is free."""
    ended: list[Callable[[], None]] = []
    held: list[str] = []

    def closed(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        ended.append(begin_closing(api_on_both, runtime))
        return method(*args, **named)

    def hold(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        held.append(named["holder"])
        return closed(method, *args, **named) if moment == "hold_token" else method(*args, **named)

    hooks = {"hold_token": hold} | ({"token": once(closed)} if moment == "token" else {})
    with open_ledger_closing(api_on_both.url, site) as ledger:
        runtime = api_on_both.runtime(tool(auth=auth), url=odd(ledger, **hooks))
        session = api_on_both.do(runtime.open, "plan")
        assert not api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        for wait in ended:
            wait()
        assert [row["holder"] for row in rows(ledger) if row["holder"]] == []
    assert (site.forms, len(held)) == ([], int(moment == "hold_token"))


def test_a_runtime_that_is_being_closed_waits_for_no_turn(api_on_both: Api, site: Site) -> None:
    """While another worker is at the row, closing does not wait until that one has ended."""
    ended: list[Callable[[], None]] = []

    def closed(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if not ended:
            ended.append(begin_closing(api_on_both, runtime))
        return method(*args, **named)

    with open_ledger_closing(api_on_both.url, site) as ledger:
        first = api_on_both.open(tool(auth=rotating()), alias="first")
        assert api_on_both.do(first.try_call, "pay", {"n": 1}).ok
        site.clock.advance(290)
        (row,) = rows(ledger)
        assert ledger.hold_token(row["id"], name=row["name"], holder="other", seconds=45).result(10).took
        runtime = api_on_both.runtime(tool(auth=rotating()), url=odd(ledger, token=closed))
        session = api_on_both.do(runtime.open, "plan")
        assert not api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        ended[0]()
        (row,) = rows(ledger)
    assert (row["holder"], len(site.forms)) == ("other", 1)
