"""What follows a refresh whose end nobody knows: a repeat within the grace, the chain that stood, or a stop."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography.fernet import Fernet

from agent_runtime import ClientCredentials, ConfigError
from agent_runtime._core.tokens import KeptTokens, seed_digest
from agent_runtime._drive.tokens.rotation import HELD_FOR
from agent_runtime._oauth import Seal
from agent_runtime.testing import VirtualClock
from tests.oauth.kit import CLIENT, TOKEN_KEY, Api, Site, open_ledger_closing, rotating, rows, tool
from tests.oauth.odd import odd
from tests.oauth.test_rotation import sent

if TYPE_CHECKING:
    from collections.abc import Callable


class SetBack(VirtualClock):
    """A clock whose wall time can be put back, as NTP or a person does; the boot-time clock goes on."""

    back = 0.0

    def wall(self) -> float:
        return super().wall() - self.back


@pytest.fixture
def clock() -> SetBack:
    return SetBack()


def dropped(request: httpx.Request, site: Site) -> httpx.Response:
    """Lose the request before the server took it."""
    raise httpx.ReadTimeout("lost", request=request)


def used_once(api: Api, site: Site, auth: Any) -> Any:
    """Open a session that has refreshed once, and let its access token run out."""
    session = api.open(tool(auth=auth))
    assert api.do(session.try_call, "pay", {"n": 0}).ok
    site.clock.advance(290)
    return session


def die(api: Api, site: Site) -> None:
    """Take the row as a worker that dies in its refresh."""
    with open_ledger_closing(api.url, site) as ledger:
        (row,) = rows(ledger)
        assert ledger.hold_token(row["id"], name="n", holder="dead", seconds=HELD_FOR).result(10).took


def code_of(outcome: Any) -> Any:
    return outcome.error and outcome.error.get("code")


@pytest.mark.parametrize(
    ("grace", "later", "forms"),
    [(60, 0, 2), (timedelta(minutes=1), 0, 2), (60, 61, 1), (60, 3 * 3600, 1), (True, 0, 1), (None, 0, 1)],
)
def test_a_repeat_goes_out_within_the_grace_only(
    api_on_both: Api, site: Site, grace: Any, later: float, forms: int
) -> None:
    """After a worker's death others wait for its turn's end; they repeat if the grace, from its begin, is not over."""
    session = used_once(api_on_both, site, rotating(rotation_grace=grace))
    die(api_on_both, site)
    site.clock.advance(later)
    outcome = api_on_both.do(session.try_call, "pay", {"n": 1})
    assert len(site.forms) == forms
    assert code_of(outcome) == (None if forms == 2 else "refresh_in_doubt")
    assert not site.revoked


def test_a_grace_that_ends_while_a_worker_is_about_to_send(api: Api, site: Site) -> None:
    """The moment of sending counts: a worker that took the row in time and came to send late does not."""
    session_of: list[Any] = []

    def slow(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        hold = method(*args, **named)
        hold.result(10)
        if len(site.forms) == 2:
            site.clock.advance(6)
        return hold

    with open_ledger_closing(api.url, site) as ledger:
        session_of.append(api.open(tool(auth=rotating(rotation_grace=5)), url=odd(ledger, hold_token=slow)))
        (session,) = session_of
        assert api.do(session.try_call, "pay", {"n": 0}).ok
        site.clock.advance(290)
        site.on_token = [dropped]
        assert code_of(api.do(session.try_call, "pay", {"n": 1})) == "refresh_in_doubt"
        api.close_runtimes()
    assert len(site.forms) == 2


@pytest.mark.parametrize("grace", ["long", -1, float("nan")])
def test_a_grace_that_is_none_is_refused(grace: Any) -> None:
    """It is a number of seconds, True, False or None."""
    with pytest.raises(ConfigError, match="rotation_grace"):
        rotating(rotation_grace=grace)


BAD_TOKENS: dict[str, tuple[int, dict[str, Any]]] = {
    "none": (200, {"access_token": None}),
    "N_A": (200, {"token_type": "N_A"}),
    "DPoP": (200, {"token_type": "DPoP"}),
    "no header can carry it": (200, {"access_token": "issued-canary\nx"}),
    "201": (201, {}),
}


@pytest.mark.parametrize("bad", BAD_TOKENS)
def test_a_new_refresh_token_is_kept_without_a_usable_access_token(api_on_both: Api, site: Site, bad: str) -> None:
    """The server goes by the new refresh token; so it is kept, the step says what is wrong, and there is no doubt."""
    status, more = BAD_TOKENS[bad]

    def odd_reply(request: httpx.Request, at: Site) -> httpx.Response:
        return httpx.Response(status, json=at.issue(request).json() | more)

    site.on_token = [odd_reply]
    session = api_on_both.open(tool(auth=rotating()))
    outcome = api_on_both.do(session.try_call, "pay", {"n": 1})
    assert (outcome.kind, outcome.attempts) == ("auth", 0)
    assert "a refresh token, which was kept" in outcome.error["detail"]
    assert "lost" not in outcome.error["detail"]
    with open_ledger_closing(api_on_both.url, site) as ledger:
        assert [(row["holder"], row["doubts"]) for row in rows(ledger)] == [(None, 0)]
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-1"]
    assert not site.revoked


@pytest.mark.parametrize("bad", ["lost", "503"])
def test_a_lost_beginning_goes_back_to_the_chain_that_stood(api_on_both: Api, site: Site, bad: str) -> None:
    """If the first refresh with a token from outside is lost, the sound chain goes on, and that token is done with."""
    used_once(api_on_both, site, rotating())
    site.on_token = [dropped if bad == "lost" else httpx.Response(503)]
    stale = api_on_both.open(tool(auth=rotating(refresh_token="refresh-canary-stale")), alias="stale")
    for number in range(2):
        assert api_on_both.do(stale.try_call, "pay", {"n": number}).ok
        site.clock.advance(290)
    assert api_on_both.do(api_on_both.open(tool(auth=rotating()), alias="other").try_call, "pay", {"n": 3}).ok
    assert sent(site)[:3] == ["refresh-canary-0", "refresh-canary-stale", "refresh-canary-1"]
    assert sent(site).count("refresh-canary-stale") == 1
    assert (len(site.forms), site.revoked) == (5, False)


def begin(api: Api, site: Site, seed: str, *, before: str | None) -> None:
    """Put a token from outside at the head of the chain, as a worker that then goes away does."""
    with open_ledger_closing(api.url, site) as ledger:
        (row,) = rows(ledger)
        hold = ledger.hold_token(row["id"], name="n", holder="dead", seconds=HELD_FOR).result(10)
        sealed = Seal([TOKEN_KEY]).close(row["id"], KeptTokens(refresh=seed, before=before))
        seeds = (*json.loads(row["seeds"]), seed_digest(seed))
        kept = ledger.keep_token(
            row["id"], holder="dead", version=hold.record.version, sealed=sealed, seeds=seeds, release=False
        )
        assert kept.result(10) is not None


def test_a_worker_that_died_at_a_beginning_costs_no_chain(api_on_both: Api, site: Site) -> None:
    """The others wait for its turn's end and go on with the chain that stood."""
    session = used_once(api_on_both, site, rotating())
    begin(api_on_both, site, "refresh-canary-new", before=site.refresh)
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-1"]


