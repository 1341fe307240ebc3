"""The server as a process: it says when it is ready, cleans up after itself, and can be killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from examples.tool_backend.process import running_backend
from examples.tool_backend.processes import NotReady, end_process, read_line

pytestmark = pytest.mark.acceptance

PROJECT_ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def _started_by_hand(folder: Path):
    """Start the server as a person would, its Valkey keeping its files under ``folder``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.tool_backend", "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=PROJECT_ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield process, read_line(process, within=30)
    finally:
        process.kill()
        end_process(process)


def _wait_until_empty(folder: Path) -> None:
    deadline = time.monotonic() + 10
    while list(folder.iterdir()):
        assert time.monotonic() < deadline, "the Valkey of an ended server is still there"
        time.sleep(0.02)


@pytest.fixture
def short_folder():
    """A folder whose path leaves room for a socket: pytest's own can be too long for one."""
    with tempfile.TemporaryDirectory(prefix="own-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_own_valkey_ends_with_the_server(short_folder, ending):
    """However the server ends, the Valkey that it started ends, too."""
    with _started_by_hand(short_folder) as (process, line):
        url = line.rpartition(" ")[2]
        assert line == f"tool_backend ready: {url}"
        assert httpx.get(f"{url}/accounts/a", trust_env=False).status_code == 200
        assert list(short_folder.iterdir())
        process.send_signal(ending)
        assert process.wait(timeout=10) == (0 if ending != signal.SIGKILL else -signal.SIGKILL)
    _wait_until_empty(short_folder)


def test_restart_keeps_port_and_state(agent, key):
    """Killed and started again over the same store, the server replays what it answered before."""
    first = agent.call(key)
    pid, url = agent.backend.pid, agent.backend.url
    agent.backend.kill()
    assert not agent.backend.running
    agent.backend.restart()
    assert agent.backend.url == url
    assert agent.backend.pid != pid
    assert agent.call(key).content == first.content


def test_store_given_from_outside_outlives_the_server(valkey_url, key):
    """A second server over the same store knows what the first one did."""
    url = f"{valkey_url}?db=4"
    headers = {"Idempotency-Key": key}
    with running_backend(redis_url=url) as first:
        httpx.post(f"{first.url}/tools/debit", json={"account": "a", "amount": 1}, headers=headers, trust_env=False)
    with running_backend(redis_url=url) as second:
        assert second.operation(key)["state"] == "done"
        second.reset()
        assert second.operation(key) == {"state": "absent"}
        assert second.effects() == []


def test_unreachable_store_is_an_error_at_once():
    """A server that cannot reach its store does not say that it is ready."""
    with pytest.raises(NotReady), running_backend(redis_url="unix:///nowhere/valkey.sock"):
        pass


@pytest.mark.parametrize(
    ("when", "state"),
    [("before_effect", {"state": "absent"}), ("after_effect", {"state": "done", "status": 500})],
)
def test_stopping_frees_what_had_not_begun(agent, key, when, state):
    """A server told to stop in the middle of a handler frees its key, or says that the effect may stand."""
    backend = agent.backend
    backend.script("debit", "slow", seconds=30, when=when)
    with pytest.raises(httpx.ReadTimeout):
        agent.call(key, timeout=0.4)
    os.kill(backend.pid, signal.SIGTERM)
    assert backend.wait_until_dead() == 0
    backend.restart()
    found = backend.operation(key)
    assert {name: found[name] for name in state} == state
    assert len(backend.effects()) == (0 if when == "before_effect" else 1)
