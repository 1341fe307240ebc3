"""O15: tokens work the same with httpx2 beside httpx and without it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from agent_runtime import AsyncRuntime, Runtime
from tests.credentials import TOKEN_KEY
from tests.oauth.kit import rotating, tool

if TYPE_CHECKING:
    from tests.oauth.kit import Site

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent.relative_to(ROOT)
HIDES = ROOT / "tests" / "without_httpx2"
AGAIN = ("tests/http/test_oauth.py", str(HERE / "test_exchange.py"), str(HERE / "test_two_hours.py"))


def without_httpx2(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python where httpx2 cannot be imported, as `make test-without-httpx2` does for the whole suite."""
    environment = os.environ | {"PYTHONPATH": str(HIDES)}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


IN_A_CHILD = """
import subprocess, sys
import agent_runtime
sys.exit(subprocess.run([sys.executable, "-c", "import httpx2"], capture_output=True).returncode)
"""


def test_httpx2_is_hidden_from_children_too() -> None:
    """Neither a process that is started so nor one that it starts can import it; the package can be."""
    assert "No module named 'httpx2'" in without_httpx2("-c", "import httpx2").stderr
    done = without_httpx2("-c", IN_A_CHILD)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.timeout(180)
def test_O15_the_suite_passes_without_httpx2() -> None:
    """Providers, exchange and the plan of two hours, tested again where httpx2 cannot be imported."""
    plugins = ["-p", "no:cacheprovider", "-k", "not async", "-m", "not httpx2"]
    done = without_httpx2("-m", "pytest", "-q", "-n0", "--timeout=120", *plugins, *AGAIN)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


@pytest.mark.httpx2
def test_O15_a_client_of_httpx2_gets_tokens_too(tmp_path: Path, site: Site) -> None:
    """Token requests and tool calls both go out over the client that the user brought."""
    import httpx2

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen = httpx.Request(request.method, str(request.url), headers=request.headers.raw, content=request.content)
        answer = site(seen)
        return httpx2.Response(answer.status_code, headers=answer.headers.raw, content=answer.content)

    with (
        httpx2.Client(transport=httpx2.MockTransport(handler)) as client,
        Runtime(
            f"sqlite:///{tmp_path}/agent.db",
            tools=[tool(auth=rotating())],
            client=client,
            clock=site.clock,
            token_key=TOKEN_KEY,
        ) as runtime,
        runtime.open("plan") as session,
    ):
        assert session.call("pay", {"n": 1}).attempts == 1

    async def run() -> None:
        async with (
            httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client,
            AsyncRuntime(
                f"sqlite:///{tmp_path}/agent.db",
                tools=[tool(auth=rotating())],
                client=client,
                clock=site.clock,
                token_key=TOKEN_KEY,
            ) as runtime,
            runtime.open("plan-2") as session,
        ):
            assert (await session.call("pay", {"n": 1})).attempts == 1

    asyncio.run(run())
    assert (len(site.forms), len(site.calls)) == (1, 2)
