"""A clock that is moved by hand."""

from __future__ import annotations

import asyncio
import math
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    Told = Callable[[float], Future[None] | None]

NEW_YEAR_2026: Final = 1_767_225_600.0
_BOOTED: Final = 1_000.0
_GRAIN: Final = 2**20
"""Time moves in parts of a second that floats of any date hold exactly: a sleeper never wakes a little early."""
_PATIENCE: Final = 5.0


class VirtualClock:
    """A clock for tests: waits return at once and move the time.

    Give one to all runtimes of a test, with ``Runtime(..., clock=clock)``; it stands for the database's clock as well,
    on SQLite and on Postgres. Reads, waits and moves may come from any thread.

    A wait is no stall: the ledger renews the leases of living sessions before the time moves, as it would have done on
    the way, so that a wait longer than a lease loses none. What nobody holds any more (`crash_at`) runs out.

    Tasks that sleep beside each other share the time: two that sleep 10 s from the same moment on end 10 s later.
    Threads that block do not know of each other: each moves the time by its own wait.

    Args:
        start: what the wall clock reads at first (UTC epoch seconds); 1 January 2026 by default.

    Attributes:
        slept: the seconds of each wait, in order.

    >>> clock = VirtualClock(start=0)
    >>> clock.sleep(1.5)
    >>> clock.advance(3600)
    >>> clock.wall(), clock.slept
    (3601.5, [1.5])
    """

    def __init__(self, start: float = NEW_YEAR_2026) -> None:
        self.slept: list[float] = []
        self._start = float(start)
        self._moved = 0
        self._pending = 0
        self._lock = threading.Lock()
        self._told: list[weakref.WeakMethod[Told]] = []

    def __repr__(self) -> str:
        return f"<VirtualClock {self.wall()}>"

    def wall(self) -> float:
        """Return UTC epoch seconds."""
        return self._start + self._moved / _GRAIN

    def boottime(self) -> float:
        """Return seconds since a boot that was 1000 seconds before the clock was made."""
        return _BOOTED + self._moved / _GRAIN

    def sleep(self, seconds: float) -> None:
        """Move the time on by so many seconds and return at once."""
        self.slept.append(seconds)
        self._move(_grains(seconds), stalled=False)

    async def sleep_async(self, seconds: float) -> None:
        """Let other tasks run once, then move the time on to so many seconds from the call."""
        self.slept.append(seconds)
        until = self._moved + _grains(seconds)
        await asyncio.sleep(0)
        self._move(until - self._moved, stalled=False)

    def advance(self, seconds: float, *, stalled: bool = False) -> None:
        """Move the time on by so many seconds.

        Args:
            seconds: 0 or more.
            stalled: the processes of this test stood still meanwhile, as on a suspended machine: no lease was renewed,
                and one that is shorter than this may be taken over.

        Raises:
            ValueError: ``seconds`` is negative or no finite number.
        """
        self._move(_grains(seconds), stalled=stalled)

    def before_moving(self, told: Told) -> None:
        """Call a method, held weakly, with the seconds that the time is about to move; a future of it is waited for."""
        self._told.append(weakref.WeakMethod(told))

    def _move(self, grains: int, *, stalled: bool) -> None:
        if grains <= 0:
            return
        with self._lock:
            self._pending += grains
            # All moves that are under way at once: each must find its leases standing when the others are through.
            answers = [] if stalled else self._tell(self._pending / _GRAIN)
        try:
            for answer in answers:
                with suppress(Exception):  # a ledger that cannot renew learns from the lease's own end
                    answer.result(_PATIENCE)
        finally:
            with self._lock:
                self._pending -= grains
                self._moved += grains

    def _tell(self, seconds: float) -> list[Future[None]]:
        living = [(ref, told) for ref in self._told if (told := ref()) is not None]
        self._told = [ref for ref, _ in living]
        return [answer for _, told in living if (answer := told(seconds)) is not None]


def _grains(seconds: float) -> int:
    """Return seconds in grains, rounded up."""
    if not 0 <= seconds < math.inf:
        msg = f"time moves on by 0 seconds or more, not by {seconds!r}"
        raise ValueError(msg)
    return math.ceil(seconds * _GRAIN)
