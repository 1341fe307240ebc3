"""Child processes: wait for their first line, end them."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
ENDS_WITHIN = 10.0


class NotReady(RuntimeError):
    """The process ended, or kept silent, before it said that it was ready."""


def read_line(process: subprocess.Popen[bytes], *, within: float) -> str:
    """Return the first line that the process prints; raise NotReady if none comes in time."""
    assert process.stdout is not None
    deadline = time.monotonic() + within
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise NotReady(f"{process.args!r} was not ready within {within} s")
            part = os.read(process.stdout.fileno(), 1024)
            if not part:
                raise NotReady(f"{process.args!r} ended before it was ready; its errors stand on stderr")
            line += part
    return line.decode().strip()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process by closing its standard input, and by force if it does not react; close its pipes."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
    try:
        process.wait(timeout=ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
