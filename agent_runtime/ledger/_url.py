"""From a database URL to what a store needs; no message here holds a password."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from agent_runtime.errors import ConfigError

_SYNC = {"sqlite": "sqlite", "sqlite+pysqlite": "sqlite", "postgresql": "postgresql", "postgres": "postgresql"}
_SYNC |= {"postgresql+psycopg": "postgresql"}
_SHAPES = "sqlite:///agent.db, sqlite:////absolute/agent.db or postgresql://user@host/database"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a ledger is: a file (None: in memory), or the URL of a Postgres database."""

    kind: str
    path: Path | None = None
    url: URL | None = None


def parse(url: str) -> Target:
    """Return what a URL names.

    Raises:
        ConfigError: a URL that names no ledger, or a driver that is not there.
    """
    parsed = _parsed(url)
    name = parsed.drivername
    kind = _SYNC.get(name)
    if kind is None:
        raise ConfigError(_wrong_driver(name))
    if kind == "sqlite":
        return Target(kind=kind, path=_sqlite_path(url, parsed))
    if find_spec("psycopg") is None:
        raise ConfigError(
            "A Postgres ledger needs psycopg 3, which is not installed. Install the extra: "
            "pip install 'agent-runtime-ledger[postgres]'"
        )
    return Target(kind=kind, url=parsed.set(drivername="postgresql+psycopg"))


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError, TypeError, AttributeError):
        pass
    raise ConfigError("This is not the URL of a ledger. Write it as " + _SHAPES)  # the URL itself stays out of it


def _wrong_driver(name: str) -> str:
    base, _, driver = name.partition("+")
    if base in {"sqlite", "postgresql", "postgres"} and driver:
        plain = "sqlite" if base == "sqlite" else "postgresql"
        return (
            f"The ledger does not work over the driver {driver}: one thread of its own does all database work, for "
            f"async sessions too. Write {plain}:// without a driver."
        )
    return f"A ledger cannot be kept in {base!r}: only SQLite and Postgres. Write the URL as {_SHAPES}."


def _sqlite_path(written: str, url: URL) -> Path | None:
    if url.host or url.username or url.password or url.port:
        raise ConfigError(
            "A SQLite URL names a file and no host: three slashes before a relative path (sqlite:///agent.db), four "
            "before an absolute one (sqlite:////var/lib/agent.db)."
        )
    if url.query:
        raise ConfigError("A SQLite URL for a ledger takes no options after a question mark: it sets what it needs.")
    # As it is written: some releases of SQLAlchemy decode percent signs here and others do not.
    name = written.partition("://")[2].removeprefix("/")
    if name in {"", ":memory:"}:
        return None
    if name.startswith("file:"):
        raise ConfigError("A ledger takes a plain path, not SQLite's own file: URI. Write sqlite:///agent.db.")
    # Resolved once: a later chdir must not lead to another file, and all names of a file must share its side files.
    return Path(os.path.realpath(name))
