"""Whose httpx client sends: the user's own, or one made here when it is first needed."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from weakref import WeakKeyDictionary

import httpx

from agent_runtime.errors import ConfigError


def library_of(client: Any, class_name: str) -> Any:
    """Return the module (httpx or httpx2) that a client comes from; its requests must be of the same library.

    Raises:
        ConfigError: it is no client, or one of the other kind (``Client`` for blocking, ``AsyncClient`` for async).
    """
    if client is None:
        return httpx
    for cls in type(client).__mro__:
        root = cls.__module__.partition(".")[0]
        if root in {"httpx", "httpx2"} and cls.__name__ == class_name:
            return sys.modules[root]
    message = f"client= must be an httpx or httpx2 {class_name}, not {type(client).__name__}"
    raise ConfigError(message)


def _settings(*, trust_env: bool) -> dict[str, Any]:
    return {
        "trust_env": trust_env,
        # How many requests are out at once is the caller's matter; 100 slow tools must not make the next one fail.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
        # No cookie is ever sent by us; one that is kept is only a leak from one tool to another.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    }


class OwnClient:
    """A blocking client made at first use, and again in a forked child (sockets must not be shared)."""

    def __init__(self, *, trust_env: bool) -> None:
        self._trust_env = trust_env
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._pid = 0

    def get(self) -> httpx.Client:
        """Return the client of this process."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client = httpx.Client(**_settings(trust_env=self._trust_env))
                self._pid = os.getpid()
            return self._client

    def close(self) -> None:
        """Close it; a later use makes a new one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()


class OwnAsyncClient:
    """An async client for each event loop that uses it: a connection made in one cannot be read in another."""

    def __init__(self, *, trust_env: bool) -> None:
        self._trust_env = trust_env
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    def get(self) -> httpx.AsyncClient:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(**_settings(trust_env=self._trust_env))
        return client

    async def close(self) -> None:
        """Close the running loop's client; a later use makes a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            with suppress(Exception):
                await client.aclose()
