"""Refresh tokens that rotate: one worker at a time, kept before use, never sent again in doubt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from cryptography.fernet import Fernet

from agent_runtime import AsyncRuntime, ConfigError, RefreshToken, Runtime, TokenExchange
from agent_runtime._core.tokens import KeptTokens
from agent_runtime._oauth import Seal, SealBroken, seal_of
from agent_runtime.errors import LedgerFull
from agent_runtime.ledger import open_ledger
from tests.oauth.kit import CLIENT, TOKEN_KEY, Api, Site, open_ledger_closing, rotating, rows, tool, unauthorised

if TYPE_CHECKING:
    from pathlib import Path

    from agent_runtime.testing import VirtualClock
    from tests.conftest import Backend


def lost(request: httpx.Request, site: Site) -> httpx.Response:
    """Rotate, and lose the answer."""
    site.issue(request)
    raise httpx.ReadTimeout("lost", request=request)


def sent(site: Site) -> list[str]:
    """Return the refresh tokens that came, in order."""
    return [dict(form)["refresh_token"] for form in site.forms]


def test_a_chain_is_kept_over_processes(api_on_both: Api, site: Site, clock: VirtualClock) -> None:
    """Two runtimes in turn refresh three times each; each sends the newest token, and the grant stands."""
    runtimes = [api_on_both.runtime(tool(auth=rotating())) for _ in range(2)]
    sessions = [api_on_both.do(runtime.open, f"plan-{at}") for at, runtime in enumerate(runtimes)]
    for number in range(6):
        assert api_on_both.do(sessions[number % 2].try_call, "pay", {"n": number}).ok
        clock.advance(290)
    assert (len(site.forms), site.revoked, site.expired) == (6, False, [])
    assert sent(site)[0] == "refresh-canary-0"
    assert len(set(sent(site))) == 6


def test_the_newest_token_is_kept_before_it_is_used(api_on_both: Api, site: Site) -> None:
    """When the tool is called, the row holds the refresh token that came with the access token it carries."""
    seen: list[KeptTokens] = []

    def look(request: httpx.Request, at: Site) -> httpx.Response:
        with open_ledger_closing(api_on_both.url, at) as ledger:
            row = rows(ledger)[0]
        seen.append(Seal([TOKEN_KEY]).open(row["id"], bytes(row["sealed"])))
        assert row["holder"] is None
        return at.serve(request)

    site.on_tool = [look]
    session = api_on_both.open(tool(auth=rotating()))
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    assert seen[0].refresh == site.refresh
    assert site.calls[0].headers["Authorization"].endswith(next(iter(seen[0].access.values())).value)


def test_A32_a_reply_without_a_refresh_token_keeps_the_old_one(api: Api, site: Site, clock: VirtualClock) -> None:
    """Two replies leave the refresh token out, the third brings a new one: it is kept, replaced, and used."""
    session = api.open(tool(auth=rotating()))
    site.sends_refresh = False
    for number in range(2):
        assert api.do(session.try_call, "pay", {"n": number}).ok
        clock.advance(290)
    site.sends_refresh = True
    assert api.do(session.try_call, "pay", {"n": 3}).ok
    newest = site.refresh
    clock.advance(290)
    other = api.open(tool(auth=rotating()), alias="other")
    assert api.do(other.try_call, "pay", {"n": 4}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-0", "refresh-canary-0", newest]


@pytest.mark.parametrize("bad", ["lost", "500", "503", "page"])
def test_a_refresh_in_doubt_is_not_repeated(api_on_both: Api, site: Site, bad: str) -> None:
    """After a refresh whose end nobody knows, no worker sends that token again; the step waits and says why."""
    answers = {"lost": lost, "page": httpx.Response(200, text="<html>")}
    site.on_token = [answers[bad] if bad in answers else httpx.Response(int(bad), text="upstream connect error")]
    session = api_on_both.open(tool(auth=rotating()))
    outcome = api_on_both.do(session.try_call, "pay", {"n": 1})
    assert (outcome.state, outcome.kind, outcome.attempts) == ("ready", "auth", 0)
    assert outcome.error["code"] == "refresh_in_doubt"
    assert "authorise account 'alice@crm' anew" in outcome.error["detail"]
    other = api_on_both.open(tool(auth=rotating()), alias="other")
    assert api_on_both.do(other.try_call, "pay", {"n": 1}).kind == "auth"
    assert sent(site) == ["refresh-canary-0"]
    assert site.calls == []


def test_rotation_grace_allows_one_repeat(api: Api, site: Site) -> None:
    """Where the server takes an old token again, one repeat is made; a second lost answer ends it."""
    auth = rotating(rotation_grace=True)

    def lose_only(request: httpx.Request, at: Site) -> httpx.Response:
        raise httpx.ReadTimeout("lost", request=request)

    site.on_token = [lose_only]
    session = api.open(tool(auth=auth))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-0"]
    site.clock.advance(290)
    site.on_token = [lose_only, lose_only]
    assert api.do(session.try_call, "pay", {"n": 2}).kind == "auth"
    assert len(site.forms) == 4


@pytest.mark.parametrize(
    "answer",
    [
        {"status_code": 429},
        {"status_code": 503, "headers": {"Retry-After": "2"}},
        {"status_code": 503, "json": {"error": "temporarily_unavailable"}},
    ],
)
def test_a_server_that_cannot_serve_now_leaves_the_token_good(api: Api, site: Site, answer: Any) -> None:
    """429, and a 503 that the server meant, are no doubt: the same token is sent again, after the wait."""
    site.on_token = [httpx.Response(**answer)]
    session = api.open(tool(auth=rotating()))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-0"]


def test_a_request_that_was_never_sent_leaves_the_token_good(api: Api, site: Site) -> None:
    """A connection that could not be made is no doubt."""

    def refuse(request: httpx.Request, at: Site) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    site.on_token = [refuse]
    session = api.open(tool(auth=rotating()))
    assert api.do(session.try_call, "pay", {"n": 1}).ok


def test_A33_invalid_grant_is_told_once(api: Api, site: Site) -> None:
    """A dead grant is asked about once, by whichever worker comes first; the step was not performed."""
    site.revoked = True
    session = api.open(tool(auth=rotating()))
    for _ in range(2):
        outcome = api.do(session.try_call, "pay", {"n": 1})
        assert (outcome.state, outcome.kind, outcome.error["code"]) == ("ready", "auth", "invalid_grant")
    assert (len(site.forms), site.calls) == (1, [])


def test_A33_a_401_and_then_a_dead_grant(api: Api, site: Site) -> None:
    """A tool's 401 followed by invalid_grant stops: one send, one refresh, the step not applied."""
    session = api.open(tool(auth=rotating()))
    assert api.do(session.try_call, "pay", {"n": 1}).ok
    site.revoked = True
    site.on_tool = [unauthorised()]
    outcome = api.do(session.try_call, "pay", {"n": 2})
    assert (outcome.state, outcome.kind, outcome.attempts) == ("ready", "auth", 1)
    assert (len(site.forms), len(site.calls)) == (2, 2)


