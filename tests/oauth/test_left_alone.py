"""A token endpoint that names a wait is left alone by the whole process until then."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import ClientCredentials
from agent_runtime._drive.tokens.store import TokenStore
from tests.oauth.kit import CLIENT, Api, Site, open_ledger_closing, rotating, rows, tool
from tests.oauth.odd import odd, once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EACH = pytest.mark.parametrize("auth", [rotating(), ClientCredentials(**CLIENT)], ids=["rotating", "shared"])


def busy(status: int = 503, seconds: int = 900) -> httpx.Response:
    return httpx.Response(status, headers={"Retry-After": str(seconds)})


@EACH
@pytest.mark.parametrize("status", [429, 503])
def test_sessions_of_a_process_keep_to_a_wait_that_one_was_told(
    api_on_both: Api, site: Site, auth: Any, status: int
) -> None:
    """Five sessions, one token request: the others wait at once, for as long as is left; then it is asked again."""
    site.on_token = [busy(status)]
    runtime = api_on_both.runtime(*(tool(f"t{at}", auth=auth, scope=f"s{at}") for at in range(5)))
    sessions = [api_on_both.do(runtime.open, f"plan-{at}") for at in range(5)]
    began = site.clock.boottime()
    for at, session in enumerate(sessions):
        outcome = api_on_both.do(session.try_call, f"t{at}", {"n": 1})
        assert (outcome.kind, outcome.attempts) == ("parked", 0)
    assert (len(site.forms), site.clock.boottime()) == (1, began)
    assert "has asked to be left alone for 900 s more" in outcome.error["detail"]
    site.clock.advance(899)
    assert api_on_both.do(sessions[0].try_call, "t0", {"n": 1}).ok
    assert site.clock.boottime() - began >= 900
    assert api_on_both.do(sessions[1].try_call, "t1", {"n": 1}).ok


@EACH
def test_another_endpoint_is_asked(api: Api, site: Site, auth: Any) -> None:
    """The wait is one server's: the token of another one is got meanwhile."""
    site.on_token = [busy()]
    other = ClientCredentials(**CLIENT | {"token_url": "https://as.test/other"})
    runtime = api.runtime(tool("one", auth=auth), tool("other", auth=other))
    first, second = (api.do(runtime.open, alias) for alias in ("first", "second"))
    assert api.do(first.try_call, "one", {"n": 1}).kind == "parked"
    assert api.do(second.try_call, "other", {"n": 1}).ok


def test_a_wait_that_is_told_while_a_thread_takes_its_turn(tmp_path: Path, site: Site) -> None:
    """A thread that looked before and comes to send after another one was told to wait does not send."""
    api = Api("sync", f"sqlite:///{tmp_path}/agent.db", site)
    auth = ClientCredentials(**CLIENT)
    kinds: list[str | None] = []

    def meanwhile(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        thread = threading.Thread(target=lambda: kinds.append(second.try_call("other", {"n": 1}).kind))
        thread.start()
        thread.join(30)
        return method(*args, **named)

    site.on_token = [busy()]
    with open_ledger_closing(api.url, site) as ledger:
        tools = [tool("one", auth=auth, scope="a"), tool("other", auth=auth, scope="b")]
        runtime = api.runtime(*tools, url=odd(ledger, hold_token=once(meanwhile)))
        first, second = runtime.open("first"), runtime.open("second")
        kinds.append(first.try_call("one", {"n": 1}).kind)
        assert rows(ledger) == []
        api.close()
    assert (kinds, len(site.forms)) == (["parked", "parked"], 1)


def test_an_absurd_wait_counts_as_a_day() -> None:
    """Or a server's mistake would bind a process for ever; a shorter wait does not shorten a longer one."""
    store = TokenStore()
    assert store.closed_for("u", 5.0) is None
    store.close_endpoint("u", 5.0, float("inf"))
    store.close_endpoint("u", 5.0, 1.0)
    assert store.closed_for("u", 5.0) == 86_400.0
    assert store.closed_for("u", 86_405.0) is None
    assert store.closed_for("other", 5.0) is None
