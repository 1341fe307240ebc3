"""Three processes share their tokens: one request an expiry, whatever the grant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.oauth.authority import SECRET, running_authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Backend
    from tests.oauth.provider import Provider

ROOT = Path(__file__).parents[2]
PROCESSES = 3
EXPIRIES = 200
SHARED_EXPIRIES = 100

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


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


@contextmanager
def sharers(ledger: str, *providers: tuple[str, dict[str, str]]) -> Iterator[list[Sharer]]:
    """Processes on one ledger, all with the same settings."""
    with ExitStack() as stack:
        made = []
        for _ in range(PROCESSES):
            made.append(Sharer(ledger, *map(json.dumps, providers)))
            stack.callback(made[-1].close)
        assert [one.said() for one in made] == ["ready"] * PROCESSES
        yield made


def expire(processes: list[Sharer], times: int) -> set[str]:
    """Let all tokens run out so many times; each time all processes call at once, and send equal tokens."""
    seen: set[str] = set()
    for _ in range(times):
        for one in processes:
            one.tell(3600.0)
        tokens = {one.said() for one in processes}
        assert len(tokens) == 1, tokens
        seen |= tokens
    return seen


@pytest.mark.node
def test_O3_A30_one_refresh_an_expiry_and_no_revocation(backend: Backend, provider: Provider) -> None:
    """At each expiry one process refreshes the rotating token, all send the new one, the grant is never revoked."""
    account = {"token_url": provider.token_url, "client_id": "app", "client_secret": SECRET, "account": "alice"}
    before = provider.counts()
    with sharers(backend.url, ("RefreshToken", account | {"refresh_token": provider.grant()})) as processes:
        seen = expire(processes, EXPIRIES)
    after = provider.counts()
    assert after["refreshed"] - before["refreshed"] == EXPIRIES
    assert (after["revoked"], after["refused"]) == (before["revoked"], before["refused"])
    assert len(seen) == EXPIRIES


def test_O1_A30_one_request_an_expiry_for_grants_that_do_not_rotate(backend: Backend) -> None:
    """At each expiry one process asks for the client's own token and one for the user's, and all send these two."""
    with running_authority() as (authority, url):
        client = {"token_url": url, "client_id": "agent", "client_secret": SECRET}
        providers = [("ClientCredentials", client), ("OnBehalfOf", client | {"scope": "api://orders/.default"})]
        with sharers(backend.url, *providers) as processes:
            seen = expire(processes, SHARED_EXPIRIES)
    asked = Counter(form["grant_type"][0].rpartition(":")[2] for form in authority.forms())
    assert asked == {"client_credentials": SHARED_EXPIRIES, "jwt-bearer": SHARED_EXPIRIES}
    assert len(seen) == SHARED_EXPIRIES
