"""Postgres over psycopg 3: many machines, each with one connection that is idle between jobs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Double, cast, create_engine, event, func, text
from sqlalchemy.pool import QueuePool

from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL

    from agent_runtime.ledger._host import LedgerClock

# A lost worker must not keep rows locked: its transaction ends by itself, and a dead link is noticed within the time
# for which the others try again. Set per connection, since poolers refuse settings in the startup packet.
_SETTINGS = (
    "SET synchronous_commit = on; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '15s'; "
    "SET default_transaction_isolation = 'read committed'"
)
_LINK = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "application_name": "agent_runtime",
    "client_encoding": "utf8",  # else a database of encoding SQL_ASCII hands text over as bytes
}
_SECRET = ("password", "sslpassword")
_CLOCK = cast(func.extract("epoch", func.clock_timestamp()), Double)
_MIGRATION_LOCK = 0x61675F72756E74
"""Key of the advisory lock under which the schema is changed."""


class PostgresStore:
    """One Postgres database.

    Args:
        url: with the driver psycopg; options of libpq in its query stand above the ledger's own.
        clock: stands for the database's clock if it is given.
    """

    in_memory = False
    row_locks = True
    open_patience = 0.0  # a wrong host or password should be told at once

    def __init__(self, url: URL, *, clock: LedgerClock | None) -> None:
        shown = {name: value for name, value in url.query.items() if name in {"host", "port", "service"}}
        plain = url.set(drivername="postgresql", query=shown)
        self.where = f"the ledger {plain.render_as_string(hide_password=True)}"
        given = [url.password, *(value for name in _SECRET for value in url.normalized_query.get(name, ()))]
        self.secrets = tuple(secret for secret in given if secret)
        self._clock = clock
        self._version = "not connected yet"
        self._raw: Any = None
        try:
            self.engine = create_engine(
                url.set(query=_LINK | dict(url.query)),
                poolclass=QueuePool,
                pool_size=1,
                max_overflow=0,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED",
                hide_parameters=True,
            )
        except ImportError:
            self.engine = None  # type: ignore[assignment]
        if self.engine is None:
            raise ConfigError(
                "psycopg 3 is installed but finds no libpq. Install the extra, which brings one: "
                "pip install 'agent-runtime-ledger[postgres]'"
            )
        event.listen(self.engine, "connect", self._connected)

    def _connected(self, raw: Any, _record: object) -> None:
        self._raw = raw
        number = raw.info.server_version
        self._version = f"{number // 10000}.{number % 10000}"
        raw.execute(_SETTINGS)
        raw.commit()

    @contextmanager
    def connect(self, *, write: bool) -> Iterator[Connection]:  # noqa: ARG002  what locks is said in the statements
        """Give a connection in a READ COMMITTED transaction; it is back in the pool when the block ends."""
        with self.engine.connect() as conn:
            yield conn

    def committed(self) -> None:
        """Do nothing: a server does not lose its files by name."""

    def clock(self) -> ColumnElement[float] | float:
        """Return the database's clock: now, not when the transaction began."""
        if self._clock is not None:
            return self._clock.wall()
        return _CLOCK

    def snapshot(self, conn: Connection) -> None:
        """Let all reads of this transaction see one moment."""
        conn.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))

    def migration_lock(self, conn: Connection) -> None:
        """Wait for the advisory lock under which one process at a time changes the schema."""
        conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})

    def describe(self) -> dict[str, str]:
        """Name what is in force."""
        return {
            "store": "postgres",
            "database": self.where.removeprefix("the ledger "),
            "server": self._version,
            "isolation": "read committed",
            "synchronous_commit": "on",
            "clock": "the server's" if self._clock is None else "given",
        }

    def drop_connections(self) -> None:
        """Close the connection; the next transaction makes a new one, which may reach another server."""
        self.engine.dispose()

    def close(self) -> None:
        """Close the connection."""
        self.engine.dispose()

    def abandon(self) -> None:
        """In a forked child: keep the parent's connection from ever being closed here, which would end it for both."""
        _INHERITED.append((self._raw, self.engine))


_INHERITED: list[object] = []