def test_a_second_beginning_keeps_the_chain_that_stood(api_on_both: Api, site: Site) -> None:
    """A token from outside that replaces one in doubt has the sound chain to go back to, not that one."""
    used_once(api_on_both, site, rotating())
    begin(api_on_both, site, "refresh-canary-dead", before=site.refresh)
    site.on_token = [httpx.Response(400, json={"error": "invalid_grant"})]
    third = api_on_both.open(tool(auth=rotating(refresh_token="refresh-canary-third")), alias="third")
    assert api_on_both.do(third.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-third", "refresh-canary-1"]


def test_a_beginning_is_repeated_within_the_grace(api: Api, site: Site) -> None:
    """Where the server takes a token again, the new one is repeated before the old chain is taken up."""
    auth = rotating(refresh_token="refresh-canary-new", rotation_grace=30)
    used_once(api, site, rotating())
    site.refresh = "refresh-canary-new"
    site.on_token = [dropped]
    assert api.do(api.open(tool(auth=auth), alias="new").try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-new", "refresh-canary-new"]


def test_a_new_authorisation_ends_the_loss_of_a_key(api_on_both: Api, site: Site) -> None:
    """Under a new token_key the old chain is told of as it is; a refresh token the row has never seen begins anew."""
    used_once(api_on_both, site, rotating())
    key = Fernet.generate_key()
    locked = api_on_both.open(tool(auth=rotating()), alias="locked", token_key=key)
    outcome = api_on_both.do(locked.try_call, "pay", {"n": 1})
    assert code_of(outcome) == "token_key"
    assert "If that key is lost, authorise the account anew" in outcome.error["detail"]
    site.refresh = "refresh-canary-new"
    auth = rotating(refresh_token="refresh-canary-new")
    fresh = api_on_both.open(tool(auth=auth), alias="fresh", token_key=key)
    assert api_on_both.do(fresh.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    assert api_on_both.do(fresh.try_call, "pay", {"n": 2}).ok
    assert sent(site)[:2] == ["refresh-canary-0", "refresh-canary-new"]
    assert not site.revoked


def test_a_clock_that_is_put_back_blocks_nobody(api_on_both: Api, site: Site, clock: SetBack) -> None:
    """A dead worker's turn ends for those who have seen it for as long as turns last, whatever the row's clock says."""
    session = used_once(api_on_both, site, rotating())
    die(api_on_both, site)
    clock.back = 3600
    began = clock.boottime()
    outcome = api_on_both.do(session.try_call, "pay", {"n": 1})
    assert code_of(outcome) == "refresh_in_doubt"
    assert HELD_FOR <= clock.boottime() - began < HELD_FOR + 2
    site.refresh = "refresh-canary-new"
    fresh = api_on_both.open(tool(auth=rotating(refresh_token="refresh-canary-new")), alias="fresh")
    assert api_on_both.do(fresh.try_call, "pay", {"n": 1}).ok


def test_workers_that_take_turns_are_not_taken_for_one(api: Api, site: Site, clock: SetBack) -> None:
    """The time is counted for one holder: where another one has the row meanwhile, its turn is its own."""
    session = used_once(api, site, rotating())
    die(api, site)
    began, looks = clock.boottime(), []

    def look(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if not looks and clock.boottime() - began > 30:
            looks.append(True)
            with open_ledger_closing(api.url, site) as other:
                (row,) = rows(other)
                other.free_token(row["id"], holder="dead").result(10)
                assert other.hold_token(row["id"], name="n", holder="next", seconds=HELD_FOR).result(10).took
        return method(*args, **named)

    clock.back = 3600
    with open_ledger_closing(api.url, site) as ledger:
        session = api.open(tool(auth=rotating()), alias="watcher", url=odd(ledger, token=look))
        assert code_of(api.do(session.try_call, "pay", {"n": 1})) == "refresh_in_doubt"
        api.close_runtimes()
    assert clock.boottime() - began >= 30 + HELD_FOR


@pytest.mark.parametrize("auth", [rotating(), ClientCredentials(**CLIENT)], ids=["rotating", "shared"])
def test_a_token_of_the_future_is_not_used(api_on_both: Api, site: Site, clock: SetBack, auth: Any) -> None:
    """Once the clock was put back nobody knows how old a kept token is: another one is asked for."""
    first = api_on_both.open(tool(auth=auth))
    assert api_on_both.do(first.try_call, "pay", {"n": 1}).ok
    clock.advance(1000)
    clock.back = 3000
    second = api_on_both.open(tool(auth=auth), alias="second")
    assert api_on_both.do(second.try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 2
    assert len({call.headers["Authorization"] for call in site.calls}) == 2
