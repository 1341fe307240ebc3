"""What only a SQLite file can do: be shared by processes, be deleted, lie on a file system without locks."""

from __future__ import annotations

import fcntl
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from agent_runtime._model import State
from agent_runtime.errors import LedgerLost, LedgerUnavailable
from agent_runtime.ledger import MachineClock
from agent_runtime.ledger._filelock import FileLock
from agent_runtime.ledger._sqlite import SqliteStore, can_corrupt_wal
from tests.ledger.build import TENANT, WAIT, Holder, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.ledger import SqlLedger

ROOT = Path(__file__).parents[2]
AFFECTED, FIXED = (3, 40, 1), (3, 51, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def session(path: Path, opener: Callable[..., SqlLedger]) -> Holder:
    return start(opener(f"sqlite:///{path}"), "orders-db")


def pragma(ledger: SqlLedger, name: str) -> Any:
    """Ask the ledger's own connection."""
    read: list[Any] = []

    def ask(raw: sqlite3.Connection, *_: object) -> None:
        read.append(raw.execute(f"PRAGMA {name}").fetchone()[0])

    event.listen(ledger.engine, "checkout", ask)
    ledger.operation("x").result(WAIT)
    event.remove(ledger.engine, "checkout", ask)
    return read[-1]


def test_commits_are_safe_against_power_loss(session: Holder) -> None:
    """WAL with synchronous=FULL is in force, and SQLite itself waits a tenth of a second at most."""
    assert pragma(session.ledger, "journal_mode") == "wal"
    assert pragma(session.ledger, "synchronous") == 2
    assert pragma(session.ledger, "busy_timeout") <= 100


def test_describe_names_what_is_in_force(session: Holder, path: Path) -> None:
    """`describe` names file, release, journal, lock and lease."""
    facts = session.ledger.describe()
    assert (facts["store"], facts["file"], facts["journal_mode"]) == ("sqlite", str(path), "wal")
    assert facts["sqlite"] == sqlite3.sqlite_version
    assert facts["side_file_lock"] == f"{path}-lock"
    assert facts["lease_seconds"] == "30"


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_affected_releases_are_known(version: tuple[int, int, int], affected: bool) -> None:
    """Releases 3.7.0 to 3.51.2 have the WAL-reset fault, but for 3.50.7 and 3.44.6 and what followed them."""
    assert can_corrupt_wal(version) is affected


@pytest.mark.parametrize(
    ("version", "locks", "mode", "synchronous"),
    [(AFFECTED, True, "wal", 2), (FIXED, True, "wal", 2), (FIXED, False, "wal", 2), (AFFECTED, False, "delete", 3)],
)
def test_without_locks_an_affected_release_keeps_no_wal(
    path: Path, version: tuple[int, int, int], locks: bool, mode: str, synchronous: int
) -> None:
    """Where files cannot be locked an affected release uses a rollback journal with synchronous=EXTRA."""
    store = SqliteStore(
        path, clock=MachineClock(), create=True, patience=1.0, version=version, locks_work=lambda _: locks
    )
    with store.connect(write=True) as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar() == mode
        assert conn.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
    assert store.describe()["journal_mode"] == mode
    store.close()


def test_the_side_file_is_locked_over_a_commit(session: Holder, path: Path) -> None:
    """While a write transaction runs, its checkpoint included, nobody else gets the lock; between jobs it is free."""
    seen: list[bool] = []

    def is_free(*_: object) -> None:
        with Path(f"{path}-lock").open("r+") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen.append(False)
            else:
                seen.append(True)

    event.listen(session.ledger.engine, "commit", is_free)
    event.listen(session.ledger.engine, "checkin", is_free)
    session.reserve(1)
    event.remove(session.ledger.engine, "checkin", is_free)
    is_free()
    assert seen == [False, False, True]


def test_a_side_file_that_was_removed_is_made_again(session: Holder, path: Path) -> None:
    """Removing the -lock file beside a ledger in use locks nobody out and lets nobody in twice."""
    session.reserve(1)
    Path(f"{path}-lock").unlink()
    session.reserve(2)
    assert Path(f"{path}-lock").exists()


def test_a_lock_that_is_kept_is_waited_for(path: Path, opener: Callable[..., SqlLedger]) -> None:
    """A writer waits for another process's lock; when the time is over the file is busy, and then goes on."""
    session = start(opener(f"sqlite:///{path}", retry_seconds=0.2))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="another process holds its write lock"):
        session.reserve(1)
    assert session.loaded().operations == ()
    other.execute("ROLLBACK")
    other.close()
    assert session.reserve(1).state is State.READY


def test_a_commit_that_meets_a_reader_is_done_again(path: Path, opener: Callable[..., SqlLedger]) -> None:
    """A rollback journal's COMMIT that is busy leaves no transaction open behind it."""
    session = start(opener(f"sqlite:///{path}", retry_seconds=0.3))
    tried: list[int] = []

    def busy_once(_: object) -> None:
        if not tried:
            tried.append(1)
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error

    event.listen(session.ledger.engine, "commit", busy_once)
    assert session.reserve(1).state is State.READY
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    other.close()


@pytest.mark.parametrize("what", ["deleted", "replaced", "wal deleted", "renamed"])
def test_a_file_that_is_gone_is_lost(session: Holder, path: Path, what: str) -> None:
    """A ledger whose file or -wal is deleted or replaced says so at the next use, and goes on saying it."""
    session.reserve(1)
    if what == "deleted":
        path.unlink()
    elif what == "replaced":
        shutil.copy(path, f"{path}.copy")
        Path(f"{path}.copy").replace(path)
    elif what == "renamed":
        path.rename(f"{path}.old")
    else:
        Path(f"{path}-wal").unlink()
    for _ in range(2):
        with pytest.raises(LedgerLost, match="removed or replaced"):
            session.reserve(2)
    with pytest.raises(LedgerLost):
        session.loaded()


