"""The end of one send, seen at each read and write of its socket (blocking clients only)."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_ends_at: ContextVar[float | None] = ContextVar("agent_runtime_send_ends_at", default=None)
_PIECE = 65_536


class DeadlineExceeded(Exception):
    """The time for one send is over."""


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Let reads and writes of guarded streams in this context end at a moment of the monotonic clock."""
    token = _ends_at.set(moment)
    try:
        yield
    finally:
        _ends_at.reset(token)


def guard(stream: Any) -> None:
    """Make a blocking network stream of httpcore obey `until`; outside of it nothing changes.

    httpx has a timeout for each read, none for the whole: a server that sends one byte of its headers now and then
    holds a call for ever. Its stream is the one place that every read passes, in the user's own client too; as the
    connection is pooled, later requests find it guarded.
    """
    cls = type(stream)
    if issubclass(cls, _Guard) or not callable(getattr(cls, "read", None)):
        return
    try:
        stream.__class__ = _classes.get(cls) or _classes.setdefault(cls, _guarded(cls))
    except TypeError:  # another transport's stream, of a fixed layout; the read timeout still holds
        return


class _Guard:
    """Marks guarded classes."""


_classes: dict[type[Any], type[Any]] = {}


def _guarded(cls: type[Any]) -> type[Any]:
    def read(self: Any, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = cls.read(self, max_bytes, _left(timeout))
        return data

    def write(self: Any, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: one write of a long body gives each of its sends the whole timeout.
        view = memoryview(buffer)
        for start in range(0, len(view), _PIECE):
            cls.write(self, bytes(view[start : start + _PIECE]), _left(timeout))

    return type(cls.__name__, (cls, _Guard), {"read": read, "write": write})


def _left(timeout: float | None) -> float | None:
    """Return a timeout that does not pass the deadline."""
    end = _ends_at.get()
    if end is None:
        return timeout
    left = end - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded
    return left if timeout is None else min(timeout, left)
