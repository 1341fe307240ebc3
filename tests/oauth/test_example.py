"""The example runs, and does what its page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_waits_goes_on_and_refreshes() -> None:
    """The step waits for a second factor, goes on under its key, and a later call has a new token."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.on_behalf_of"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "waits for auth: interaction_required"
    assert "acrs" in lines[1]
    assert lines[-1] == "on_behalf_of: 2 orders, 2 exchanges"
    assert done.stderr == ""
