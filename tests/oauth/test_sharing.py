"""Access tokens that processes share: one request an expiry, where there is a key to seal them under."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from cryptography.fernet import Fernet
from joserfc.jwk import RSAKey

from agent_runtime import AsyncRuntime, ClientCredentials, OnBehalfOf, PrivateKey, TokenExchange
from agent_runtime._drive.tokens.sharing import HELD_FOR
from agent_runtime._oauth import Seal
from agent_runtime.errors import LedgerFull
from tests.oauth.kit import (
    CLIENT,
    TOKEN_KEY,
    Api,
    Site,
    open_ledger_closing,
    rotating,
    rows,
    take,
    tool,
    unauthorised,
)

if TYPE_CHECKING:
    from pathlib import Path

    from agent_runtime.testing import VirtualClock

CREDENTIALS = ClientCredentials(**CLIENT)
OBO = OnBehalfOf(**CLIENT, scope="api://orders/.default")
ALICE = {"actor": "alice", "subject_token": "subject-canary-1"}
GRANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "client_credentials": (CREDENTIALS, {}),
    "refresh_token": (rotating(rotates=False), {}),
    "exchange": (TokenExchange(**CLIENT), ALICE),
    "on_behalf_of": (OBO, ALICE),
}
every_grant = pytest.mark.parametrize(("auth", "named"), GRANTS.values(), ids=GRANTS)


def two(api: Api, auth: Any, **named: Any) -> list[Any]:
    """Open a session in each of two runtimes, as two processes have them."""
    return [api.open(tool(auth=auth), alias=f"plan-{at}", **named) for at in range(2)]


def kept(api: Api, site: Site) -> list[dict[str, Any]]:
    """Return the rows of tokens."""
    with open_ledger_closing(api.url, site) as ledger:
        return rows(ledger)


@every_grant
def test_O1_A30_processes_share_a_token(
    api_on_both: Api, site: Site, clock: VirtualClock, auth: Any, named: dict[str, Any]
) -> None:
    """Two runtimes on one ledger make one token request, and one more when the token is within its leeway."""
    site.sends_refresh = False
    sessions = two(api_on_both, auth, **named)
    for number in range(3):
        for session in sessions:
            assert api_on_both.do(session.try_call, "pay", {"n": number}).ok
        clock.advance(200)
    assert (len(site.forms), site.expired) == (2, [])
    assert len({call.headers["Authorization"] for call in site.calls}) == 2


def test_O1_A30_processes_that_need_a_token_at_once_ask_once(api_on_both: Api, site: Site) -> None:
    """Calls of two runtimes at the same moment: one of them asks, the other one waits for its token."""
    sessions = two(api_on_both, CREDENTIALS)
    calls = [lambda one=one: one.try_call("pay", {"n": 1}) for one in sessions]
    assert all(outcome.ok for outcome in api_on_both.gather(*calls))
    assert len(site.forms) == 1


def test_O2_a_shared_token_ages_from_its_sending(api: Api, site: Site, clock: VirtualClock) -> None:
    """A process that finds a token in the ledger counts its life from when it was asked for, leeway included."""
    first, second = two(api, CREDENTIALS)
    assert api.do(first.try_call, "pay", {"n": 1}).ok
    clock.advance(200)
    assert api.do(second.try_call, "pay", {"n": 1}).ok
    clock.advance(69)
    assert api.do(second.try_call, "pay", {"n": 2}).ok
    assert len(site.forms) == 1
    clock.advance(1)
    assert api.do(second.try_call, "pay", {"n": 3}).ok
    assert len(site.forms) == 2


def test_O8_A34_processes_never_mix_users(api_on_both: Api, site: Site) -> None:
    """Two users, assertions and scopes in two runtimes: each call carries the token of its own, and each has a row."""
    tools = [tool(name, auth=TokenExchange(**CLIENT), scope=name, url=f"https://tools.test/{name}") for name in "rw"]
    proofs = [("u1", "a1"), ("u1", "a2"), ("u2", "a3")]
    for run in range(2):
        for user, proof in proofs:
            runtime = api_on_both.runtime(*tools)
            subject = f"subject-canary-{proof}"
            session = api_on_both.do(runtime.open, f"{proof}-{run}", actor=user, subject_token=subject)
            for one in tools:
                assert api_on_both.do(session.call, one.name, {"n": 1}).value == {"for": proof}
    assert all(site.of(call)["scope"] == call.url.path[1:] for call in site.calls)
    assert (len(site.forms), len(kept(api_on_both, site))) == (6, 6)


def test_tenants_share_no_token(api: Api, site: Site) -> None:
    """The same provider under two tenants asks for two tokens."""
    for tenant in ("one", "two"):
        assert api.do(api.open(tool(auth=CREDENTIALS), tenant=tenant).try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 2


def test_spellings_of_a_server_share_a_token(api: Api, site: Site) -> None:
    """Host case and the default port make no second request."""
    for at, url in enumerate(("https://as.test/token", "https://AS.test:443/token")):
        auth = ClientCredentials(**CLIENT | {"token_url": url})
        assert api.do(api.open(tool(auth=auth), alias=f"plan-{at}").try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 1


def test_O4_a_refused_token_is_not_taken_from_the_ledger(api_on_both: Api, site: Site) -> None:
    """After a 401 the token is replaced though the row has it; the other process finds the new one by its own 401."""
    sessions = two(api_on_both, CREDENTIALS)
    for session in sessions:
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    site.issued = dict.fromkeys(site.issued, (0.0, {}))  # the server takes its tokens back
    for session in sessions:
        outcome = api_on_both.do(session.try_call, "pay", {"n": 2})
        assert (outcome.ok, outcome.attempts) == (True, 2)
    assert len(site.forms) == 2


def test_the_row_is_free_and_sealed_when_the_token_is_used(api_on_both: Api, site: Site) -> None:
    """When the tool is called, the row holds the token under the key, and nobody has the row."""
    seen: list[str] = []

    def look(request: httpx.Request, at: Site) -> httpx.Response:
        (row,) = kept(api_on_both, at)
        assert (row["holder"], row["expires_at"]) == (None, at.clock.wall() + 300)
        tokens = Seal([TOKEN_KEY]).open(row["id"], bytes(row["sealed"]))
        assert tokens.refresh is None
        seen.extend(one.value for one in tokens.access.values())
        return at.serve(request)

    site.on_tool = [look]
    assert api_on_both.do(api_on_both.open(tool(auth=OBO), **ALICE).try_call, "pay", {"n": 1}).ok
    assert site.calls[0].headers["Authorization"] == f"Bearer {seen[0]}"


def test_a_holder_that_died_is_replaced(api_on_both: Api, site: Site) -> None:
    """A worker that took the row and ended costs the others its turn at most; there is no doubt."""
    session = api_on_both.open(tool(auth=CREDENTIALS))
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    (row,) = kept(api_on_both, site)
    with open_ledger_closing(api_on_both.url, site) as ledger:
        assert take(ledger, row["id"], "dead", seconds=HELD_FOR).took
    began = site.clock.boottime()
    assert api_on_both.do(session.try_call, "pay", {"n": 2}).ok
    assert HELD_FOR <= site.clock.boottime() - began < HELD_FOR + 1
    (row,) = kept(api_on_both, site)
    assert (len(site.forms), row["holder"], row["doubts"]) == (2, None, 0)


def test_a_turn_that_does_not_end_is_not_waited_for(api: Api, site: Site) -> None:
    """Where others have the row for longer than a turn, a worker asks by itself and leaves the row alone."""
    session = api.open(tool(auth=CREDENTIALS))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    (before,) = kept(api, site)
    with open_ledger_closing(api.url, site) as ledger:
        assert take(ledger, before["id"], "slow", seconds=1000).took
    assert api.do(session.try_call, "pay", {"n": 2}).ok
    (after,) = kept(api, site)
    assert (len(site.forms), after["holder"], after["version"]) == (2, "slow", before["version"])


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [(400, "invalid_grant", "auth"), (401, "invalid_client", "auth"), (503, "temporarily_unavailable", "parked")],
)
def test_a_refusal_is_not_kept(api_on_both: Api, site: Site, status: int, error: str, kind: str) -> None:
    """What the server refuses leaves no row, and the next process asks for itself at once."""
    first, second = two(api_on_both, OBO, **ALICE)
    site.on_token = [httpx.Response(status, json={"error": error}, headers={"Retry-After": "900"})]
    assert api_on_both.do(first.try_call, "pay", {"n": 1}).kind == kind
    assert kept(api_on_both, site) == []
    began = site.clock.boottime()
    assert api_on_both.do(second.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), site.clock.boottime()) == (2, began)


def test_a_refused_refresh_leaves_the_row_to_others(api: Api, site: Site) -> None:
    """A row that had a token stays when a later request is refused, and is free."""
    session = api.open(tool(auth=OBO), **ALICE)
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    site.on_token = [httpx.Response(400, json={"error": "invalid_grant"})]
    assert api.do(session.try_call, "pay", {"n": 2}).kind == "auth"
    assert [row["holder"] for row in kept(api, site)] == [None]


def test_O7_a_token_that_serves_once_is_not_shared(api_on_both: Api, site: Site) -> None:
    """With expires_in 0 each call has a token of its own, nothing is kept, and nobody waits for a turn any more."""
    site.lifetime = 0
    held: list[str] = []

    def look(request: httpx.Request, at: Site) -> httpx.Response:
        held.extend(row["id"] for row in kept(api_on_both, at))
        return at.issue(request)

    site.on_token = [look]
    sessions = two(api_on_both, CREDENTIALS)
    for session in sessions:
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), kept(api_on_both, site)) == (2, [])
    with open_ledger_closing(api_on_both.url, site) as ledger:
        assert take(ledger, held[0], "another", seconds=1000).took
    began = site.clock.boottime()
    assert all(api_on_both.do(session.try_call, "pay", {"n": 2}).ok for session in sessions)
    assert (len(site.forms), site.clock.boottime()) == (4, began)


def test_rows_of_tokens_that_ran_out_are_forgotten(api_on_both: Api, site: Site) -> None:
    """Each new assertion makes a row; the next token that is kept takes those with it that ran out, and no account."""
    account = api_on_both.open(tool(auth=rotating()), alias="account")
    assert api_on_both.do(account.try_call, "pay", {"n": 1}).ok
    session = api_on_both.open(tool(auth=OBO), **ALICE)
    for number in range(4):
        api_on_both.do(session.authenticate, subject_token=f"subject-canary-{number}")
        assert api_on_both.do(session.try_call, "pay", {"n": number}).ok
    assert len(kept(api_on_both, site)) == 5
    site.clock.advance(301)
    assert api_on_both.do(session.try_call, "pay", {"n": 9}).ok
    assert sorted(row["name"].count("alice@crm") for row in kept(api_on_both, site)) == [0, 1]


class Away:
    """A ledger that refuses one kind of work, as a full disk would."""

    def __init__(self, ledger: Any, refuses: str) -> None:
        self.ledger = ledger
        self.refuses = refuses

    def __getattr__(self, name: str) -> Any:
        if name == self.refuses:
            return self._refuse
        return getattr(self.ledger, name)

    def _refuse(self, *args: Any, **named: Any) -> Any:
        raise LedgerFull("no room")


@pytest.mark.parametrize("lifetime", [300, 0])
@pytest.mark.parametrize("refuses", ["token", "hold_token", "keep_token", "free_token"])
def test_a_ledger_that_is_away_costs_no_token(api: Api, site: Site, refuses: str, lifetime: int) -> None:
    """Whatever the ledger refuses of a shared token, it is asked for once, used, and the step does not fail."""
    site.lifetime = lifetime
    with open_ledger_closing(api.url, site) as ledger:
        session = api.open(tool(auth=CREDENTIALS), url=cast("Any", Away(ledger, refuses)))
        assert api.do(session.try_call, "pay", {"n": 1}).ok
        assert len(site.forms) == 1
        api.close_runtimes()


def test_another_token_key_asks_anew(api_on_both: Api, site: Site) -> None:
    """What another key has sealed is no error here: the token is asked for and the row written over."""
    first = api_on_both.open(tool(auth=CREDENTIALS))
    assert api_on_both.do(first.try_call, "pay", {"n": 1}).ok
    key = Fernet.generate_key().decode()
    second = api_on_both.open(tool(auth=CREDENTIALS), alias="second", token_key=key)
    assert api_on_both.do(second.try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 2
    (row,) = kept(api_on_both, site)
    assert Seal([key]).open(row["id"], bytes(row["sealed"])).access


@every_grant
def test_without_a_key_each_process_has_its_own(
    api: Api, site: Site, monkeypatch: pytest.MonkeyPatch, auth: Any, named: dict[str, Any]
) -> None:
    """Without a token_key nothing is kept, and each runtime asks for itself."""
    for name in ("AGENT_RUNTIME_TOKEN_KEY", "AGENT_RUNTIME_TOKEN_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    site.sends_refresh = False
    for session in two(api, auth, token_key=None, **named):
        assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), kept(api, site)) == (2, [])


def lose(request: httpx.Request, site: Site) -> httpx.Response:
    """Issue a token, and lose it on the way."""
    site.issue(request)
    raise httpx.ReadTimeout("lost", request=request)


@every_grant
def test_an_ambiguous_request_is_made_again(api: Api, site: Site, auth: Any, named: dict[str, Any]) -> None:
    """An exchange, or another grant without rotation, whose answer was lost is asked again; the tool is called once."""
    site.sends_refresh = False
    site.on_token = [lose, httpx.Response(502)]
    session = api.open(tool(auth=auth), **named)
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert (len(site.forms), len(site.calls)) == (3, 1)
    other = api.open(tool(auth=auth), alias="other", **named)
    assert api.do(other.try_call, "pay", {"n": 1}).ok
    assert len(site.forms) == 3


def test_a_client_assertion_is_never_sent_twice(api_on_both: Api, site: Site) -> None:
    """Lost answers, a 401 and two processes: every token request bears an assertion of its own."""
    key = RSAKey.generate_key(2048).as_pem(private=True).decode()
    auth = ClientCredentials(token_url=CLIENT["token_url"], client_id="agent", private_key=PrivateKey(key=key))
    site.on_token = [lose, httpx.Response(503)]
    site.on_tool = [unauthorised()]
    for session in two(api_on_both, auth):
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assertions = [dict(form)["client_assertion"] for form in site.forms]
    assert (len(assertions), len(set(assertions))) == (4, 4)


def test_O12_a_cancelled_caller_leaves_its_token_to_other_processes(tmp_path: Path, site: Site) -> None:
    """A call that is cancelled while its token is asked for ends; the token is kept, and another process finds it."""
    arrived, answered = asyncio.Event(), asyncio.Event()
    url = f"sqlite:///{tmp_path}/agent.db"

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.host == "as.test":
                arrived.set()
                await answered.wait()
            await request.aread()
            return site(request)

    async def run() -> None:
        settings: dict[str, Any] = {"tools": [tool(auth=CREDENTIALS)], "clock": site.clock, "token_key": TOKEN_KEY}
        async with httpx.AsyncClient(transport=Slow()) as client:
            async with AsyncRuntime(url, client=client, **settings) as runtime:
                call = asyncio.ensure_future((await runtime.open("plan")).call("pay", {"n": 1}))
                await arrived.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                answered.set()
            async with AsyncRuntime(url, client=client, **settings) as other:
                assert (await (await other.open("other")).try_call("pay", {"n": 1})).ok

    asyncio.run(run())
    assert (len(site.forms), len(site.calls)) == (1, 1)
