"""What differs between the databases: the seam between the ledger's statements and a store."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import select

from agent_runtime.ledger import _schema as t
from agent_runtime.ledger import _words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Connection, Engine, Select


class Store(Protocol):
    """One database: how to begin, lock and read its clock. Used by the ledger thread only.

    Attributes:
        where: names the database in messages.
        secrets: what messages must not show.
        in_memory: it ends with its process.
        row_locks: writers run beside each other, so that a row which decides something must be locked.
        open_patience: seconds for which opening rides out trouble; None for as long as everything else does.
    """

    engine: Engine
    where: str

    @property
    def secrets(self) -> Sequence[str]: ...

    @property
    def in_memory(self) -> bool: ...

    @property
    def row_locks(self) -> bool: ...

    @property
    def open_patience(self) -> float | None: ...

    def connect(self, *, write: bool) -> AbstractContextManager[Connection]:
        """Give a connection in a transaction that the caller commits; leaving the block ends both."""
        ...

    def committed(self) -> None:
        """Look, after each commit, whether the database is still the one that was opened."""
        ...

    def clock(self) -> ColumnElement[float] | float:
        """Return the database's clock (UTC epoch seconds): a reading, or what to select for one."""
        ...

    def snapshot(self, conn: Connection) -> None:
        """Let all reads of this transaction see one moment."""
        ...

    def migration_lock(self, conn: Connection) -> None:
        """Let one process at a time change the schema."""
        ...

    def describe(self) -> dict[str, str]:
        """Name what is in force: versions, modes, locks."""
        ...

    def drop_connections(self) -> None:
        """Close the connections; the next transaction makes new ones."""
        ...

    def close(self) -> None:
        """Close the connections for good."""
        ...

    def abandon(self) -> None:
        """In a forked child: leave the parent's connections alone for good."""
        ...


_LEAST = select(t.meta.c.value).where(t.meta.c.name == "min_writer")


@cache
def _with_least(clock: ColumnElement[float]) -> Select[Any]:
    return select(_LEAST.scalar_subquery(), clock)


def read_clock(conn: Connection, store: Store) -> float:
    """Read the database's clock."""
    clock = store.clock()
    return clock if isinstance(clock, float) else float(conn.execute(select(clock)).scalar_one())


def begin_write(conn: Connection, store: Store) -> float:
    """Read the database's clock, and whether writers of this generation may still write.

    Raises:
        LedgerTooNew: a newer release has put them off.
    """
    clock = store.clock()
    if isinstance(clock, float):
        asked, now = conn.execute(_LEAST).scalar(), clock
    else:
        row: Any = conn.execute(_with_least(clock)).one()
        asked, now = row[0], row[1]
    if asked is not None and asked > t.WRITER:
        why = f"it asks for writers of generation {asked}, this release is generation {t.WRITER}"
        raise _words.too_new(store.where, why)
    return float(now)