def test_a_worker_that_died_during_its_refresh_leaves_a_doubt(api_on_both: Api, site: Site) -> None:
    """A row that is held beyond its time stops the others; before that they wait."""
    auth = rotating()
    session = api_on_both.open(tool(auth=auth))
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    with open_ledger_closing(api_on_both.url, site) as ledger:
        row = rows(ledger)[0]
        hold = ledger.hold_token(row["id"], name="n", holder="dead", seconds=45).result(10)
    assert hold.took
    began = site.clock.boottime()
    outcome = api_on_both.do(session.try_call, "pay", {"n": 2})
    assert site.clock.boottime() - began >= 45
    assert (outcome.kind, outcome.error["code"]) == ("auth", "refresh_in_doubt")
    assert len(site.forms) == 1


def test_A40_a_server_that_repeats_the_refresh_token(api: Api, site: Site) -> None:
    """A description that holds the refresh token that was sent is not told, though it looks like a plain word."""
    plain = "refresh-canary-of-a-plain-kind"
    description = f"{plain} is of no use"
    site.on_token = [httpx.Response(400, json={"error": "unauthorized_client", "error_description": description})]
    outcome = api.do(api.open(tool(auth=rotating(refresh_token=plain))).try_call, "pay", {"n": 1})
    assert (outcome.kind, outcome.error["code"]) == ("auth", "unauthorized_client")
    assert "canary" not in repr(outcome)


