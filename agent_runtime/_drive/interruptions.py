"""What a protocol is told of an effect that an interruption came into, or kept from beginning."""

from __future__ import annotations

from typing import Any

from agent_runtime._core.effects import Effect, Invoke, LeaseHeld, Load, NewId, Now, Persist, Random, Send
from agent_runtime._model import Raised, SendFailure
from agent_runtime.errors import CommitUnknown, ConfigError

Told = tuple[Any, BaseException | None]

STILL_DONE = (Persist, Load, Now, Random, NewId, LeaseHeld)
"""What is still performed after an interruption: it records, and begins nothing."""


def instead(effect: Effect[Any], stop: BaseException) -> Told:
    """Return what a protocol is told of an effect that is not begun because of an interruption."""
    name = type(stop).__name__
    if isinstance(effect, Send):
        return SendFailure(maybe_sent=False, error=name, interrupted=True), None
    if isinstance(effect, Invoke):
        return Raised(proof=True, transport=True, error=name, interrupted=True), None
    return None, stop


def cut_short(effect: Effect[Any], stop: BaseException) -> Told:
    """Return what a protocol is told of an effect that an interruption came into."""
    name = type(stop).__name__
    if isinstance(effect, Send):
        return SendFailure(maybe_sent=True, error=name, interrupted=True), None
    if isinstance(effect, Invoke):
        return Raised(proof=False, error=name, interrupted=True), None
    return None, stop


def failed(
    effect: Effect[Any], failure: Exception, stop: BaseException | None
) -> tuple[Any, BaseException | None, BaseException | None]:
    """Return what a protocol is told of an effect that raised, and what is raised once that is recorded.

    Senders and function tools return what they saw; an exception of theirs is a fault of set-up, such as a mock without
    a route. It is recorded like an interruption, so that no row is left behind, and then it goes to the caller.
    """
    if not isinstance(effect, Send | Invoke):
        return None, failure, stop
    told, _ = instead(effect, failure) if isinstance(failure, ConfigError) else cut_short(effect, failure)
    return told, None, stop or failure


def lost_commit() -> CommitUnknown:
    """Return the error for a write whose answer an interrupted caller no longer waits for."""
    return CommitUnknown(
        "the caller was interrupted and the ledger did not answer in time; it may have taken the write"
    )
