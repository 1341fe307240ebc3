"""One grant has one chain: a refresh token from the settings belongs to the account that it was brought for first."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

import agent_runtime.ledger
from agent_runtime import ClientCredentials, ConfigError
from agent_runtime.ledger import open_ledger
from tests.oauth.kit import Api, Site, open_ledger_closing, rotating, rows, tool

if TYPE_CHECKING:
    from agent_runtime.testing import VirtualClock
    from tests.conftest import Backend

SPELLINGS = [
    ("https://as.test/token", "https://AS.Test/token"),
    ("https://as.test/token", "https://as.test:443/token"),
    ("http://as.test/token", "http://as.TEST:80/token"),
]
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # what differs in the provider, and in the runtime
    "account": ({"account": "bob@crm"}, {}),
    "client": ({"client_id": "other"}, {}),
    "path of the server": ({"token_url": "https://as.test/./token"}, {}),
    "issuer": ({"issuer": "https://as.test"}, {}),
    "tenant": ({}, {"tenant": "another"}),
}


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_spellings_of_a_server_are_one_account(
    api_on_both: Api, site: Site, clock: VirtualClock, one: str, other: str
) -> None:
    """Host case and the default port make no second chain: two runtimes with two spellings share each refresh."""
    sessions = [
        api_on_both.open(tool(auth=rotating(token_url=url)), alias=f"plan-{at}") for at, url in enumerate((one, other))
    ]
    for number in range(2):
        for session in sessions:
            assert api_on_both.do(session.try_call, "pay", {"n": number}).ok
        clock.advance(290)
    assert (len(site.forms), site.revoked) == (2, False)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://AS.test:443/Token?X=Y", "https://as.test/Token?X=Y"),
        ("https://as.test:8443/t", "https://as.test:8443/t"),
        ("http://as.test:443", "http://as.test:443"),
        ("https://[2001:DB8::1]:443/t", "https://[2001:db8::1]/t"),
        ("https://as.test/", "https://as.test/"),
    ],
)
def test_a_server_has_one_spelling(url: str, server: str) -> None:
    """Only what means the same by the rules of URLs is spelled alike; the URL that is asked stays as it was given."""
    auth = ClientCredentials(token_url=url, client_id="c", client_secret="client-secret-canary")
    assert (auth.server, auth.principal, auth.token_url) == (server, f"{server}#c", url)


@pytest.mark.parametrize("url", ["https://as.test:99999/t", "https://[as.test/t", "https:///t"])
def test_a_server_that_is_none_is_refused(url: str) -> None:
    """A port out of range, broken brackets and a missing host are refused when the provider is built."""
    with pytest.raises(ConfigError, match="absolute URL"):
        ClientCredentials(token_url=url, client_id="c", client_secret="client-secret-canary")


@pytest.mark.parametrize(("provider", "runtime"), OTHERS.values(), ids=OTHERS)
def test_a_refresh_token_belongs_to_one_account(
    api_on_both: Api, site: Site, clock: VirtualClock, provider: dict[str, Any], runtime: dict[str, Any]
) -> None:
    """The same refresh token under other settings is refused: nothing is sent, and the first account goes on."""
    first = api_on_both.open(tool(auth=rotating()))
    assert api_on_both.do(first.try_call, "pay", {"n": 1}).ok
    clock.advance(290)
    second = api_on_both.open(tool(auth=rotating(**provider)), alias="second", **runtime)
    for _ in range(2):
        outcome = api_on_both.do(second.try_call, "pay", {"n": 1})
        assert (outcome.state, outcome.kind, outcome.attempts) == ("ready", "auth", 0)
    assert outcome.error["code"] == "refresh_token_of_another_account"
    assert "nothing was sent or stored" in outcome.error["detail"]
    if "account" in provider:
        assert "alice@crm" not in outcome.error["detail"]
    assert len(site.token_requests) == 1
    assert api_on_both.do(first.try_call, "pay", {"n": 2}).ok
    with open_ledger_closing(api_on_both.url, site) as ledger:
        assert len(rows(ledger)) == 1
    assert (len(site.token_requests), site.revoked) == (2, False)


def test_a_new_authorisation_may_be_another_account(api: Api, site: Site) -> None:
    """What is refused is the token, not the account: with a refresh token of its own the second one works."""
    assert api.do(api.open(tool(auth=rotating())).try_call, "pay", {"n": 1}).ok
    site.refresh = "refresh-canary-bob"
    other = api.open(tool(auth=rotating(account="bob@crm", refresh_token="refresh-canary-bob")), alias="other")
    assert api.do(other.try_call, "pay", {"n": 1}).ok


def test_of_two_that_begin_at_once_one_has_the_token(backend: Backend, clock: VirtualClock) -> None:
    """Two processes that bring the same token for two accounts at the same moment: exactly one may send it."""
    ledgers = [open_ledger(backend.url, clock=clock) for _ in range(2)]
    begin = threading.Barrier(2)
    took: list[list[bool]] = [[], []]

    def work(at: int) -> None:
        for number in range(20):
            begin.wait(20)
            hold = ledgers[at].hold_token(f"r{at}-{number}", name="n", holder=f"h{at}", seconds=45, seed=f"s{number}")
            took[at].append(hold.result(20).took)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for ledger in ledgers:
        ledger.close()
    assert [one != other for one, other in zip(*took, strict=True)] == [True] * 20


def test_an_older_ledger_knows_whose_its_tokens_are(backend: Backend, tmp_path: Any) -> None:
    """Migrating gives each token that began a chain to its row: of two, to the sound one, then by version and time."""
    url = backend.url
    if backend.name == "postgres":
        url = backend.url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url)
    with engine.begin() as conn:
        if backend.name == "postgres":  # it comes with the newest tables
            conn.execute(text("DROP SCHEMA public CASCADE"))
            conn.execute(text("CREATE SCHEMA public"))
        config = Config()
        config.set_main_option("script_location", f"{agent_runtime.ledger.__path__[0]}/migrations")
        config.attributes["connection"] = conn
        command.upgrade(config, "0003")
        for ident, seeds, version, doubts, problem, at in (
            ("new", ["a", "b"], 1, 0, None, 9.0),
            ("old", ["b", "c", "d", "e", "f"], 1, 0, None, 5.0),
            ("refused", ["d"], 7, 0, "invalid_grant", 10.0),
            ("in doubt", ["e"], 8, 1, None, 11.0),
            ("much used", ["f", "a"], 2, 0, None, 4.0),
        ):
            values = {"id": ident, "seeds": json.dumps(seeds).encode(), "version": version, "doubts": doubts}
            values |= {"problem": problem, "at": at}
            conn.execute(
                text(
                    "INSERT INTO agent_runtime_tokens (id, name, version, seeds, doubts, problem, updated_at) "
                    "VALUES (:id, 'n', :version, :seeds, :doubts, :problem, :at)"
                ),
                values,
            )
    with open_ledger_closing(backend.url, Site(None)) as ledger:  # type: ignore[arg-type]
        for seed, owner, other in (
            ("a", "much used", "new"),
            ("b", "new", "old"),
            ("c", "old", "new"),
            ("d", "old", "refused"),
            ("e", "old", "in doubt"),
            ("f", "much used", "old"),
        ):
            assert ledger.hold_token(other, name="n", holder="h", seconds=45, seed=seed).result(10).record is None
            assert ledger.hold_token(owner, name="n", holder="h", seconds=45, seed=seed).result(10).took
    engine.dispose()
