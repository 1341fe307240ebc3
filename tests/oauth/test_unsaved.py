"""Tokens that the ledger could not take: not lost while the process lives, never written for a turn that goes on."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from agent_runtime import Idempotency, RetryPolicy, ToolContract
from agent_runtime._drive.tokens.store import TokenStore, Unsaved
from agent_runtime.errors import LedgerFull
from agent_runtime.testing import VirtualClock
from tests.oauth.kit import Api, Site, open_ledger_closing, rotating, rows, tool
from tests.oauth.odd import odd, once
from tests.oauth.test_rotation import sent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE_TRY = ToolContract(idempotency=Idempotency(), retry=RetryPolicy(attempts=1))


def no_room(method: Callable[..., Any], *args: Any, release: bool = True, **named: Any) -> Any:
    """Refuse what a refresh brought; what is written before one goes through."""
    if release:
        raise LedgerFull("no room")
    return method(*args, release=release, **named)


def refused_once() -> Callable[..., Any]:
    """Refuse what one refresh brought."""
    full = [True]

    def keep(method: Callable[..., Any], *args: Any, release: bool = True, **named: Any) -> Any:
        if release and full:
            full.clear()
            raise LedgerFull("no room")
        return method(*args, release=release, **named)

    return keep


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_closing_writes_what_the_ledger_could_not_take(
    api_on_both: Api, site: Site, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The ledger refuses one write and is well again: closing writes it, and the next process goes on."""
    with open_ledger_closing(api_on_both.url, site) as ledger:
        full = odd(ledger, keep_token=refused_once())
        session = api_on_both.open(tool(auth=rotating(), contract=ONE_TRY), url=full)
        assert not api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        api_on_both.close_runtimes()
    assert warnings_of(caplog) == []
    clock.advance(60)
    other = api_on_both.open(tool(auth=rotating()), alias="other")
    assert api_on_both.do(other.try_call, "pay", {"n": 1}).ok
    clock.advance(290)
    assert api_on_both.do(other.try_call, "pay", {"n": 2}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-1"]


def test_closing_says_what_is_lost(api_on_both: Api, site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A token that the ledger does not take even then is lost: a warning names the account, and no secret."""
    with open_ledger_closing(api_on_both.url, site) as ledger:
        session = api_on_both.open(tool(auth=rotating(), contract=ONE_TRY), url=odd(ledger, keep_token=no_room))
        assert not api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        api_on_both.close_runtimes()
    (warning,) = warnings_of(caplog)
    assert "alice@crm" in warning
    assert "authorise the account anew" in warning
    assert "canary" not in caplog.text


def test_a_beginning_that_the_ledger_refuses_leaves_no_doubt(api_on_both: Api, site: Site) -> None:
    """If the first token cannot be put down, nothing is sent, and the next try begins at once."""

    def full(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        raise LedgerFull("no room")

    with open_ledger_closing(api_on_both.url, site) as ledger:
        session = api_on_both.open(tool(auth=rotating()), url=odd(ledger, keep_token=once(full)))
        began = site.clock.boottime()
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        assert site.clock.boottime() - began < 5
        assert [row["doubts"] for row in rows(ledger)] == [0]
        api_on_both.close_runtimes()
    assert sent(site) == ["refresh-canary-0"]


def test_closing_calls_nothing_lost_that_was_not_sent(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """A first token that cannot be put down stands in the settings still: closing says nothing of it."""

    def full(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        raise LedgerFull("no room")

    with open_ledger_closing(api.url, api.site) as ledger:
        session = api.open(tool(auth=rotating(), contract=ONE_TRY), url=odd(ledger, keep_token=full))
        assert not api.do(session.try_call, "pay", {"n": 1}).ok
        api.close_runtimes()
    assert (warnings_of(caplog), api.site.forms) == ([], [])


def test_a_beginning_that_took_without_an_answer_is_given_back(api_on_both: Api, site: Site) -> None:
    """If the write took and its answer was lost, nothing is sent, and the row is free for the next try."""

    def took(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        method(*args, **named).result(10)
        raise LedgerFull("the answer was lost")

    with open_ledger_closing(api_on_both.url, site) as ledger:
        session = api_on_both.open(tool(auth=rotating()), url=odd(ledger, keep_token=once(took)))
        began = site.clock.boottime()
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        assert site.clock.boottime() - began < 5
        api_on_both.close_runtimes()
    assert sent(site) == ["refresh-canary-0"]


class StandingClock(VirtualClock):
    """A clock by which a sleeper says so, and sleeps until somebody goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep, self.woken = threading.Event(), threading.Event()

    def sleep(self, seconds: float) -> None:
        self.asleep.set()
        self.woken.wait(30)
        super().sleep(seconds)


def test_threads_that_begin_at_once_send_once(tmp_path: Path) -> None:
    """A thread that comes while another one puts the first token down does not end that one's turn."""
    clock = StandingClock()
    site = Site(clock)
    api = Api("sync", f"sqlite:///{tmp_path}/agent.db", site)
    one, other = tool("one", auth=rotating(), scope="a"), tool("other", auth=rotating(), scope="b")

    def meanwhile(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        thread.start()
        clock.asleep.wait(30)  # it waits for its turn, or for an answer to what it has sent
        return method(*args, **named)

    def answer(request: httpx.Request, at: Site) -> httpx.Response:
        if clock.asleep.is_set():
            clock.woken.set()
        else:
            clock.sleep(0)
        return at.issue(request)

    site.on_token = [answer, answer]
    thread = threading.Thread(target=lambda: second.try_call("other", {"n": 1}))
    with open_ledger_closing(api.url, site) as ledger:
        runtime = api.runtime(one, other, url=odd(ledger, keep_token=once(meanwhile)))
        first, second = runtime.open("first"), runtime.open("second")
        assert first.try_call("one", {"n": 1}).ok
        thread.join(30)
        api.close()
    assert sent(site) == ["refresh-canary-0", "refresh-canary-1"]
    assert not site.revoked


def test_a_beginning_that_was_not_taken_is_not_sent(api: Api, site: Site) -> None:
    """Where something newer stands when the first token is put down, that turn sends nothing and looks again."""
    events: list[str] = []

    def newer(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        events.append("not taken")
        future: Future[int | None] = Future()
        future.set_result(None)
        return future

    def hold(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        events.append("turn")
        return method(*args, **named)

    def issue(request: Any, at: Site) -> Any:
        events.append("sent")
        return at.issue(request)

    site.on_token = [issue]
    with open_ledger_closing(api.url, site) as ledger:
        session = api.open(tool(auth=rotating()), url=odd(ledger, keep_token=once(newer), hold_token=hold))
        assert api.do(session.try_call, "pay", {"n": 1}).ok
        api.close_runtimes()
    assert events == ["turn", "not taken", "turn", "sent"]


def lost_write(api: Api, ledger: Any) -> Any:
    """Return a session whose first refresh brought a token that the ledger did not take."""
    session = api.open(tool(auth=rotating(), contract=ONE_TRY), url=odd(ledger, keep_token=refused_once()))
    assert not api.do(session.try_call, "pay", {"n": 1}).ok
    api.site.clock.advance(46)  # its turn is over
    return session


def stale(api: Api) -> Any:
    """Return a session of another worker, whose settings have a token that the server knows no more."""
    return api.open(tool(auth=rotating(refresh_token="refresh-canary-stale")), alias="stale")


def test_a_token_that_stands_in_memory_goes_over_one_of_no_use(
    api_on_both: Api, site: Site, clock: VirtualClock
) -> None:
    """Another worker's stale token ends the chain in the row: the good one is kept, the stale one not sent again."""
    with open_ledger_closing(api_on_both.url, site) as ledger:
        session = lost_write(api_on_both, ledger)
        site.on_token = [httpx.Response(400, json={"error": "invalid_grant"})]
        other = stale(api_on_both)
        assert api_on_both.do(other.try_call, "pay", {"n": 1}).kind == "auth"
        assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
        clock.advance(290)
        assert api_on_both.do(other.try_call, "pay", {"n": 1}).ok
        api_on_both.close_runtimes()
    assert sent(site) == ["refresh-canary-0", "refresh-canary-stale", "refresh-canary-1"]


def test_a_token_in_memory_leaves_a_newer_good_one_alone(
    api_on_both: Api, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A new authorisation began another chain meanwhile: that one stays, and nothing is said."""
    with open_ledger_closing(api_on_both.url, site) as ledger:
        lost_write(api_on_both, ledger)
        site.refresh = "refresh-canary-stale"
        assert api_on_both.do(stale(api_on_both).try_call, "pay", {"n": 1}).ok
        (before,) = rows(ledger)
        api_on_both.close_runtimes()
        assert rows(ledger) == [before]
    assert warnings_of(caplog) == []


def test_closing_says_what_is_lost_while_another_is_at_the_row(
    api_on_both: Api, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The row moved on, and what its new token is worth is not known yet: a warning names the account."""
    with open_ledger_closing(api_on_both.url, site) as ledger:
        lost_write(api_on_both, ledger)
        (row,) = rows(ledger)
        taken = ledger.hold_token(row["id"], name=row["name"], holder="other", seconds=45).result(10).record
        named = {"holder": "other", "version": taken.version, "sealed": taken.sealed, "seeds": taken.seeds}
        assert ledger.keep_token(row["id"], **named, release=False).result(10) is not None
        api_on_both.close_runtimes()
    (warning,) = warnings_of(caplog)
    assert "alice@crm" in warning


def test_a_token_that_came_late_goes_over_one_of_no_use(api_on_both: Api, site: Site, clock: VirtualClock) -> None:
    """A stale token ended the chain while the refresh was out: what it brought is kept all the same."""

    def overtaken(request: httpx.Request, at: Site) -> httpx.Response:
        reply = at.issue(request)
        clock.advance(46)
        with open_ledger_closing(api_on_both.url, at) as ledger:
            (row,) = rows(ledger)
            taken = ledger.hold_token(row["id"], name="n", holder="other", seconds=45).result(10).record
            named = {"holder": "other", "version": taken.version, "sealed": taken.sealed, "seeds": taken.seeds}
            assert ledger.keep_token(row["id"], **named, release=False).result(10) is not None
            ledger.free_token(row["id"], holder="other", problem="invalid_grant").result(10)
        return reply

    site.on_token = [overtaken]
    session = api_on_both.open(tool(auth=rotating()))
    assert api_on_both.do(session.try_call, "pay", {"n": 1}).ok
    clock.advance(290)
    assert api_on_both.do(session.try_call, "pay", {"n": 2}).ok
    assert sent(site) == ["refresh-canary-0", "refresh-canary-1"]


def test_only_ones_own_debt_is_settled() -> None:
    """What was written leaves a newer debt of the same row alone."""
    store = TokenStore()
    one, newer = (Unsaved(name="n", holder=holder, version=1, sealed=b"", seeds=()) for holder in "ab")
    store.owe("r", one)
    store.owe("r", newer)
    store.settled("r", one)
    assert store.unsaved == {"r": newer}
    store.settled("r", newer)
    assert store.unsaved == {}
