"""Three processes share one rotating refresh token, at a server that revokes the grant if one is used twice."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Backend
    from tests.oauth.provider import Provider

ROOT = Path(__file__).parents[2]
PROCESSES = 3
EXPIRIES = 200

pytestmark = [pytest.mark.node, pytest.mark.acceptance, pytest.mark.timeout(120)]


class Sharer:
    """A process of `tests.oauth.sharer`."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.oauth.sharer", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def tell(self, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture
def sharers(backend: Backend, provider: Provider) -> Iterator[list[Sharer]]:
    """Processes on one ledger, all with the same first refresh token in their settings."""
    grant = provider.grant()
    with ExitStack() as stack:
        made = []
        for _ in range(PROCESSES):
            made.append(Sharer(backend.url, provider.token_url, grant))
            stack.callback(made[-1].close)
        assert [one.said() for one in made] == ["ready"] * PROCESSES
        yield made


def test_O3_A30_one_refresh_an_expiry_and_no_revocation(sharers: list[Sharer], provider: Provider) -> None:
    """At each expiry all call at once: one of them refreshes, all send the new token, the grant is never revoked."""
    before, seen = provider.counts(), set()
    for _ in range(EXPIRIES):
        for one in sharers:
            one.tell(3600.0)
        tokens = {one.said() for one in sharers}
        assert len(tokens) == 1, tokens
        seen |= tokens
    after = provider.counts()
    assert after["refreshed"] - before["refreshed"] == EXPIRIES
    assert (after["revoked"], after["refused"]) == (before["revoked"], before["refused"])
    assert len(seen) == EXPIRIES