def test_a_file_lost_during_a_commit_is_lost(session: Holder, path: Path) -> None:
    """A commit that went to a file which has no name any more is not called written."""
    event.listen(session.ledger.engine, "commit", lambda _: path.unlink(missing_ok=True))
    with pytest.raises(LedgerLost):
        session.reserve(1)
    assert not path.exists()


def test_a_lost_file_is_not_made_anew(session: Holder, path: Path) -> None:
    """A new connection to a file that was deleted does not make an empty one, which would read as no sessions."""
    session.ledger._runner.store.drop_connections()
    path.unlink()
    with pytest.raises(LedgerLost):
        session.loaded()
    assert not path.exists()


def test_a_relative_path_is_resolved_once(tmp_path: Path, opener: Callable[..., SqlLedger], monkeypatch: Any) -> None:
    """Changing the directory later leads to no other file."""
    monkeypatch.chdir(tmp_path)
    session = start(opener("sqlite:///agent.db"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    session.ledger._runner.store.drop_connections()
    assert session.reserve(1).state is State.READY
    assert list((tmp_path / "other").iterdir()) == []


def test_a_link_and_its_file_are_one_ledger(tmp_path: Path, opener: Callable[..., SqlLedger]) -> None:
    """All names of a file share its side files."""
    session = start(opener(f"sqlite:///{tmp_path}/agent.db"), "orders-db")
    (tmp_path / "link.db").symlink_to(tmp_path / "agent.db")
    linked = opener(f"sqlite:///{tmp_path}/link.db")
    loaded = linked.load(name="orders-db", tenant=TENANT).result(WAIT)
    assert loaded is not None
    assert loaded.session.id == session.id
    assert linked.describe()["side_file_lock"] == f"{tmp_path}/agent.db-lock"


def test_a_name_with_odd_characters_is_a_file(tmp_path: Path, opener: Callable[..., SqlLedger]) -> None:
    """A path is a path: blanks, percent signs and question marks mean nothing else."""
    name = tmp_path / "a b%20c#d.db"
    session = start(opener(f"sqlite:///{name}"))
    assert session.reserve(1).state is State.READY
    assert name.exists()


def test_a_ledger_in_memory_ends_with_its_object(opener: Callable[..., SqlLedger]) -> None:
    """A ledger in memory works and says what it is."""
    session = start(opener("sqlite://"))
    assert session.reserve(1).state is State.READY
    assert "nothing outlives" in session.ledger.describe()["file"]


def test_what_needs_attention_is_found_by_index(session: Holder, path: Path) -> None:
    """`attention` reads two partial indexes and scans no table."""
    plans: list[str] = []

    def explain(conn: Any, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if "UNION" in statement and "EXPLAIN" not in statement:
            rows = conn.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans.extend(row[3] for row in rows)

    event.listen(session.ledger.engine, "before_cursor_execute", explain)
    session.ledger.attention(tenant=TENANT).result(WAIT)
    text = "\n".join(plans)
    assert "operations_unknown" in text
    assert "operations_contradicted" in text
    assert "SCAN agent_runtime_operations" not in text


WORKER = """
import sys
from agent_runtime.ledger import open_ledger
from tests.ledger.build import start
number, count = int(sys.argv[2]), int(sys.argv[3])
print("up", flush=True)
sys.stdin.readline()
ledger = open_ledger(sys.argv[1])
session = start(ledger, f"worker-{number}")
print("open", flush=True)
sys.stdin.readline()
for step in range(1, count + 1):
    session.send(session.reserve(step))
ledger.close()
"""
PROCESSES, STEPS, HELD_SECONDS = 8, 25, 3.0


def test_many_processes_share_a_file(path: Path, opener: Callable[..., SqlLedger]) -> None:
    """8 processes make a new file at once and write 50 times each past a lock held for 3 s: nothing is lost (A41)."""
    url = f"sqlite:///{path}"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, str(number), str(STEPS)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]

    def tell() -> None:
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()

    def hear(word: str) -> None:
        for worker in workers:
            assert worker.stdout is not None
            heard = worker.stdout.readline().strip()
            assert heard == word, worker.communicate()[1]

    hear("up")
    tell()
    hear("open")
    other = sqlite3.connect(path, isolation_level=None, timeout=WAIT, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    free = threading.Timer(HELD_SECONDS, other.execute, ("ROLLBACK",))
    free.start()
    tell()
    errors = [worker.communicate(timeout=WAIT * 2)[1] for worker in workers]
    free.join()
    other.close()
    assert errors == [""] * PROCESSES
    ledger = opener(url)
    for number in range(PROCESSES):
        loaded = ledger.load(name=f"worker-{number}", tenant=TENANT).result(WAIT)
        assert loaded is not None
        assert [operation.state for operation in loaded.operations] == [State.IN_FLIGHT] * STEPS
        assert {operation.version for operation in loaded.operations} == {2}
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw.close()


def test_a_file_lock_is_exclusive_and_bounded(tmp_path: Path) -> None:
    """Two holders of one lock exclude each other, in one process too; the same holder may take it twice over."""
    from agent_runtime.ledger._filelock import LockBusy

    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with one.held(0), one.held(0), pytest.raises(LockBusy), two.held(0.01):
        pass
    with two.held(0):
        pass
    one.forget()
    two.forget()
