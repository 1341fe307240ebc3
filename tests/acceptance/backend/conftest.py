"""Running tool servers, and an agent's plain HTTP client without any runtime around it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from examples.tool_backend.process import Backend, running_backend
from examples.tool_backend.store import OperationStore, connect
from examples.tool_backend.valkey import running_valkey

PATHS = {
    "provision-database": "/tools/provision-database",
    "debit": "/tools/debit",
    "send-webhook": "/tools/send-webhook",
    "legacy-debit": "/legacy/debit",
}
DEBIT = {"account": "acct-7", "amount": 250}


class Agent:
    """Sends single requests, each on a connection of its own, and never repeats one."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def call(
        self,
        key: str | None = None,
        *,
        tool: str = "debit",
        args: Any = DEBIT,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 10.0,
    ) -> httpx.Response:
        """Call a tool; ``body`` replaces the JSON text of ``args``."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            sent["Idempotency-Key"] = key
        content = json.dumps(args).encode() if body is None else body
        url = self.backend.url + PATHS[tool]
        return httpx.post(url, content=content, headers=sent, timeout=timeout, trust_env=False)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Read something."""
        return httpx.get(self.backend.url + path, headers=headers, trust_env=False)


def canonical(args: Any) -> bytes:
    """Return the compact, sorted JSON that Python writes."""
    return json.dumps(args, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture(scope="session")
def canonical_json():
    """The function that writes canonical JSON as Python does."""
    return canonical


@pytest.fixture
def key() -> str:
    """A key that no other test used, and that says nothing about the body."""
    return f"key-{uuid.uuid4()}"


@pytest.fixture
def composite():
    """A function from args, or body bytes, to a composite key ``<session>:<label>:<args_hash>``."""

    def make(body: bytes, label: str = "step_003") -> str:
        return f"{uuid.uuid4()}:{label}:{hashlib.sha256(body).hexdigest()}"

    return make


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """A Valkey that outlives every server."""
    with running_valkey() as url:
        yield url


@pytest.fixture(scope="session")
def standing_backend() -> Iterator[Backend]:
    """One server with the contract's own settings, for all tests."""
    with running_backend() as backend:
        yield backend


@pytest.fixture
def backend(standing_backend: Backend) -> Backend:
    """The standing server, with nothing left of earlier tests; started again if a test killed it."""
    if not standing_backend.running:
        standing_backend.restart()
    standing_backend.reset()
    return standing_backend


@pytest.fixture
def agent(backend: Backend) -> Agent:
    """A client of the standing server."""
    return Agent(backend)


@pytest.fixture(scope="session")
def standing_hasty_backend(valkey_url: str) -> Iterator[Backend]:
    """One server whose claims end after a second."""
    with running_backend(redis_url=f"{valkey_url}?db=1", claim_seconds=1) as backend:
        yield backend


@pytest.fixture
def hasty_agent(standing_hasty_backend: Backend) -> Agent:
    """A client of the server whose claims end after a second."""
    if not standing_hasty_backend.running:
        standing_hasty_backend.restart()
    standing_hasty_backend.reset()
    return Agent(standing_hasty_backend)


@pytest.fixture(scope="session")
def standing_guarded_backend(valkey_url: str) -> Iterator[Backend]:
    """One server that demands tokens, which live for two seconds."""
    with running_backend(redis_url=f"{valkey_url}?db=2", require_token=True, token_seconds=2) as backend:
        yield backend


@pytest.fixture
def guarded_agent(standing_guarded_backend: Backend) -> Agent:
    """A client of the server that demands tokens."""
    standing_guarded_backend.reset()
    return Agent(standing_guarded_backend)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio."""
    return "asyncio"


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[OperationStore]:
    """A store of operations without a server in front of it."""
    valkey = connect(f"{valkey_url}?db=3")
    yield OperationStore(valkey, claim_seconds=60, result_seconds=60)
    await valkey.flushdb()
    await valkey.aclose()
