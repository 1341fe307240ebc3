"""Rows of access tokens: held rows stand, those that ran out go, and neither stands in anybody's way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from agent_runtime.ledger import open_ledger
from tests.oauth.kit import take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_runtime.ledger import SqlLedger
    from agent_runtime.testing import VirtualClock
    from tests.conftest import Backend


def put(ledger: SqlLedger, row: str, holder: str, version: int, expires_at: float) -> int | None:
    kept = ledger.keep_token(row, holder=holder, version=version, sealed=b"1", expires_at=expires_at)
    return kept.result(20)


@pytest.fixture
def ledgers(backend: Backend, clock: VirtualClock) -> Iterator[list[SqlLedger]]:
    """Four ledgers on one database, as four processes have them."""
    made = [open_ledger(backend.url, clock=clock) for _ in range(4)]
    yield made
    for one in made:
        one.close()


def test_a_row_is_not_forgotten_while_it_is_held(ledgers: list[SqlLedger], clock: VirtualClock) -> None:
    """A row whose token has run out and that is held again stands until the turn is over; then it may go."""
    one, other = ledgers[:2]
    take(one, "a", "h1")
    assert put(one, "a", "h1", 0, clock.wall() + 5) == 1
    clock.advance(20)
    assert take(one, "a", "h2").record.version == 1
    take(other, "b", "h3")
    put(other, "b", "h3", 0, clock.wall() + 300)
    assert one.token("a").result(20) is not None
    clock.advance(20)
    take(other, "c", "h4")
    put(other, "c", "h4", 0, clock.wall() + 300)
    assert one.token("a").result(20) is None


def test_a_worker_that_comes_when_its_row_is_forgotten(ledgers: list[SqlLedger], clock: VirtualClock) -> None:
    """Keeping and freeing do nothing then; taking the row makes it anew."""
    one, other = ledgers[:2]
    take(one, "a", "h1")
    clock.advance(20)
    take(other, "b", "h2")
    put(other, "b", "h2", 0, clock.wall() + 300)
    assert one.token("a").result(20) is None
    assert put(one, "a", "h1", 0, clock.wall() + 300) is None
    one.free_token("a", holder="h1").result(20)
    assert take(one, "a", "h1").took


def test_forgetting_stands_in_nobodys_way(ledgers: list[SqlLedger], clock: VirtualClock) -> None:
    """Four processes take, keep, free and forget the same rows at once: none fails, and what is fresh stands."""
    begin = threading.Barrier(4)
    failures: list[BaseException] = []

    def work(at: int) -> None:
        try:
            begin.wait(20)
            for number in range(40):
                row, holder = f"r{number % 5}", f"{at}-{number}"
                hold = take(ledgers[at], row, holder)
                if hold.took:
                    ends = clock.wall() + (300 if number >= 35 else -1)
                    put(ledgers[at], row, holder, hold.record.version, ends)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert [ledgers[0].token(f"r{number}").result(20).sealed for number in range(5)] == [b"1"] * 5


def test_lost_commit_answers_are_told_right(backend: Backend) -> None:
    """If the answer to a COMMIT is lost, taking, keeping and giving back a row that expires are told right."""
    lost = [True, False] * 10

    def after_commit() -> None:
        if lost.pop(0):
            raise ConnectionError

    open_ledger(backend.url).close()
    ledger = open_ledger(backend.url, after_commit=after_commit)
    now = ledger.now()
    try:
        assert take(ledger, "r", "a").took
        assert put(ledger, "r", "a", 0, now + 300) == 1
        assert take(ledger, "s", "b").took
        ledger.free_token("s", holder="b").result(20)
        assert ledger.token("s").result(20) is None
    finally:
        ledger.close()
