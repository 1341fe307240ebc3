"""Looks for credentials, by their mark, in databases, log records, and requests to tools.

What is found is noted in `found`; the plugin `tests.leaks_plugin` fails the test that left it.
"""

from __future__ import annotations

import base64
import functools
import logging
import os
import re
import sqlite3
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.credentials import MARK, generated

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE = b"SQLite format 3\0"
CHILDREN = "AGENT_RUNTIME_TEST_LEAKS"
"""Environment variable with the file in which child processes note what they found."""
AUTHORISATION_SERVERS = {"as.test", "auth.test", "id.example.com", "login.example.com"}
"""Hosts, and origins of those that run on loopback: what they are sent is theirs to see."""
AT_A_TOOL = re.compile(rb"(?:issued|static|key|call)-canary[\w-]*")
CARRIES = {b"authorization", b"x-api-key"}
"""Headers in which a tool is sent its own token or key."""


def _forms(mark: bytes) -> Iterator[bytes]:
    """Yield a text as it looks in clear, in hex, and inside base64 at each of the three places that it can begin at."""
    yield mark
    yield mark.hex().encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + mark + bytes(3))
        yield encoded[-(-before * 8 // 6) : (before + len(mark)) * 8 // 6]


MARKS = (*_forms(MARK.encode()), b"PRIVATE KEY")
found: list[str] = []
"""Where a credential was found since the last look."""


def holds(data: bytes) -> bool:
    """Whether bytes hold a credential, in clear, in hex or in base64."""
    return any(mark in data for mark in MARKS) or any(secret in data for secret in generated)


def search_sqlite(path: Path) -> None:
    """Search a SQLite file, its log, and a copy that holds what a reader sees."""
    for file in path.parent.glob(f"{path.name}*"):
        with suppress(FileNotFoundError):
            if file.is_file() and holds(file.read_bytes()):
                found.append(f"the file {file.name}")
    copy = Path(tempfile.mkdtemp(prefix="ar-leaks-", dir=_memory())) / "copy.db"
    try:
        with closing(sqlite3.connect(path, timeout=1.0)) as conn:
            conn.execute("PRAGMA synchronous=OFF")
            conn.execute("VACUUM INTO ?", (str(copy),))
        if holds(copy.read_bytes()):
            found.append(f"a copy of {path.name}")
    except sqlite3.Error:
        pass  # a test has damaged it, or another process holds it: it was searched as it is
    finally:
        copy.unlink(missing_ok=True)
        copy.parent.rmdir()


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def search_folder(folder: Path) -> None:
    """Search every SQLite file below a folder."""
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):
            if path.is_file() and path.stat().st_size >= 512 and _begins(path) == SQLITE:
                search_sqlite(path)


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(SQLITE))


def search_postgres(url: str) -> None:
    """Search all rows of all tables of a Postgres database."""
    import psycopg

    with psycopg.connect(url) as conn:
        named = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
        tables = [row[0] for row in conn.execute(named)]
        if tables:
            every = " UNION ALL ".join(f"SELECT '{table}', t::text FROM {table} t" for table in tables)
            rows = conn.execute(every).fetchall()
            found.extend(sorted({f"the table {table}" for table, row in rows if holds(row.encode())}))


def watch_requests() -> None:
    """Look at every request of httpx clients, and of httpx2 where it is at work; may be called again."""
    for library in ("httpx", "httpx2"):
        module = sys.modules.get(library)
        for kind in ("Client", "AsyncClient"):
            client = getattr(module, kind, None)
            if client is not None and not hasattr(client.send, "looks"):
                client.send = _looking(client.send)


def _looking(send: Any) -> Any:
    @functools.wraps(send)
    def look_and_send(self: Any, request: Any, *args: Any, **named: Any) -> Any:
        look_at(request)
        return send(self, request, *args, **named)

    look_and_send.looks = True  # type: ignore[attr-defined]
    return look_and_send


def look_at(request: Any) -> None:
    """Look for credentials in a request, unless it goes to an authorisation server."""
    url = request.url
    if url.host in AUTHORISATION_SERVERS or f"{url.scheme}://{url.netloc.decode()}" in AUTHORISATION_SERVERS:
        return
    parts = {"the URL": str(url).encode(), "the body": getattr(request, "_content", b"")}
    for name, value in request.headers.raw:
        rest = AT_A_TOOL.sub(b"", value) if name.lower() in CARRIES else value
        parts[f"the header {name.decode()}"] = name + rest
    for part, data in parts.items():
        if holds(data):
            found.append(f"{part} of a {request.method} to {url.host}")


OTHERS = {"authlib.oauth2.rfc6749.grants.client_credentials", "authlib.oauth2.rfc7523.jwt_bearer"}
"""Loggers of the authorisation server that tests run in their own process: it tells what it issued."""


class Records(logging.Handler):
    """Looks at every log record, with its arguments and its exception's chain."""

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one record."""
        if record.name in OTHERS:
            return
        told = [record.getMessage(), repr(record.args)]
        error = record.exc_info[1] if record.exc_info else None
        while error is not None:
            told += [str(error), repr(error)]
            error = error.__cause__ or error.__context__
        if holds("\n".join(told).encode("utf-8", "replace")):
            found.append(f"a log record of {record.name}")


def tell_parent() -> None:
    """Note what a child process has found, in the file that the test run looks at."""
    with Path(os.environ[CHILDREN]).open("a") as file:
        file.writelines(f"{where}\n" for where in found)


def told_by_children() -> list[str]:
    """Return what child processes have found since the last look."""
    if CHILDREN not in os.environ:
        return []
    notes = Path(os.environ[CHILDREN])
    told = notes.read_text().splitlines()
    if told:
        notes.write_text("")
    return told
