"""Opening: what is a ledger, what is none, and what may be done to its schema."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import agent_runtime.ledger
from agent_runtime.errors import (
    ConfigError,
    LedgerCorrupt,
    LedgerReadOnly,
    LedgerTooNew,
    LedgerUnavailable,
)
from agent_runtime.ledger import SqlLedger, open_ledger
from agent_runtime.ledger import _schema as t
from tests.ledger.build import TENANT, WAIT, Holder, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Backend

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t-word"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not the URL"),
        ("agent.db", "not the URL"),
        (f"nonsense:{SECRET}", "not the URL"),
        ("mysql://u@h/d", "only SQLite and Postgres"),
        ("sqlite+aiosqlite:///agent.db", "aiosqlite"),
        (f"postgresql+asyncpg://u:{SECRET}@h/d", "asyncpg"),
        (f"postgresql+psycopg2://u:{SECRET}@h/d", "psycopg2"),
        ("sqlite://host/agent.db", "three slashes"),
        ("sqlite:///agent.db?mode=ro", "no options"),
        ("sqlite:///file:agent.db", "plain path"),
    ],
)
def test_a_wrong_url_is_a_config_error(url: str, says: str) -> None:
    """A URL that names no ledger is refused with the shape that would do, and shows no password."""
    with pytest.raises(ConfigError, match=says) as caught:
        open_ledger(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "settings", [{"lease_seconds": 0}, {"lease_seconds": -1.0}, {"margin": -1.0}, {"margin": 20.0}]
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], tmp_path: Path) -> None:
    """A lease that is no time, or a margin that leaves none between renewals, is a config error."""
    with pytest.raises(ConfigError):
        open_ledger(f"sqlite:///{tmp_path}/agent.db", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:{SECRET}@127.0.0.1:1/d",
        f"postgres://ana@127.0.0.1:1/d?password={SECRET}",
        f"postgresql+psycopg://ana:{SECRET}@/d?host=/nowhere/at/all",
    ],
)
def test_a_server_that_is_away_is_told_at_once_and_without_password(url: str) -> None:
    """Opening a database that cannot be reached fails soon, and no part of the error holds the password."""
    with pytest.raises(LedgerUnavailable, match="cannot be reached") as caught:
        open_ledger(url)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert SECRET not in f"{chain!r} {chain} {chain.args}"
        chain = chain.__cause__ or chain.__context__


def test_a_ledger_shows_no_password(postgres_url: str) -> None:
    """Neither repr nor `describe` of an open ledger holds the password of its URL."""
    ledger = open_ledger(postgres_url.replace("postgres@", f"postgres:{SECRET}@"))
    assert SECRET not in f"{ledger!r} {ledger.describe()}"
    ledger.close()


def test_a_database_that_does_not_exist_is_told(postgres_server: str) -> None:
    """A Postgres database of another name is not made."""
    with pytest.raises(LedgerUnavailable, match="does not exist"):
        open_ledger(f"postgresql://postgres@/nothing_here?host={postgres_server}")


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    """A file in a directory that does not stand is refused, and the directory is not made."""
    with pytest.raises(LedgerUnavailable, match="there is no directory"):
        open_ledger(f"sqlite:///{tmp_path}/none/agent.db")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_ledger(tmp_path: Path) -> None:
    """The path of a directory is refused."""
    (tmp_path / "agent.db").mkdir()
    with pytest.raises(LedgerUnavailable, match="cannot be opened"):
        open_ledger(f"sqlite:///{tmp_path}/agent.db")


def test_create_false_makes_nothing(tmp_path: Path) -> None:
    """With ``create=False`` a file that does not stand is told, not made."""
    with pytest.raises(LedgerUnavailable, match="There is no ledger"):
        open_ledger(f"sqlite:///{tmp_path}/agent.db", create=False)
    assert list(tmp_path.iterdir()) == []
    open_ledger(f"sqlite:///{tmp_path}/agent.db").close()
    open_ledger(f"sqlite:///{tmp_path}/agent.db", create=False).close()


NOBODY = 65534
OPEN_AS_NOBODY = """
import os, sys
from agent_runtime.errors import LedgerReadOnly
from agent_runtime.ledger import open_ledger
if os.geteuid() == 0:  # root may write everywhere
    os.setuid(int(sys.argv[2]))
