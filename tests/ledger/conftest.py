"""Ledgers for a test, closed when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent_runtime.ledger import SqlLedger, open_ledger
from tests.ledger.build import FakeClock, Holder, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Backend


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opener(clock: FakeClock) -> Iterator[Callable[..., SqlLedger]]:
    """Opens ledgers on the test's clock."""
    opened: list[SqlLedger] = []

    def open_one(url: str, **settings: Any) -> SqlLedger:
        ledger = open_ledger(url, **({"clock": clock} | settings))
        opened.append(ledger)
        return ledger

    yield open_one
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(backend: Backend, opener: Callable[..., SqlLedger]) -> SqlLedger:
    return opener(backend.url)


@pytest.fixture
def rival(backend: Backend, opener: Callable[..., SqlLedger]) -> SqlLedger:
    """Another ledger object on the same database, as another worker has one."""
    return opener(backend.url)


@pytest.fixture
def session(ledger: SqlLedger) -> Holder:
    """A new session under the alias ``orders-db``."""
    return start(ledger, "orders-db")
