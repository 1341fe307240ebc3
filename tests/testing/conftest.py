"""What tests of the testing kit share: a tool that honours keys, one that honours none, and a worker elsewhere."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from agent_runtime import Idempotency, Tool, ToolContract
from agent_runtime.config import presets
from agent_runtime.ledger import Owner, SqlLedger, open_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_runtime.testing import VirtualClock

URL = "https://tools.example.com/tools/debit"
DEBIT = Tool("debit", url=URL, contract=ToolContract(idempotency=Idempotency()))
LOOKED_UP = Tool("debit", url=URL, contract=presets.TOOL_BACKEND)
KEYLESS = Tool("debit", url=URL, contract=ToolContract())


@pytest.fixture
def elsewhere(backend) -> Iterator[Callable[..., str]]:
    """Claims a session as a worker of another machine would, on a ledger of its own, and tells what became of it."""
    owner = Owner(token=str(uuid.uuid4()), host="elsewhere", pid=1, boot_id="", pid_namespace="")
    opened: list[SqlLedger] = []

    def claim(name: str, clock: VirtualClock | None = None) -> str:
        opened.append(open_ledger(backend.url, clock=clock))
        return opened[-1].claim(name=name, tenant="default", owner=owner).result().status

    yield claim
    for ledger in opened:
        ledger.close()
