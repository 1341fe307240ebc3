"""What differs between the databases: the seam between the ledger's statements and a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sqlalchemy import select

from agent_runtime.errors import LedgerTooNew
from agent_runtime.ledger import _schema as t

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Engine


class Store(Protocol):
    """One database: how to begin, lock and read its clock. Used by the ledger thread only."""

    engine: Engine
    where: str
    row_locks: bool
    """Whether writers run beside each other, so that a row which decides something must be locked."""

    def connect(self, *, write: bool) -> AbstractContextManager[Connection]:
        """Give a connection in a transaction that the caller commits; leaving the block ends both."""
        ...

    def committed(self) -> None:
        """Look, after each commit, whether the database is still the one that was opened."""
        ...

    def now(self, conn: Connection) -> float:
        """Read the database's clock (UTC epoch seconds)."""
        ...

    def lock_sessions(self, conn: Connection, ids: Sequence[str]) -> None:
        """Keep take-overs of these sessions out until the transaction ends."""
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


def check_writer(conn: Connection, where: str) -> None:
    """Raise `LedgerTooNew` if the ledger was told that writers of this generation must stop."""
    least = conn.execute(select(t.meta.c.value).where(t.meta.c.name == "min_writer")).scalar()
    if least is not None and least > t.WRITER:
        raise too_new(where, f"it asks for writers of generation {least}, this release is generation {t.WRITER}")


def too_new(where: str, why: str) -> LedgerTooNew:
    """Return the error of a ledger that this release must not touch."""
    return LedgerTooNew(
        f"{where} was changed by a newer release of this package ({why}). Nothing was written or sent. Upgrade the package "
        "here, or keep using the release that changed the ledger."
    )
