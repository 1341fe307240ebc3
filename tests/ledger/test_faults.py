"""Trouble with the database: what passes stays inside, what does not is named."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import event

from agent_runtime._model import State, Took
from agent_runtime.errors import (
    CommitUnknown,
    LedgerCorrupt,
    LedgerError,
    LedgerFull,
    LedgerReadOnly,
    LedgerUnavailable,
)
from tests.ledger.build import TENANT, WAIT, Holder, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_runtime.ledger import SqlLedger
    from tests.conftest import Backend


def raise_at_commit(ledger: SqlLedger, *failures: BaseException) -> list[BaseException]:
    """Let the next commits fail one after the other; what is left over stays in the list."""
    left = list(failures)

    def fail(_: object) -> None:
        if left:
            raise left.pop(0)

    event.listen(ledger.engine, "commit", fail)
    return left


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("made for a test")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_TEST"
    return error


PASSING = {
    "serialization": lambda: [psycopg.errors.SerializationFailure(), psycopg.errors.DeadlockDetected()],
    "failover": lambda: [psycopg.errors.ReadOnlySqlTransaction(), psycopg.errors.AdminShutdown()],
    "link": lambda: [psycopg.OperationalError("server closed the connection"), psycopg.InterfaceError("closed")],
    "lock": lambda: [psycopg.errors.LockNotAvailable(), psycopg.errors.TooManyConnections()],
    "busy": lambda: [sqlite_error(sqlite3.SQLITE_BUSY), sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT)],
    "io": lambda: [sqlite_error(sqlite3.SQLITE_IOERR_FSYNC)],
}


@pytest.mark.parametrize("kind", PASSING)
def test_passing_trouble_is_no_outcome(session: Holder, kind: str) -> None:
    """Serialization failures, deadlocks, failovers, dropped links and busy files are tried again inside (A14)."""
    sent = session.send(session.reserve(1))
    left = raise_at_commit(session.ledger, *PASSING[kind]())
    done = session.advance(sent, state=State.SUCCEEDED, result=b"1")
    assert left == []
    assert (done.state, done.version) == (State.SUCCEEDED, sent.version + 1)
    assert session.loaded().operations == (done,)


def test_trouble_that_stays_is_told(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """When the time for trying again is over, the caller gets a typed error, and the ledger goes on."""
    session = start(opener(backend.url, retry_seconds=0.0))
    raise_at_commit(session.ledger, psycopg.errors.SerializationFailure())
    with pytest.raises(LedgerUnavailable, match="40001"):
        session.reserve(1)
    assert session.reserve(1).state is State.READY


def test_doubt_that_stays_is_told_as_doubt(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """A commit whose answer was lost and that could not be read back in time is not called failed."""
    session = start(opener(backend.url, retry_seconds=0.0))
    raise_at_commit(session.ledger, psycopg.OperationalError("server closed the connection"))
    entry = session.reserve_entry(1)
    with pytest.raises(CommitUnknown, match="same write id"):
        session.one(entry)
    assert session.one(entry).took is Took.TOOK


def test_a_bug_is_not_hidden(session: Holder) -> None:
    """An exception that no database raises reaches the caller as it is, and the thread lives on."""
    raise_at_commit(session.ledger, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        session.reserve(1)
    assert session.reserve(1).state is State.READY


def test_nothing_is_held_between_jobs(postgres_url: str, opener: Callable[..., SqlLedger]) -> None:
    """Between jobs no connection is checked out and no transaction is open (A42)."""
    session = start(opener(postgres_url))
    sent = session.send(session.reserve(1))
    assert session.ledger.engine.pool.checkedout() == 0
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        states = admin.execute(
            "SELECT state FROM pg_stat_activity "
            "WHERE application_name = 'agent_runtime' AND datname = current_database()"
        ).fetchall()
    assert states == [("idle",)]
    assert session.loaded().operations == (sent,)


def kill_backends(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as admin:
        found = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'agent_runtime' AND datname = current_database()"
        )
        return len(found.fetchall())


def test_a_connection_that_was_cut_is_made_anew(postgres_url: str, opener: Callable[..., SqlLedger]) -> None:
    """Writes after all our backends were terminated take as if nothing had been (A42)."""
    session = start(opener(postgres_url))
    sent = session.send(session.reserve(1))
    assert kill_backends(postgres_url) == 1
    assert session.advance(sent, state=State.SUCCEEDED).state is State.SUCCEEDED


@pytest.mark.parametrize("moment", ["before_cursor_execute", "commit"])
def test_a_connection_cut_in_a_transaction_writes_once(
    postgres_url: str, opener: Callable[..., SqlLedger], moment: str
) -> None:
    """A backend that is terminated in the middle of a transaction, or at its commit, doubles nothing."""
    session = start(opener(postgres_url))
    made = session.reserve(1)
    cuts = [1]

    def cut(*facts: Any) -> None:
        if cuts and (moment == "commit" or "UPDATE" in facts[2]):
            cuts.pop()
            assert kill_backends(postgres_url) == 1

    event.listen(session.ledger.engine, moment, cut)
    assert session.send(made).version == 2
    assert cuts == []
    assert len(session.ledger.attempts(made.id).result(WAIT)) == 1


def test_a_standby_is_left_for_the_new_primary(postgres_url: str, opener: Callable[..., SqlLedger]) -> None:
    """A server that has become read-only is asked anew over a new connection until one can write."""
    session = start(opener(postgres_url))
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    refusals = []

    def promote(_: object) -> None:
        refusals.append(1)
        set_read_only("off")

    def set_read_only(value: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")

    set_read_only("on")
    kill_backends(postgres_url)
    event.listen(session.ledger.engine, "handle_error", promote)
    assert session.reserve(1).state is State.READY
    assert refusals


def test_a_server_that_stays_read_only_is_named(postgres_url: str, opener: Callable[..., SqlLedger]) -> None:
    """A server that refuses writes to the end is a read-only ledger."""
    ledger = opener(postgres_url, retry_seconds=0.0)
    session = start(ledger)
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    kill_backends(postgres_url)
    with pytest.raises(LedgerReadOnly, match="standby"):
        session.reserve(1)


def on_checkout(ledger: SqlLedger, pragma: str) -> Callable[[], None]:
    def apply(raw: Any, *_: object) -> None:
        raw.execute(f"PRAGMA {pragma}")

    event.listen(ledger.engine, "checkout", apply)
    return lambda: event.remove(ledger.engine, "checkout", apply)


@pytest.fixture
def on_file(tmp_path: Path, opener: Callable[..., SqlLedger]) -> Holder:
    return start(opener(f"sqlite:///{tmp_path}/agent.db", retry_seconds=1.0))


def test_a_full_disk_is_named(on_file: Holder) -> None:
    """A file that cannot grow is LedgerFull; nothing of the entry stands, and with room it takes (A44)."""
    stop = on_checkout(on_file.ledger, "max_page_count = 1")
    entry = on_file.reserve_entry(1, args=bytes(200_000))
    with pytest.raises(LedgerFull, match=r"Nothing was written or sent\. Make room"):
        on_file.one(entry)
    stop()
    on_checkout(on_file.ledger, "max_page_count = 1000000")
    assert on_file.loaded().operations == ()
    assert on_file.one(entry).took is Took.TOOK


def test_a_file_that_cannot_be_written_is_named(on_file: Holder) -> None:
    """A read-only file is LedgerReadOnly for writes and can be read all the same (A44)."""
    made = on_file.reserve(1)
    stop = on_checkout(on_file.ledger, "query_only = 1")
    with pytest.raises(LedgerReadOnly, match="write access"):
        on_file.send(made)
    assert on_file.loaded().operations == (made,)
    stop()
    on_checkout(on_file.ledger, "query_only = 0")


def test_a_damaged_file_is_named(tmp_path: Path, opener: Callable[..., SqlLedger]) -> None:
    """A malformed file is LedgerCorrupt, never an empty ledger (A44)."""
    path = tmp_path / "agent.db"
    first = opener(f"sqlite:///{path}")
    start(first, "orders-db")
    first.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LedgerCorrupt, match="do not delete it"):
        opener(f"sqlite:///{path}").load(name="orders-db", tenant=TENANT).result(WAIT)


def test_errors_chain_to_nothing_that_shows_content(session: Holder) -> None:
    """A typed error carries no driver exception whose text could hold payloads."""
    raise_at_commit(session.ledger, sqlite_error(sqlite3.SQLITE_FULL))
    with pytest.raises(LedgerError) as caught:
        session.reserve(1, args=b"secret payload")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