try:
    open_ledger("sqlite:///" + sys.argv[1])
except LedgerReadOnly as error:
    print("cannot be written" in str(error))
"""


def test_a_directory_without_rights_is_read_only(tmp_path: Path) -> None:
    """A directory that this user may not write is LedgerReadOnly; root tries it as somebody else."""
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o555)
        command = [sys.executable, "-c", OPEN_AS_NOBODY, f"{open_to_all}/agent.db", str(NOBODY)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_a_file_system_that_takes_no_files_is_told() -> None:
    """A place where nobody can write is LedgerReadOnly, with no trace of the system call."""
    with pytest.raises(LedgerReadOnly, match="cannot be written") as caught:
        open_ledger("sqlite:////sys/agent.db")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("content", [b"Dear diary, today" * 100, b"\0" * 8192])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file that is no database is told, and keeps every byte."""
    (tmp_path / "agent.db").write_bytes(content)
    with pytest.raises(LedgerCorrupt, match="is no ledger"):
        open_ledger(f"sqlite:///{tmp_path}/agent.db")
    assert (tmp_path / "agent.db").read_bytes() == content


def test_a_sqlite_database_of_something_else_is_refused(tmp_path: Path) -> None:
    """Somebody else's SQLite database is told, and gets no tables."""
    with sqlite3.connect(tmp_path / "agent.db") as other:
        other.execute("CREATE TABLE songs (id)")
    other.close()
    before = (tmp_path / "agent.db").read_bytes()
    with pytest.raises(LedgerCorrupt, match="something else"):
        open_ledger(f"sqlite:///{tmp_path}/agent.db")
    assert (tmp_path / "agent.db").read_bytes() == before


def test_foreign_tables_of_our_names_are_refused(postgres_empty: str) -> None:
    """A database with tables that only look like ours is told, and not touched."""
    with psycopg.connect(postgres_empty, autocommit=True) as conn:
        conn.execute("CREATE TABLE agent_runtime_steps (id int)")
        with pytest.raises(LedgerCorrupt, match="agent_runtime_steps"):
            open_ledger(postgres_empty)
        tables = conn.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert tables == (1,)


def test_a_ledger_lives_beside_other_tables(postgres_empty: str) -> None:
    """A Postgres database of an application can hold the ledger too."""
    with psycopg.connect(postgres_empty, autocommit=True) as conn:
        conn.execute("CREATE TABLE sessions (id int)")
    ledger = open_ledger(postgres_empty)
    assert start(ledger).reserve(1).label == "step_001"
    ledger.close()


def execute(backend: Backend, statement: str) -> None:
    engine = create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as conn:
        conn.exec_driver_sql(statement)
    engine.dispose()


def test_a_newer_schema_is_refused(backend: Backend) -> None:
    """A ledger at a revision that this release does not know is left alone."""
    open_ledger(backend.url).close()
    execute(backend, "UPDATE agent_runtime_revision SET version_num = '9999'")
    with pytest.raises(LedgerTooNew, match="Upgrade the package"):
        open_ledger(backend.url)


def test_old_writers_are_stopped(session: Holder, backend: Backend) -> None:
    """Raising ``min_writer`` stops the writers that have the ledger open, not only those that open it."""
    made = session.reserve(1)
    execute(backend, "UPDATE agent_runtime_meta SET value = 2 WHERE name = 'min_writer'")
    with pytest.raises(LedgerTooNew, match="generation 2"):
        session.send(made)
    with pytest.raises(LedgerTooNew):
        open_ledger(backend.url)
    assert session.loaded().operations == (made,)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agent.db"
    return str(request.getfixturevalue("postgres_empty"))


def test_check_changes_nothing(empty_url: str) -> None:
    """``migrate="check"`` refuses a database without tables, and takes one that is up to date."""
    for _ in range(2):
        with pytest.raises(ConfigError, match="holds no tables yet"):
            open_ledger(empty_url, migrate="check")
    open_ledger(empty_url).close()
    open_ledger(empty_url, migrate="check").close()


