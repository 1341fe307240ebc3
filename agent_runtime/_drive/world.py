"""The inputs that the core does without: clock, randomness, ledger, senders. Tests give others."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from agent_runtime.ledger import MachineClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.effects import Steps
    from agent_runtime.config import Auth
    from agent_runtime.ledger import Ledger

R = TypeVar("R")

logger: Final = logging.getLogger("agent_runtime")


class Clock(Protocol):
    """Wall clock, boot-time clock and sleep, in seconds."""

    def wall(self) -> float:
        """Return UTC epoch seconds."""
        ...

    def boottime(self) -> float:
        """Return seconds since boot, sleep of the machine included."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for so many seconds."""
        ...

    async def sleep_async(self, seconds: float) -> None:
        """Wait for so many seconds without blocking the loop."""
        ...


class SystemClock(MachineClock):
    """The machine's own clocks."""

    def sleep(self, seconds: float) -> None:
        """Block for so many seconds."""
        time.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Wait for so many seconds without blocking the loop."""
        await asyncio.sleep(seconds)


class Probe(Protocol):
    """What tests put between each protocol and its driver: it sees every effect before it is performed, and its result.

    What it raises of its own leaves the driver at once, as a crash would: nothing more is performed or recorded.
    """

    def __call__(self, steps: Steps[R], session_id: str) -> Steps[R]:
        """Return a protocol that passes on the effects of ``steps``; ``session_id`` is empty outside a session."""
        ...


def _unwatched(steps: Steps[R], session_id: str) -> Steps[R]:  # noqa: ARG001
    return steps


def _new_id() -> str:
    return str(uuid.uuid4())


@dataclass(kw_only=True)
class World:
    """What a driver performs effects with.

    Attributes:
        auth: credentials of tools that bring none.
        new_id: random UUIDs; session ids have to be unguessable.
        probe: sees each protocol's effects; for tests.
    """

    ledger: Ledger
    clock: Clock = field(default_factory=SystemClock)
    random: Callable[[], float] = field(default=random.SystemRandom().random)
    new_id: Callable[[], str] = field(default=_new_id)
    auth: Auth | None = None
    probe: Probe = field(default=_unwatched)
