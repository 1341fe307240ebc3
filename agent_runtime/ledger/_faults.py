"""What an exception of a driver means: try again, the entry's own fault, or an error that the caller must see."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, StatementError

from agent_runtime.errors import LedgerError
from agent_runtime.ledger import _words
from agent_runtime.ledger._filelock import LockBusy

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def refusal(exc: Exception) -> str | None:
    """Return why the database cannot hold an entry, or None if the exception says nothing against the entry itself.

    The text is short and quotes no content.
    """
    orig = _driver_error(exc)
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


def fault_of(exc: BaseException, where: str, secrets: Sequence[str] = ()) -> Fault | None:
    """Return what an exception means, or None if it is none that a database raises."""
    orig = _driver_error(exc)
    if isinstance(orig, LedgerError):
        return Fault(orig)
    if isinstance(orig, LockBusy):
        return Fault(_words.busy(where), again=True)
    if isinstance(orig, sqlite3.Error):
        return _sqlite_fault(orig, where)
    if hasattr(orig, "sqlstate"):
        text = _first_line(orig)
        for secret in secrets:
            text = text.replace(secret, "***")
        dropped = isinstance(exc, DBAPIError) and exc.connection_invalidated
        return _postgres_fault(orig, where, text, dropped=dropped)
    if isinstance(orig, ConnectionError | TimeoutError):
        error = _words.unreachable(where, type(orig).__name__)
        return Fault(error, again=True, reconnect=True, doubtful=True)
    if isinstance(orig, OSError):
        return Fault(file_error(orig, where))
    return None


def file_error(exc: OSError, where: str) -> LedgerError:
    """Return what a failed system call on the file or its directory means."""
    if exc.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return _words.read_only(where, _words.FILE_RIGHTS)
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _words.full(where)
    return _words.cannot_open(where, errno.errorcode.get(exc.errno or 0, "error"))


def _driver_error(exc: BaseException) -> BaseException:
    if isinstance(exc, StatementError) and exc.orig is not None:
        return exc.orig
    return exc


def _first_line(exc: BaseException) -> str:
    return next(iter(str(exc).strip().splitlines()), type(exc).__name__)


_SQLITE_AGAIN = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA}


def _sqlite_fault(exc: sqlite3.Error, where: str) -> Fault | None:
    code = getattr(exc, "sqlite_errorcode", None)
    if code is None:
        return None
    if code == sqlite3.SQLITE_READONLY_DBMOVED:
        return Fault(_words.lost(where))
    match code & 0xFF:
        case primary if primary in _SQLITE_AGAIN:
            return Fault(_words.busy(where), again=True)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return Fault(_words.read_only(where, _words.FILE_RIGHTS))
        case sqlite3.SQLITE_FULL:
            return Fault(_words.full(where))
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return Fault(_words.corrupt(where, str(exc)), reconnect=True)
        case sqlite3.SQLITE_CANTOPEN:
            return Fault(_words.cannot_open(where, str(exc)), reconnect=True)
        case sqlite3.SQLITE_IOERR:
            name = getattr(exc, "sqlite_errorname", "SQLITE_IOERR")
            return Fault(_words.disk_error(where, name), reconnect=True, doubtful=True)
        case _:
            return None


# Passing trouble by SQLSTATE; a whole class by its first two characters.
_AGAIN = {"40001", "40P01", "55P03", "57014"}
_RECONNECT = {"25P03", "57P01", "57P02", "57P03", "57P05", "53300", "08"}


def _postgres_fault(exc: BaseException, where: str, text: str, *, dropped: bool) -> Fault | None:
    state: str | None = getattr(exc, "sqlstate", None)
    if state is None:
        if type(exc).__name__ not in {"OperationalError", "InterfaceError", "ConnectionTimeout"}:
            return None
        return Fault(_words.unreachable(where, text), again=True, reconnect=True, doubtful=True)
    if state in _AGAIN:
        return Fault(_words.unreachable(where, f"it answered {state} each time"), again=True)
    if state == "25006":  # after a failover the name leads to the new primary a moment later
        error: LedgerError = _words.read_only(where, "The server is a standby, or is set to read only.")
        return Fault(error, again=True, reconnect=True)
    if state in _RECONNECT or state[:2] in _RECONNECT or dropped:
        error = _words.unreachable(where, f"it answered {state}")
        return Fault(error, again=True, reconnect=True, doubtful=True)
    match state:
        case "53100":
            return Fault(_words.full(where))
        case "42501":
            return Fault(_words.read_only(where, f"The user lacks a right that the ledger needs ({text})."))
        case "42P01" | "42703" | "XX001" | "XX002":
            return Fault(_words.corrupt(where, text))
        case "28000" | "28P01" | "3D000":
            return Fault(_words.unreachable(where, text))
        case _:
            return None
