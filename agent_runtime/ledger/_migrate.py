"""Brings a database to the schema of this release, or says why it may not be touched."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sqlalchemy import column, inspect, select, table

from agent_runtime.ledger import _schema as t
from agent_runtime.ledger import _words
from agent_runtime.ledger._store import begin_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from agent_runtime.ledger._runner import Runner
    from agent_runtime.ledger._store import Store

_VERSION = table(t.VERSION_TABLE, column("version_num"))
_LOGGERS = (
    "alembic",
    "alembic.runtime.migration",
    "alembic.runtime.environment",
    "alembic.runtime.plugins",
    "alembic.ddl",
)


def ensure_schema(runner: Runner, migrate: Literal["auto", "check"]) -> None:
    """Look at the database, and make or migrate the tables where that is wanted.

    Raises:
        ConfigError: with ``migrate="check"``, a database that is not at this release's schema.
        LedgerCorrupt: tables of these names that are not ours.
        LedgerTooNew: a database that a newer release has changed.
    """
    store = runner.store
    found = runner.transact(lambda conn: _look(conn, store), write=False, patience=store.open_patience)
    if found == t.HEAD:
        return
    if migrate == "check":
        raise _words.not_migrated(store.where, found, t.HEAD)
    runner.transact(lambda conn: _upgrade(conn, store), write=True)


def _look(conn: Connection, store: Store) -> str | None:
    """Return the revision that stands, or None for a database without tables of ours."""
    names = set(inspect(conn).get_table_names())
    if t.VERSION_TABLE not in names:
        foreign = sorted(names.intersection(t.metadata.tables))
        if foreign:
            raise _words.foreign_tables(store.where, foreign)
        return None
    found: str | None = conn.execute(select(_VERSION.c.version_num)).scalar()
    if found is not None and found not in t.REVISIONS:
        raise _words.too_new(store.where, f"schema {found}, this release knows {t.HEAD}")
    if found is not None:
        begin_write(conn, store)
    return found


def _upgrade(conn: Connection, store: Store) -> None:
    store.migration_lock(conn)
    if _look(conn, store) == t.HEAD:  # another process was first
        return
    with _quiet():
        # Loaded here: it takes longer than opening a ledger that needs no migration.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
        config.attributes["connection"] = conn
        command.upgrade(config, "head")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Alembic's own log lines of this thread out of the application's log; its settings stay as they are."""
    here = threading.get_ident()

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != here

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(elsewhere)
