"""SIGKILL around the 202 and between polls, on both stores: one effect, one completion."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from examples.tool_backend.process import Backend
    from tests.conftest import Backend as Database

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[3]


def run(url: str, server: str, where: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.acceptance.jobs.dying_agent", url, server, where]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=40, check=False)


@pytest.mark.parametrize("where", ["before_commit", "after_commit", "during_poll"])
def test_a_killed_agent_leaves_one_job_and_the_next_one_finishes_it(
    server: Backend, backend: Database, where: str
) -> None:
    """Between the 202 and its commit, after that, and in a poll: the next process polls the same job to its end."""
    server.order_jobs("transcode", polls=3, estimated=None)
    dead = run(backend.url, server.url, where)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    done = run(backend.url, server.url, "never")
    told = json.loads(done.stdout)
    assert told["status"] == "succeeded"
    assert len(server.effects("transcode")) == 1
    assert server.polls(told["job_id"]) >= 4
    again = json.loads(run(backend.url, server.url, "never").stdout)
    assert (again["status"], again["job_id"]) == ("succeeded", told["job_id"])
    assert len(server.effects("transcode")) == 1
    sent_again = ["step_001"] if where == "before_commit" else []
    assert told["report"] == sent_again
