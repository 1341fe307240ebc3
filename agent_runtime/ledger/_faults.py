"""What an exception of a driver means: try again, the entry's own fault, or an error that the caller must see."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError, StatementError

from agent_runtime.errors import (
    LedgerCorrupt,
    LedgerError,
    LedgerFull,
    LedgerLost,
    LedgerReadOnly,
    LedgerUnavailable,
)
from agent_runtime.ledger._filelock import LockBusy


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do about an exception.

    Attributes:
        error: what the caller gets if it comes to that.
        again: the same transaction may work a moment later.
        reconnect: only over a new connection.
        doubtful: raised by a COMMIT, it leaves open whether the commit stands.
    """

    error: LedgerError
    again: bool = False
    reconnect: bool = False
    doubtful: bool = False


def unwrapped(exc: BaseException) -> BaseException:
    """Return the driver's own exception."""
    if isinstance(exc, StatementError) and exc.orig is not None:
        return exc.orig
    return exc


def refusal(exc: Exception) -> str | None:
    """Return why the database cannot hold an entry, or None if the exception says nothing against the entry itself.

    The text is short and quotes no content.
    """
    orig = unwrapped(exc)
    if isinstance(orig, UnicodeError):
        return "a text of it holds what UTF-8 cannot carry, such as half of a surrogate pair"
    if isinstance(orig, OverflowError):
        return "a number of it has more than 64 bits"
    kind = type(orig).__name__
    state = getattr(orig, "sqlstate", None)
    if isinstance(state, str):
        # 22: data; 23: a constraint; 54: a limit of the program, for example too long for an index
        return f"{kind} ({state})" if state[:2] in {"22", "23", "54"} else None
    if kind in {"DataError", "IntegrityError"}:
        return _first_line(orig)
    if kind in {"ProgrammingError", "InterfaceError"} and ("binding" in str(orig) or "adapt" in str(orig)):
        return _first_line(orig)
    return kind if isinstance(orig, TypeError | ValueError) else None


def fault_of(exc: BaseException, where: str) -> Fault | None:
    """Return what an exception means, or None if it is none that a database raises."""
    orig = unwrapped(exc)
    if isinstance(orig, LedgerError):
        return Fault(orig)
    if isinstance(orig, LockBusy):
        return Fault(_busy(where), again=True)
    if isinstance(orig, sqlite3.Error):
        return _sqlite_fault(orig, where)
    if hasattr(orig, "sqlstate"):
        return _postgres_fault(orig, where, dropped=isinstance(exc, DBAPIError) and exc.connection_invalidated)
    if isinstance(orig, OSError):
        return Fault(file_error(orig, where))
    return None


def _busy(where: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{where} is busy: another process holds its write lock. Nothing was written. Find out who keeps a transaction "
        "open on the file, then try again."
    )


def _sqlite_fault(exc: sqlite3.Error, where: str) -> Fault | None:
    code = getattr(exc, "sqlite_errorcode", None)
    if code is None:
        closed = isinstance(exc, sqlite3.ProgrammingError) and "closed" in str(exc)
        return Fault(_busy(where), again=True, reconnect=True) if closed else None
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return Fault(lost(where))
    primary = code & 0xFF
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA}:
        return Fault(_busy(where), again=True)
    if primary in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return Fault(_read_only(where))
    if primary == sqlite3.SQLITE_FULL:
        return Fault(_full(where))
    if primary in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Fault(_corrupt(where, str(exc)), reconnect=True)
    if primary == sqlite3.SQLITE_CANTOPEN:
        return Fault(
            LedgerUnavailable(
                f"{where} cannot be opened. Nothing was written. Check that its directory stands and that this user may "
                "read and write in it."
            ),
            reconnect=True,
        )
    if primary == sqlite3.SQLITE_IOERR:
        name = getattr(exc, "sqlite_errorname", "SQLITE_IOERR")
        return Fault(
            LedgerUnavailable(
                f"{where}: the file system reported an error ({name}). Nothing is taken as written. Check the disk and "
                "the mount, then open the ledger again."
            ),
            reconnect=True,
            doubtful=True,
        )
    return None


# Passing trouble by SQLSTATE; whole classes by their first two characters.
_AGAIN = {"40001", "40P01", "55P03", "57014"}
_RECONNECT = {"25006", "25P03", "57P01", "57P02", "57P03", "57P05", "53300", "08"}


def _postgres_fault(exc: BaseException, where: str, *, dropped: bool) -> Fault | None:
    state: str | None = getattr(exc, "sqlstate", None)
    if state is None:
        if type(exc).__name__ not in {"OperationalError", "InterfaceError", "ConnectionTimeout"}:
            return None
        return Fault(unreachable(where, str(exc)), again=True, reconnect=True, doubtful=True)
    if state in _AGAIN:
        return Fault(unreachable(where, f"it answered {state} each time"), again=True)
    if state in _RECONNECT or state[:2] in _RECONNECT or dropped:
        return Fault(unreachable(where, f"it answered {state}"), again=True, reconnect=True, doubtful=state[:2] == "08")
    return _postgres_end(state, exc, where)


def _postgres_end(state: str, exc: BaseException, where: str) -> Fault | None:
    if state == "53100":
        return Fault(_full(where))
    if state in {"XX001", "XX002"}:
        return Fault(_corrupt(where, state))
    if state == "42501":
        return Fault(
            LedgerReadOnly(
                f"{where}: this user lacks a right that the ledger needs ({_first_line(exc)}). Nothing was written. Grant "
                "it, or connect as a user who has it."
            )
        )
    if state in {"42P01", "42703"}:
        return Fault(_corrupt(where, _first_line(exc)))
    if state in {"28000", "28P01", "3D000"}:
        return Fault(unreachable(where, _first_line(exc)))
    return None


def unreachable(where: str, why: str) -> LedgerUnavailable:
    """Return the error of a database that cannot be reached."""
    return LedgerUnavailable(
        f"{where} cannot be reached: {why.strip().splitlines()[0] if why.strip() else 'no reason given'}. Nothing is taken "
        "as written. Check the server, the network and the URL, then try again."
    )


def file_error(exc: OSError, where: str) -> LedgerError:
    """Return what a failed system call on the file or its directory means."""
    if exc.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return _read_only(where)
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _full(where)
    return LedgerUnavailable(
        f"{where} cannot be opened ({errno.errorcode.get(exc.errno or 0, 'error')}). Nothing was written. Check that its "
        "directory stands and that this user may read and write in it."
    )


def lost(where: str) -> LedgerLost:
    """Return the error of a file that is no longer the one that was opened."""
    return LedgerLost(
        f"{where} was removed or replaced while it was in use. What was written last may be gone with the old file. Stop "
        "all processes that use it, put the right file back with its -wal beside it, and open the ledger again."
    )


def _read_only(where: str) -> LedgerReadOnly:
    return LedgerReadOnly(
        f"{where} cannot be written. Nothing was written or sent. This user needs write access to the file and to its "
        "directory, where SQLite keeps the -wal, -shm and -lock files."
    )


def _full(where: str) -> LedgerFull:
    return LedgerFull(f"{where} has no room left. Nothing was written or sent. Make room, then try again.")


def _corrupt(where: str, detail: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"{where} is damaged or is no ledger ({detail}). Nothing was written. Check the path; if it is the ledger, restore "
        "it from a backup, and do not delete it: sessions in it may have effects under way."
    )


def _first_line(exc: Any) -> str:
    text = str(exc).strip()
    return text.splitlines()[0] if text else type(exc).__name__
