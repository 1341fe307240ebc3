"""The ledger's errors in words: what happened, what did not, what to do next. No text holds a password."""

from __future__ import annotations

from agent_runtime.errors import (
    CommitUnknown,
    ConfigError,
    EntryRefused,
    LedgerCorrupt,
    LedgerError,
    LedgerFull,
    LedgerInherited,
    LedgerLost,
    LedgerReadOnly,
    LedgerTooNew,
    LedgerUnavailable,
)


def busy(where: str) -> LedgerUnavailable:
    """Another process keeps the file's write lock."""
    return LedgerUnavailable(
        f"{where} is busy: another process holds its write lock. Nothing was written. Find out who keeps a transaction "
        "open on the file, then try again."
    )


def unreachable(where: str, why: str) -> LedgerUnavailable:
    """The database cannot be reached."""
    reason = next(iter(why.strip().splitlines()), "no reason given").rstrip(".")
    return LedgerUnavailable(
        f"{where} cannot be reached: {reason}. Nothing is taken as written. Check the server, the network and the URL, "
        "then try again."
    )


def cannot_open(where: str, why: str) -> LedgerUnavailable:
    """The file cannot be opened."""
    return LedgerUnavailable(
        f"{where} cannot be opened ({why}). Nothing was written. Check that its directory stands and that this user "
        "may read and write in it."
    )


def missing(path: object) -> LedgerUnavailable:
    """There is no file, and none is to be made."""
    return LedgerUnavailable(f"There is no ledger {path}. Nothing was written. Check the URL.")


def disk_error(where: str, name: str) -> LedgerUnavailable:
    """The file system reported an error."""
    return LedgerUnavailable(
        f"{where}: the file system reported an error ({name}). Nothing is taken as written. Check the disk and the "
        "mount, then open the ledger again."
    )


def closed(where: str) -> LedgerUnavailable:
    """The ledger was closed by its user."""
    return LedgerUnavailable(f"{where} was closed. Nothing was written or sent. Open it again.")


def lost(where: str) -> LedgerLost:
    """The file is no longer the one that was opened."""
    return LedgerLost(
        f"{where} was removed or replaced while it was in use. What was written last may be gone with the old file. "
        "Stop all processes that use it, put the right file back with its -wal beside it, and open the ledger again."
    )


def read_only(where: str, why: str) -> LedgerReadOnly:
    """The database cannot be written."""
    return LedgerReadOnly(f"{where} cannot be written. Nothing was written or sent. {why}")


FILE_RIGHTS = (
    "This user needs write access to the file and to its directory, where SQLite keeps the -wal, -shm and -lock files."
)


def full(where: str) -> LedgerFull:
    """There is no room left."""
    return LedgerFull(f"{where} has no room left. Nothing was written or sent. Make room, then try again.")


def corrupt(where: str, detail: str) -> LedgerCorrupt:
    """The database is damaged, or is no ledger."""
    return LedgerCorrupt(
        f"{where} is damaged or is no ledger ({detail}). Nothing was written. Check the path; if it is the ledger, "
        "restore it from a backup, and do not delete it: sessions in it may have effects under way."
    )


def foreign_file(where: str) -> LedgerCorrupt:
    """The file is a SQLite database of something else."""
    return LedgerCorrupt(
        f"{where} is a SQLite database of something else, not a ledger of this package. Nothing was written. Check the "
        "URL; a ledger needs a file of its own."
    )


def foreign_tables(where: str, names: list[str]) -> LedgerCorrupt:
    """The database has tables of our names that are not ours."""
    return LedgerCorrupt(
        f"{where} has tables that look like a ledger's and are not ({', '.join(names)}). Nothing was written. Use "
        "another database or schema for the ledger."
    )


def too_new(where: str, why: str) -> LedgerTooNew:
    """A newer release has changed the ledger."""
    return LedgerTooNew(
        f"{where} was changed by a newer release of this package ({why}). Nothing was written or sent. Upgrade the "
        "package here, or keep using the release that changed the ledger."
    )


def not_migrated(where: str, found: str | None, head: str) -> ConfigError:
    """The schema is not the one that is needed, and is not to be changed."""
    stands = "holds no tables yet" if found is None else f"is at schema {found}"
    return ConfigError(
        f'{where} {stands}, this release needs schema {head}. Nothing was changed. Open it once with migrate="auto".'
    )


def refused(where: str, why: str) -> EntryRefused:
    """The database cannot hold what it was given."""
    return EntryRefused(f"{where} cannot hold this: {why}. Nothing was written. Change it, and try again.")


def inherited(where: str) -> LedgerInherited:
    """The process was forked after the ledger was opened."""
    return LedgerInherited(
        f"{where} was opened before this process was forked. Nothing was written or sent. Open a ledger, and sessions, "
        "anew in the child."
    )


def in_doubt(where: str, error: LedgerError) -> CommitUnknown:
    """A commit's answer was lost and reading back failed."""
    return CommitUnknown(
        f"{where}: a commit was sent, its answer never came, and reading back failed since ({error.message}) "
        "Whether the write took is not known here: write again under the same write id, or read the session back."
    )


def thread_died(where: str, kind: str) -> CommitUnknown:
    """The ledger thread ended in the middle of a write."""
    return CommitUnknown(
        f"{where}: the thread that writes it ended in the middle ({kind}). Whether this write took is not known here: "
        "write again under the same write id, or read the session back."
    )
