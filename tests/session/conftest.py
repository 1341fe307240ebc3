"""The stage of a test: `Session` or `AsyncSession`, over SQLite or Postgres."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from agent_runtime.ledger import SqlLedger, open_ledger
from tests.leaks import search_postgres
from tests.session.stage import Clock, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def clock_of_run() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, clock_of_run: Clock
) -> Iterator[Any]:
    """Opens each database once for a run: tests keep apart by their tenants."""
    opened: dict[str, tuple[str, SqlLedger]] = {}

    def database(name: str) -> tuple[str, SqlLedger]:
        if name not in opened:
            url = f"sqlite:///{tmp_path_factory.mktemp('session')}/agent.db"
            if name == "postgres":
                url = _postgres(request.getfixturevalue("postgres_server"))
            opened[name] = (url, open_ledger(url, clock=clock_of_run))
        return opened[name]

    yield database
    for url, ledger in opened.values():
        ledger.close()
        if url.startswith("postgresql"):
            search_postgres(url)


def _postgres(server: str) -> str:
    import psycopg

    name = f"session_{uuid.uuid4().hex}"
    with psycopg.connect(f"host={server} user=postgres dbname=postgres", autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    return f"postgresql://postgres@/{name}?host={server}"


def _stage(face: str, name: str, databases: Any, clock: Clock) -> Iterator[Stage]:
    clock.slept.clear()
    clock.on_sleep = None
    url, ledger = databases(name)
    made = Stage(face, ledger, clock, url)
    yield made
    made.close()


@pytest.fixture(params=["sync-sqlite", "async-sqlite", "sync-postgres", "async-postgres"])
def stage(request: pytest.FixtureRequest, databases: Any, clock_of_run: Clock) -> Iterator[Stage]:
    """Both faces over both databases."""
    yield from _stage(*request.param.split("-"), databases, clock_of_run)


@pytest.fixture(params=["sqlite", "postgres"])
def async_stage(request: pytest.FixtureRequest, databases: Any, clock_of_run: Clock) -> Iterator[Stage]:
    """The async face over both databases, for what only it can do."""
    yield from _stage("async", request.param, databases, clock_of_run)


@pytest.fixture(params=["sqlite", "postgres"])
def sync_stage(request: pytest.FixtureRequest, databases: Any, clock_of_run: Clock) -> Iterator[Stage]:
    """The blocking face over both databases, for what only it can do."""
    yield from _stage("sync", request.param, databases, clock_of_run)
