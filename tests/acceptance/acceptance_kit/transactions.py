"""A ledger's transactions seen and held from outside, by triggers in the database: SQLite and Postgres alike."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from agent_runtime.ledger import open_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGINS_WITHIN = 20.0
LOOKS_EVERY = 0.02
HELD_FOR = 0.4
"""Seconds for which a SQLite file is locked before its writer counts as held: no other write takes as long."""
UNLOCKED_WITHIN = 15.0
ADVISORY = 7041

Table = Literal["operations", "events", "notices"]


class Held:
    """A transaction that stops after it has written a row and before it commits."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def wait(self) -> None:
        """Wait until a transaction stands there."""
        deadline = time.monotonic() + BEGINS_WITHIN
        while not self._store.is_held():
            assert time.monotonic() < deadline, "no transaction came to where it is held"
            time.sleep(LOOKS_EVERY)


@contextmanager
def held(url: str, table: Table, *, on: str = "INSERT", when: str = "1 = 1") -> Iterator[Held]:
    """Stop the next transaction that writes such a row, until the block ends; on SQLite its process has to be killed.

    Args:
        url: of the ledger.
        table: without its prefix.
        on: ``INSERT`` or ``UPDATE``.
        when: a condition over ``NEW`` and ``OLD``.
    """
    with _store(url) as store:
        store.hold(f"AFTER {on} ON agent_runtime_{table} FOR EACH ROW WHEN ({when})")
        yield Held(store)
        store.release()


@contextmanager
def counted_ends(url: str) -> Iterator[Any]:
    """Count in the database how often operations came to an end; yields a function that returns that, by label."""
    with _store(url) as store:
        store.count(
            "AFTER UPDATE ON agent_runtime_operations FOR EACH ROW WHEN (NEW.state <> OLD.state AND NEW.state "
            "IN ('succeeded', 'failed', 'cancelled'))"
        )
        yield lambda: Counter(row[0] for row in store.rows("SELECT label FROM ends"))


@contextmanager
def _store(url: str) -> Iterator[Any]:
    open_ledger(url).close()  # its tables are there
    kind = _Sqlite if url.startswith("sqlite") else _Postgres
    with closing(kind(url)) as store:
        yield store


class _Sqlite:
    """Held by a trigger that counts for minutes; a look at the lock says that somebody is in it."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///")

    def hold(self, on: str) -> None:
        forever = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 4000000000)"
        self._run(f"CREATE VIEW for_minutes AS {forever} SELECT count(*) AS c FROM n")
        self._run(f"CREATE TRIGGER hold {on} BEGIN SELECT c FROM for_minutes; END")

    def is_held(self) -> bool:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=HELD_FOR)) as conn:
            try:
                conn.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            conn.execute("ROLLBACK")
            return False

    def release(self) -> None:
        self._run("DROP TRIGGER hold")
        self._run("DROP VIEW for_minutes")

    def count(self, on: str) -> None:
        self._run("CREATE TABLE ends (label TEXT)")
        self._run(f"CREATE TRIGGER count_ends {on} BEGIN INSERT INTO ends VALUES (NEW.label); END")

    def rows(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=UNLOCKED_WITHIN)) as conn:
            return conn.execute(statement).fetchall()

    def _run(self, statement: str) -> None:
        self.rows(statement)

    def close(self) -> None:
        """There is nothing to free."""


class _Postgres:
    """Held by a trigger that waits for a lock which this process has."""

    def __init__(self, url: str) -> None:
        self._conn = psycopg.connect(url, autocommit=True)

    def hold(self, on: str) -> None:
        self._conn.execute("SELECT pg_advisory_lock(%s)", [ADVISORY])
        wait = f"BEGIN PERFORM pg_advisory_xact_lock({ADVISORY}); RETURN NULL; END"
        self._conn.execute(f"CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS '{wait}'")
        self._conn.execute(f"CREATE TRIGGER hold {on} EXECUTE FUNCTION hold()")

    def is_held(self) -> bool:
        return bool(
            self.rows(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        )

    def release(self) -> None:
        self._conn.execute("SELECT pg_advisory_unlock(%s)", [ADVISORY])
        self._conn.execute("DROP FUNCTION hold CASCADE")

    def count(self, on: str) -> None:
        self._conn.execute("CREATE TABLE ends (label TEXT)")
        note = "BEGIN INSERT INTO ends VALUES (NEW.label); RETURN NULL; END"
        self._conn.execute(f"CREATE FUNCTION count_ends() RETURNS trigger LANGUAGE plpgsql AS '{note}'")
        self._conn.execute(f"CREATE TRIGGER count_ends {on} EXECUTE FUNCTION count_ends()")

    def rows(self, statement: str) -> list[Any]:
        return self._conn.execute(statement).fetchall()

    def close(self) -> None:
        self._conn.close()
