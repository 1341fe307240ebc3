"""Small pieces that statements are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

if TYPE_CHECKING:
    from sqlalchemy import Table
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

    from agent_runtime._model import WriteOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSeen:
    """What the fence check read of a session."""

    fence: int
    state: str
    tenant: str


class NotTaken(Exception):
    """Undoes what an entry has written so far; carries what becomes of it."""

    def __init__(self, outcome: WriteOutcome) -> None:
        super().__init__(outcome.took)
        self.outcome = outcome


def insert(dialect: str, table: Table) -> PostgresInsert | SqliteInsert:
    """Return an INSERT that knows ON CONFLICT, in the dialect of this name."""
    if dialect == "postgresql":
        return postgres_insert(table)
    return sqlite_insert(table)
