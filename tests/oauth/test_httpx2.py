"""O15: tokens work the same with httpx2 beside httpx and without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import httpx2
import pytest

from agent_runtime import AsyncRuntime, Runtime
from tests.oauth.kit import TOKEN_KEY, rotating, tool

if TYPE_CHECKING:
    from tests.oauth.kit import Site

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent.relative_to(ROOT)
AGAIN = ("tests/http/test_oauth.py", str(HERE / "test_exchange.py"), str(HERE / "test_two_hours.py"))


@pytest.mark.timeout(180)
def test_O15_the_suite_passes_without_httpx2() -> None:
    """Providers, exchange and the plan of two hours, tested again in a process where httpx2 cannot be imported."""
    plugins = ["-p", "tests.oauth.without_httpx2", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "not async", "--timeout=120", *plugins, *AGAIN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_O15_a_client_of_httpx2_gets_tokens_too(tmp_path: Path, site: Site) -> None:
    """Token requests and tool calls both go out over the client that the user brought."""

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
