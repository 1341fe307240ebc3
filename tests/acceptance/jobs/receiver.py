"""A process that takes callbacks: the ASGI app as a route of a framework, served by uvicorn; dies where it is told to.

python -m tests.acceptance.jobs.receiver LEDGER SERVER PORT WHERE FRAMEWORK
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Route

from agent_runtime import AsyncRuntime, Idempotency, PollPolicy, Runtime, Tool, ToolContract, webhooks
from agent_runtime.ledger import open_ledger
from agent_runtime.webhooks import StandardWebhook
from tests.credentials import WEBHOOK_SECRET

SECRET = WEBHOOK_SECRET


class Announcing(uvicorn.Server):
    """Prints its port once it accepts connections."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


class Dying:
    """A ledger whose process is killed at its n-th callback: before the event is kept, or before it is applied."""

    def __init__(self, inner: Any, where: str) -> None:
        self._inner = inner
        self._where = where

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def keep_event(self, **given: Any) -> Any:
        if self._where == "keep":
            os.kill(os.getpid(), signal.SIGKILL)
        return self._inner.keep_event(**given)

    def write(self, entries: Any) -> Any:
        if self._where == "apply":
            os.kill(os.getpid(), signal.SIGKILL)
        future = self._inner.write(entries)
        if self._where == "applied":
            future.result()
            os.kill(os.getpid(), signal.SIGKILL)
        return future


def mounted(framework: str, ledger: Any, tool: Any) -> Any:
    """Return the framework's application: FastAPI over the async runtime, Starlette over the blocking one."""
    given = {"verify": StandardWebhook(SECRET), "source": "films"}
    if framework == "fastapi":
        app = FastAPI()
        app.add_route("/hooks/films", webhooks.app(AsyncRuntime(ledger, tools=[tool]), **given))
        return app
    return Starlette(routes=[Route("/hooks/films", webhooks.app(Runtime(ledger, tools=[tool]), **given))])


def main(url: str, server: str, port: int, where: str, framework: str) -> None:
    contract = ToolContract(idempotency=Idempotency(), polling=PollPolicy(webhook="films"))
    tool = Tool("transcode", url=f"{server}/v1/transcode", contract=contract)
    app = mounted(framework, Dying(open_ledger(url), where), tool)
    Announcing(uvicorn.Config(app, port=port, log_level="warning")).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
