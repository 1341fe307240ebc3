"""Which step a function tool is running for, for code that can take no parameter."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurrentStep:
    """The step whose function is running: session id, label, key."""

    session_id: str
    step: str
    key: str


current: ContextVar[CurrentStep | None] = ContextVar("agent_runtime_current_step", default=None)


def current_step() -> CurrentStep | None:
    """Return the step whose function tool is running in this thread or task, or None."""
    return current.get()


def current_key() -> str | None:
    """Return the idempotency key of the function tool that is running in this thread or task, or None."""
    step = current.get()
    return None if step is None else step.key
