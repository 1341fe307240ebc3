"""What the machine tells of itself: its clocks, who this process is, and whether another one still lives."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agent_runtime.ledger._contract import Owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

_PROC = Path("/proc")


class LedgerClock(Protocol):
    """Where a ledger takes the time from; one that is given stands for the database's clock too."""

    def wall(self) -> float:
        """Return UTC epoch seconds."""
        ...

    def boottime(self) -> float:
        """Return seconds of a clock that never jumps and goes on while the machine is suspended."""
        ...


@runtime_checkable
class MovedClock(Protocol):
    """A clock that tests move by hand: it tells of a move beforehand.

    Real time would let the ledger thread renew leases on the way; time that jumps has to let it do so before.
    """

    def before_moving(self, told: Callable[[float], Future[None] | None]) -> None:
        """Call a method, held weakly, with the seconds that the time is about to move; its future is waited for."""
        ...


class MachineClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        """Return UTC epoch seconds."""
        return time.time()  # noqa: TID251  the one place where the ledger reads the machine's clock

    def boottime(self) -> float:
        """Return seconds of a clock that goes on while the machine is suspended, where there is one."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        if sys.platform == "darwin":  # here CLOCK_MONOTONIC counts sleep, and time.monotonic() does not
            return time.clock_gettime(time.CLOCK_MONOTONIC)
        return time.monotonic()


def current_owner(token: str) -> Owner:
    """Return this process as an owner, for the Session object with this token."""
    pid = os.getpid()
    return Owner(
        token=token,
        host=socket.gethostname(),
        pid=pid,
        boot_id=_read(_PROC / "sys/kernel/random/boot_id"),
        pid_namespace=_link(_PROC / "self/ns/pid"),
        process_started=_stat(pid)[1],
    )


def same_process(one: Owner, other: Owner) -> bool:
    """Tell whether two owners are Session objects of one process; asked where one of them is in this process."""
    return replace(one, token="") == replace(other, token="")


def same_system(one: Owner, other: Owner) -> bool:
    """Tell whether two owners certainly see the same table of processes.

    The host's name is asked too: clones of a running virtual machine share the boot id.
    """
    return (
        one.boot_id != ""
        and one.pid_namespace != ""
        and (one.host, one.boot_id, one.pid_namespace) == (other.host, other.boot_id, other.pid_namespace)
    )


ABANDONED: set[str] = set()
"""Owner tokens of this process that tests have declared dead."""


def is_dead(owner: Owner, seen_by: Owner) -> bool:
    """Tell whether ``owner`` is certainly a dead process, as ``seen_by`` (this process) can know.

    False where that cannot be known: another machine, another boot, another pid namespace.
    """
    if owner.token in ABANDONED and same_process(owner, seen_by):
        return True
    if owner.pid <= 0 or not same_system(owner, seen_by):
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives and belongs to somebody else
        return False
    state, started, threads = _stat(owner.pid)
    if state == "":  # not to be read (hidepid): the process lives, whoever it is
        return False
    # A dead process that nobody has waited for runs no code; one whose first thread ended may.
    if state in "ZX" and threads <= 1:
        return True
    return owner.process_started not in {"", started}


def _stat(pid: int) -> tuple[str, str, int]:
    text = _read(_PROC / str(pid) / "stat")
    fields = text.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    if len(fields) < 20:
        return "", "", 0
    return fields[0], fields[19], int(fields[17])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