def test_the_schema_and_the_migrations_make_the_same_database(empty_url: str) -> None:
    """What the migrations make is what the schema module says, down to indexes and types."""
    open_ledger(empty_url).close()
    engine = create_engine(empty_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as conn:
        options = {"version_table": t.VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(conn, opts=options)
        assert compare_metadata(context, t.metadata) == []
    engine.dispose()


def test_the_statements_of_both_are_the_same(tmp_path: Path) -> None:
    """On SQLite the very statements are equal, partial indexes and WITHOUT ROWID included."""

    def statements(path: Path) -> dict[str, str]:
        with sqlite3.connect(path) as conn:
            rows = conn.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        conn.close()
        return {name: " ".join(sql.split()) for name, sql in rows if t.VERSION_TABLE not in name}

    open_ledger(f"sqlite:///{tmp_path}/migrated.db").close()
    engine = create_engine(f"sqlite:///{tmp_path}/made.db")
    t.metadata.create_all(engine)
    engine.dispose()
    assert statements(tmp_path / "migrated.db") == statements(tmp_path / "made.db")


def test_the_known_revisions_are_the_migrations() -> None:
    """The list by which opening goes without Alembic is the chain of migrations that are shipped."""
    config = Config()
    config.set_main_option("script_location", str(Path(agent_runtime.ledger.__file__).with_name("migrations")))
    script = ScriptDirectory.from_config(config)
    assert tuple(step.revision for step in reversed(list(script.walk_revisions()))) == t.REVISIONS
    assert script.get_heads() == [t.HEAD]


def test_migrating_says_nothing(empty_url: str, caplog: Any, capfd: Any) -> None:
    """Making the tables writes no log line, prints nothing and leaves the logging configuration as it was."""
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("alembic").level)
    with caplog.at_level(logging.DEBUG):
        open_ledger(empty_url).close()
    assert [record for record in caplog.records if record.name.startswith("alembic")] == []
    assert capfd.readouterr() == ("", "")
    assert (root.level, list(root.handlers), logging.getLogger("alembic").level) == before
    assert not any(logging.getLogger(name).filters for name in ("alembic", "alembic.runtime.migration"))


def test_opening_again_does_not_load_alembic(tmp_path: Path) -> None:
    """A ledger that needs no migration is opened without Alembic, which is slow to import."""
    url = f"sqlite:///{tmp_path}/agent.db"
    open_ledger(url).close()
    code = "import sys\nfrom agent_runtime.ledger import open_ledger\nopen_ledger(sys.argv[1]).close()\n"
    code += "print('alembic' in sys.modules, 'psycopg' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, url], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_an_open_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """A refused open ends with no thread, no lock and no connection."""
    with sqlite3.connect(tmp_path / "agent.db") as other:
        other.execute("CREATE TABLE songs (id)")
    other.close()
    before = threading.active_count()
    with pytest.raises(LedgerCorrupt):
        open_ledger(f"sqlite:///{tmp_path}/agent.db")
    assert threading.active_count() == before
    names = [str(handle.resolve()) for handle in Path("/proc/self/fd").iterdir()]
    assert not any(str(tmp_path) in name for name in names)


def test_psycopg_is_named_where_it_is_missing() -> None:
    """Without psycopg a Postgres URL is a config error that names the extra."""
    code = (
        "import sys\nsys.modules['psycopg'] = None\n"
        "from agent_runtime.errors import ConfigError\nfrom agent_runtime.ledger import open_ledger\n"
        "try:\n    open_ledger('postgresql://u@h/d')\nexcept ConfigError as exc:\n    print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "agent-runtime-ledger[postgres]" in done.stdout


def test_a_ledger_opens_in_another_thread(backend: Backend, opener: Callable[..., SqlLedger]) -> None:
    """Opening, using and closing need not happen on one thread."""
    ledgers: list[SqlLedger] = []
    opening = threading.Thread(target=lambda: ledgers.append(opener(backend.url)))
    opening.start()
    opening.join(WAIT)
    assert ledgers[0].sessions(tenant=TENANT, state=None).result(WAIT) == []
