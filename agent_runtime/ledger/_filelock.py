"""A lock beside a database file, held between processes while one of them writes."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager
from random import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class LockBusy(Exception):
    """Another process kept the lock for all the time that was allowed."""


class FileLock:
    """An exclusive ``flock`` on a file of its own; one thread at a time uses the object, which may take it twice over.

    Not a lock on the database file: SQLite's own locks live there, and closing any handle of the file drops them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._depth = 0

    def works(self) -> bool:
        """Tell whether this file system has locks, by trying one."""
        try:
            self._try()
        except OSError as exc:
            self.forget()
            if exc.errno in _NO_LOCKS:
                return False
            raise
        self._unlock()
        return True

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock; raise `LockBusy` if it is not free within ``seconds``."""
        if self._depth == 0:
            self._acquire(seconds)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._unlock()

    def forget(self) -> None:
        """Close the file; in a forked child this leaves the parent's lock in place."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _acquire(self, seconds: float) -> None:
        # Polled: a blocking flock could not be bounded, and a stopped process may hold the lock for ever.
        end = time.monotonic() + seconds
        pause = 0.0005
        while not self._try():
            if time.monotonic() >= end:
                raise LockBusy
            time.sleep(pause * (0.5 + random()))  # noqa: S311  spreads the waiters, hides nothing
            pause = min(pause * 1.5, 0.01)

    def _try(self) -> bool:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_current():
            return True
        self.forget()  # somebody removed the file: whoever comes next would lock another one
        return False

    def _is_current(self) -> bool:
        assert self._fd is not None
        try:
            return self.path.stat().st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def _unlock(self) -> None:
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
