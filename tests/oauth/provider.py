"""Runs `oidc-provider` (npm), a certified authorisation server that nobody here wrote.

Its packages are installed once, by `npm ci`, into a cache folder outside the tree: `AGENT_RUNTIME_TEST_CACHE`, or
`~/.cache/agent-runtime-tests`. It needs Node; tests that use it bear the marker `node`, and fail where there is none.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from joserfc.jwk import RSAKey

from tests.credentials import secret
from tests.leaks import AUTHORISATION_SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("op")
NEEDS_NODE = "needs Node 20 or newer with npm; without it, leave these tests out with -m 'not node'"


@dataclass(frozen=True)
class Provider:
    """A running provider; its clients stand in op/server.mjs."""

    issuer: str
    private_key: str

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/token"

    def _ask(self, path: str, **query: str) -> dict[str, Any]:
        answer = httpx.get(f"{self.issuer}/_test/{path}", params=query, trust_env=False)
        answer.raise_for_status()
        return answer.json()

    def counts(self) -> dict[str, Any]:
        """Return how many tokens were refreshed, issued and refused, and how many grants revoked."""
        return self._ask("counts")

    def grant(self) -> str:
        """Return the refresh token of a new grant of alice to the client ``app``."""
        return secret(str(self._ask("grant")["refresh_token"]))

    def token(self, value: str) -> dict[str, Any]:
        """Return what the provider knows of an access token."""
        return self._ask("token", token=value)


@contextmanager
def running_provider(*, lifetime: int = 3600) -> Iterator[Provider]:
    """Run a provider until the block ends."""
    node = shutil.which("node")
    if node is None:
        raise RuntimeError(NEEDS_NODE)
    key = _key()
    env = os.environ | {"CLIENT_JWK": json.dumps(key.as_dict(private=False)), "ACCESS_TOKEN_SECONDS": str(lifetime)}
    process = subprocess.Popen(
        [node, str(_installed() / "server.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        issuer = process.stdout.readline().decode().strip()
        if not issuer:
            msg = f"the provider did not start; {NEEDS_NODE}"
            raise RuntimeError(msg)
        AUTHORISATION_SERVERS.add(issuer)
        yield Provider(issuer, key.as_pem(private=True).decode())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


@cache
def _key() -> RSAKey:
    return RSAKey.generate_key(2048)


def _installed() -> Path:
    """Return the folder with the provider's packages, installing them if this is the first use."""
    lock = (SOURCE / "package-lock.json").read_bytes() + (SOURCE / "server.mjs").read_bytes()
    root = os.environ.get("AGENT_RUNTIME_TEST_CACHE") or Path.home() / ".cache" / "agent-runtime-tests"
    folder = Path(root) / f"op-{hashlib.sha256(lock).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            npm = shutil.which("npm")
            if npm is None:
                raise RuntimeError(NEEDS_NODE)
            for name in ("package.json", "package-lock.json", "server.mjs"):
                shutil.copy(SOURCE / name, folder / name)
            subprocess.run(
                [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                cwd=folder,
                check=True,
                capture_output=True,
                timeout=300,
            )
            (folder / "done").touch()
    return folder
