"""SQLite: one file, one writer at a time, the standard library's module for everything that touches the file."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import create_engine
from sqlalchemy.pool import QueuePool

from agent_runtime.errors import ConfigError
from agent_runtime.ledger import _words
from agent_runtime.ledger._filelock import FileLock
from agent_runtime.ledger._schema import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection

    from agent_runtime.ledger._host import LedgerClock

BUSY_TIMEOUT = 0.1
"""Seconds that SQLite itself waits for a lock; waiting longer is done in Python, where it can be interrupted."""

_LEAST = (3, 35, 0)  # RETURNING


def can_corrupt_wal(version: tuple[int, int, int]) -> bool:
    """Tell whether a SQLite release has the WAL-reset fault (https://www.sqlite.org/wal.html).

    In releases 3.7.0 to 3.51.2 a connection that checkpoints while another one commits can damage the file. Fixed in
    3.51.3 and, for users of older series, in 3.50.7 and 3.44.6.
    """
    major, minor, patch = version
    if (major, minor) == (3, 50):
        return patch < 7
    if (major, minor) == (3, 44):
        return patch < 6
    return (3, 7, 0) <= version < (3, 51, 3)


class SqliteStore:
    """One SQLite file.

    Args:
        path: the file; None for a database in memory that ends with its process.
        clock: stands for the database's clock.
        create: make the file if there is none.
        patience: seconds to wait for a lock of another process before one try counts as failed.
        version: SQLite release to go by; for tests.
        locks_work: asks whether the file's directory has locks; for tests.
    """

    row_locks = False
    open_patience: float | None = None
    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        path: Path | None,
        *,
        clock: LedgerClock,
        create: bool,
        patience: float,
        version: tuple[int, int, int] = sqlite3.sqlite_version_info,
        locks_work: Callable[[FileLock], bool] = FileLock.works,
    ) -> None:
        if sqlite3.sqlite_version_info < _LEAST:
            raise ConfigError("SQLite is too old: the ledger needs release 3.35 or newer.")
        self.path = path
        self.in_memory = path is None
        self.where = f"the ledger {path}" if path else "the ledger in memory"
        self._clock = clock
        self._patience = patience
        self._affected = can_corrupt_wal(version)
        self._raw: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._wal: int | None = None
        self._mode = "memory"
        self._lock: FileLock | None = None
        if path is not None:
            self._prepare(path, create=create, locks_work=locks_work)
        self.engine = create_engine(
            "sqlite+pysqlite://",
            creator=self._open,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
        )

    def _prepare(self, path: Path, *, create: bool, locks_work: Callable[[FileLock], bool]) -> None:
        if not path.parent.is_dir():
            raise _words.cannot_open(self.where, f"there is no directory {path.parent}")
        if not create and not path.exists():
            raise _words.missing(path)
        # A lock for all releases of SQLite: it also orders the processes that open a new file at once, where SQLite
        # answers "database is locked" without waiting. Only affected releases cannot do without it.
        lock = FileLock(path.with_name(f"{path.name}-lock"))
        if locks_work(lock):
            self._lock = lock

    @contextmanager
    def connect(self, *, write: bool) -> Iterator[Connection]:
        """Give a connection in a transaction: ``BEGIN IMMEDIATE`` under the side-file lock, or one that only reads."""
        with ExitStack() as stack:
            if write and self._lock is not None:
                # Until the connection is back in the pool: an automatic checkpoint is part of COMMIT.
                stack.enter_context(self._lock.held(self._patience))
            self.check_file()
            conn = stack.enter_context(self.engine.connect())
            conn.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
            yield conn

    def committed(self) -> None:
        """Raise `LedgerLost` if what was committed went to a file that has lost its name."""
        self.check_file()

    def check_file(self) -> None:
        """Raise `LedgerLost` if the file or its -wal is no longer the one that was opened."""
        if self._identity is None or self.path is None:
            return
        try:
            found = os.stat(self.path)  # noqa: PTH116  at each commit: a third of the time
            wal = os.stat(f"{self.path}-wal").st_ino if self._wal is not None else None  # noqa: PTH116
        except FileNotFoundError:
            raise _words.lost(self.where) from None
        if (found.st_dev, found.st_ino) != self._identity or wal != self._wal:
            raise _words.lost(self.where)

    def clock(self) -> float:
        """Read the clock that stands for the database's; SQLite's own is the machine's."""
        return self._clock.wall()

    def snapshot(self, conn: Connection) -> None:
        """Do nothing: a transaction that reads sees one moment."""

    def migration_lock(self, conn: Connection) -> None:
        """Do nothing: there is one writer at a time."""

    def describe(self) -> dict[str, str]:
        """Name what is in force."""
        facts = {
            "store": "sqlite",
            "file": str(self.path) if self.path else "(memory: nothing outlives the process)",
            "sqlite": sqlite3.sqlite_version,
            "journal_mode": self._mode,
            "synchronous": "full" if self._mode == "wal" else "extra",
            "wal_reset_fault": "release is affected" if self._affected else "release is not affected",
            "side_file_lock": str(self._lock.path) if self._lock else "none",
            "busy_timeout_ms": str(int(BUSY_TIMEOUT * 1000)),
        }
        if sys.platform == "darwin":
            facts["fullfsync"] = "on"
        return facts

    def drop_connections(self) -> None:
        """Close the connection under the lock: the last one of a file checkpoints as it closes."""
        with ExitStack() as stack:
            if self._lock is not None:
                stack.enter_context(self._lock.held(self._patience))
            self.engine.dispose()
            self._raw = None
            self._wal = None

    def close(self) -> None:
        """Close the connection and the side file."""
        self.drop_connections()
        if self._lock is not None:
            self._lock.forget()

    def abandon(self) -> None:
        """In a forked child: keep the parent's connection from ever being closed here, which would unlock its file."""
        _INHERITED.append((self._raw, self.engine))
        if self._lock is not None:
            self._lock.forget()

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._raw = raw
            return raw
        with ExitStack() as stack:
            if self._lock is not None:
                stack.enter_context(self._lock.held(self._patience))
            # Once it has been opened, the file is never made anew: an empty one would read as "no sessions".
            mode = "rwc" if self._identity is None else "rw"
            raw = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode={mode}",
                uri=True,
                timeout=BUSY_TIMEOUT,
                isolation_level=None,  # the driver begins nothing by itself
                check_same_thread=False,  # a ledger thread that died is replaced
            )
            try:
                self._set_up(raw)
            except BaseException:
                raw.close()
                raise
        self._raw = raw
        return raw

    def _set_up(self, raw: sqlite3.Connection) -> None:
        assert self.path is not None
        foreign = _pragma(raw, "application_id") != APPLICATION_ID
        if foreign and raw.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise _words.foreign_file(self.where)
        want = "delete" if self._affected and self._lock is None else "wal"
        mode = str(_pragma(raw, "journal_mode")).lower()
        if mode != want:
            mode = str(raw.execute(f"PRAGMA journal_mode={want}").fetchone()[0]).lower()
        raw.execute(f"PRAGMA synchronous={'FULL' if mode == 'wal' else 'EXTRA'}")
        if sys.platform == "darwin":  # fsync there does not reach the disk
            raw.execute("PRAGMA fullfsync=1")
            raw.execute("PRAGMA checkpoint_fullfsync=1")
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the first read makes the -wal
        self._mode = mode
        self._note_files(wal=mode == "wal")

    def _note_files(self, *, wal: bool) -> None:
        found = os.stat(self.path)  # type: ignore[arg-type]  # noqa: PTH116
        identity = (found.st_dev, found.st_ino)
        if self._identity is not None and identity != self._identity:
            raise _words.lost(self.where)
        self._identity = identity
        self._wal = os.stat(f"{self.path}-wal").st_ino if wal else None  # noqa: PTH116


_INHERITED: list[object] = []


def _pragma(raw: sqlite3.Connection, name: str) -> Any:
    return raw.execute(f"PRAGMA {name}").fetchone()[0]