def test_a_new_authorisation_ends_a_doubt(api: Api, site: Site) -> None:
    """A refresh token that the row has never seen begins a new chain, and the old settings do not come back."""
    site.on_token = [lost]
    assert api.do(api.open(tool(auth=rotating())).try_call, "pay", {"n": 1}).kind == "auth"
    site.refresh = "refresh-canary-new"
    fresh = api.open(tool(auth=rotating(refresh_token="refresh-canary-new")), alias="fresh")
    assert api.do(fresh.try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    stale = api.open(tool(auth=rotating()), alias="stale")  # still brings refresh-canary-0
    assert api.do(stale.try_call, "pay", {"n": 1}).ok
    assert "refresh-canary-0" not in sent(site)[1:]
    assert not site.revoked


def test_a_stale_token_from_outside_does_not_kill_the_chain(api: Api, site: Site) -> None:
    """A worker whose settings bring an older, dead token goes back to the chain that stands."""
    assert api.do(api.open(tool(auth=rotating())).try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    site.on_token = [httpx.Response(400, json={"error": "invalid_grant"})]
    stale = api.open(tool(auth=rotating(refresh_token="refresh-canary-long-dead")), alias="stale")
    assert api.do(stale.try_call, "pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-long-dead", "refresh-canary-1"]


def test_an_account_token_may_be_a_function(api: Api, site: Site) -> None:
    """The function is asked when the chain is looked at, so a new authorisation needs no restart."""
    current = ["refresh-canary-0"]
    session = api.open(tool(auth=rotating(refresh_token=lambda: current[0])))
    site.on_token = [lost]
    assert api.do(session.try_call, "pay", {"n": 1}).kind == "auth"
    current[0] = site.refresh = "refresh-canary-new"
    assert api.do(session.try_call, "pay", {"n": 1}).ok


def test_each_scope_has_its_own_access_token_in_one_chain(api: Api, site: Site) -> None:
    """Two tools with scopes of their own share an account: two access tokens, one chain, no reuse."""
    one, other = tool("one", auth=rotating(), scope="a"), tool("other", auth=rotating(), scope="b")
    session = api.open(one, other)
    for number, name in enumerate(["one", "other", "one", "other"]):
        assert api.do(session.try_call, name, {"n": number}).ok
    assert [dict(form)["scope"] for form in site.forms] == ["a", "b"]
    second = api.open(one, other, alias="second")
    assert api.do(second.try_call, "one", {"n": 9}).ok
    assert (len(site.forms), site.revoked) == (2, False)


def test_a_ledger_that_is_away_loses_no_token(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new refresh token that the ledger cannot take is kept in memory and written before anything is refreshed."""
    url = f"sqlite:///{tmp_path}/agent.db"
    broken = [False]
    ledger = open_ledger(url, clock=site.clock, retry_seconds=0.0)

    class Away:
        """Refuses what keeps a token, as a full disk would."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def keep_token(self, *args: Any, **named: Any) -> Any:
            if broken[0] and named.get("release", True):
                raise LedgerFull("no room")
            return ledger.keep_token(*args, **named)

    sleep = site.clock.sleep

    def mend(seconds: float) -> None:
        broken[0] = False
        sleep(seconds)

    monkeypatch.setattr(site.clock, "sleep", mend)  # the test's own clock: the disk has room again after the wait
    client = httpx.Client(transport=httpx.MockTransport(site))
    settings = {"tools": [tool(auth=rotating())], "client": client, "clock": site.clock, "token_key": TOKEN_KEY}
    with client, Runtime(cast("Any", Away()), **settings) as runtime:
        broken[0] = True
        assert runtime.open("plan").try_call("pay", {"n": 1}).ok
    assert sent(site) == ["refresh-canary-0"]
    assert not site.revoked
    ledger.close()


def test_an_older_token_never_overwrites_a_newer_one(backend: Backend) -> None:
    """A write over a version that is no longer the row's is refused; a repeat of the own write is recognised."""
    with open_ledger_closing(backend.url, Site(None)) as ledger:  # type: ignore[arg-type]
        first = ledger.hold_token("r", name="n", holder="a", seconds=45).result(10)
        assert first.took
        assert not ledger.hold_token("r", name="n", holder="b", seconds=45).result(10).took
        assert ledger.keep_token("r", holder="a", version=0, sealed=b"1", seeds=("s",)).result(10) == 1
        assert ledger.keep_token("r", holder="a", version=0, sealed=b"1", seeds=("s",)).result(10) == 1
        assert ledger.keep_token("r", holder="b", version=0, sealed=b"old", seeds=("s",)).result(10) is None
        assert ledger.token("r").result(10).sealed == b"1"
        ledger.free_token("r", holder="b", doubt=True).result(10)
        assert ledger.token("r").result(10).doubts == 0
        assert ledger.token("none").result(10) is None


def test_a_lost_commit_answer_takes_the_row_once(backend: Backend) -> None:
    """If the answer to a COMMIT is lost, taking, keeping and freeing a row are told right all the same."""
    lose = [True, False] * 10

    def after_commit() -> None:
        if lose.pop(0):
            raise ConnectionError

    ledger = open_ledger(backend.url, after_commit=lambda: None)
    ledger.close()
    ledger = open_ledger(backend.url, after_commit=after_commit)
    try:
        assert ledger.hold_token("r", name="n", holder="a", seconds=45).result(10).took
        assert ledger.keep_token("r", holder="a", version=0, sealed=b"1", seeds=("s",)).result(10) == 1
        assert ledger.hold_token("r", name="n", holder="b", seconds=45).result(10).record.doubts == 0
        ledger.free_token("r", holder="b", doubt=True).result(10)
        assert ledger.token("r").result(10).doubts == 1
    finally:
        ledger.close()


def test_without_a_key_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    """A rotating provider without a token_key is refused before anything is sent, with how to make one."""
    for name in ("AGENT_RUNTIME_TOKEN_KEY", "AGENT_RUNTIME_TOKEN_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    url = f"sqlite:///{tmp_path}/agent.db"
    for settings in (
        {"tools": [tool(auth=rotating())]},
        {"auth": rotating()},
        {"tools": [tool(auth=TokenExchange(**CLIENT, subject=rotating()))]},
    ):
        with pytest.raises(ConfigError, match=r"Fernet.generate_key\(\)"):
            Runtime(url, **settings)
    Runtime(url, tools=[tool(auth=rotating(rotates=False))]).close()


def test_a_token_that_does_not_rotate_is_never_stored(api: Api, site: Site) -> None:
    """With rotates=False the token of the settings is used each time, and the ledger keeps nothing."""
    site.sends_refresh = False
    session = api.open(tool(auth=rotating(rotates=False)), token_key=None)
    for number in range(2):
        assert api.do(session.try_call, "pay", {"n": number}).ok
        site.clock.advance(290)
    assert sent(site) == ["refresh-canary-0", "refresh-canary-0"]
    with open_ledger_closing(api.url, site) as ledger:
        assert rows(ledger) == []


def test_the_key_comes_from_argument_environment_or_file(tmp_path: Path) -> None:
    """The key is taken from the argument, the environment or a file; several open what one has sealed."""
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    path = tmp_path / "key"
    path.write_text(f"{new}\n{old}\n")
    sealed = Seal([old]).close("row", KeptTokens(refresh="r"))
    for seal in (
        seal_of(old, {}),
        seal_of(old.encode(), {}),
        seal_of(path, {}),
        seal_of(None, {"AGENT_RUNTIME_TOKEN_KEY": f"{new},{old}"}),
        seal_of(None, {"AGENT_RUNTIME_TOKEN_KEY_FILE": str(path)}),
    ):
        assert seal is not None
        assert seal.open("row", sealed).refresh == "r"
    assert seal_of(None, {}) is None


@pytest.mark.parametrize("key", ["canary", "canary" * 9, b"\xff" * 32])
def test_a_bad_key_is_refused_and_not_shown(key: Any) -> None:
    """What is no Fernet key is refused without being shown."""
    with pytest.raises(ConfigError) as caught:
        seal_of(key, {})
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A key file that cannot be read is a config error with its path."""
    with pytest.raises(ConfigError, match="gone"):
        seal_of(tmp_path / "gone", {})


def test_a_sealed_row_opens_only_as_itself() -> None:
    """Bytes of another row, or under another key, are refused."""
    key = Fernet.generate_key().decode()
    sealed = Seal([key]).close("row", KeptTokens(refresh="r"))
    for seal, row in ((Seal([key]), "other"), (Seal([Fernet.generate_key().decode()]), "row")):
        with pytest.raises(SealBroken):
            seal.open(row, sealed)


def test_another_token_key_makes_the_step_wait(api: Api, site: Site) -> None:
    """A worker with another key neither uses nor overwrites what it cannot open."""
    assert api.do(api.open(tool(auth=rotating())).try_call, "pay", {"n": 1}).ok
    site.clock.advance(290)
    other = api.open(tool(auth=rotating()), alias="other", token_key=Fernet.generate_key())
    outcome = api.do(other.try_call, "pay", {"n": 1})
    assert (outcome.kind, outcome.error["code"], len(site.forms)) == ("auth", "token_key", 1)


def test_settings_that_cannot_work_are_refused() -> None:
    """An account without a name or token is refused."""
    for wrong in ({"account": ""}, {"refresh_token": ""}, {"client_id": ""}):
        with pytest.raises(ConfigError):
            RefreshToken(**CLIENT | {"account": "a", "refresh_token": "refresh-canary-0"} | wrong)


@pytest.mark.parametrize("make", [Runtime, AsyncRuntime])
@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"tools": [tool("a", auth=rotating()), tool("b", auth=rotating(account="bob@crm"))]}, 1),
        ({"auth": rotating()}, 1),
        ({"tools": [tool(auth=TokenExchange(**CLIENT, subject=rotating()))]}, 1),
        ({"tools": [tool(auth=rotating(rotates=False))]}, 0),
        ({"tools": [tool(auth=rotating())], "file": True}, 0),
    ],
    ids=["tools", "default", "subject", "does not rotate", "file"],
)
def test_a_rotating_account_in_a_ledger_that_ends_is_warned_of_once(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, make: Any, settings: dict[str, Any], warnings: int
) -> None:
    """In memory the newest refresh token ends with the process; the warning names the account and the caller's line."""
    url = f"sqlite:///{tmp_path}/agent.db" if settings.get("file") else "sqlite:///:memory:"
    runtime = make(url, token_key=TOKEN_KEY, **{name: settings[name] for name in settings if name != "file"})
    told = [one for one in recwarn if "this ledger is in memory" in str(one.message)]
    assert len(told) == warnings
    assert all("'alice@crm'" in str(one.message) and one.filename == __file__ for one in told)
    closing = runtime.close()
    if closing is not None:
        asyncio.run(closing)
