"""How a protocol goes on, and what it is told of an effect that an interruption came into or kept from beginning."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from agent_runtime._core.effects import Effect, Invoke, LeaseHeld, Load, NewId, Now, Persist, Random, Send, Steps
from agent_runtime._model import Raised, SendFailure
from agent_runtime.errors import CommitUnknown, ConfigError

R = TypeVar("R")
Told = tuple[Any, BaseException | None]

STILL_DONE = (Persist, Load, Now, Random, NewId, LeaseHeld)
"""What is still performed after an interruption: it records, and begins nothing."""


class Walk(Generic[R]):
    """A protocol on its way through a driver.

    Attributes:
        value, error: what it is told next.
        stop: an interruption, or a fault of set-up, that is raised once the protocol has recorded what it has to.
        result: what it returned.
    """

    result: R

    def __init__(self, steps: Steps[R]) -> None:
        self._steps = steps
        self.value: Any = None
        self.error: BaseException | None = None
        self.stop: BaseException | None = None

    def ask(self) -> Effect[Any] | None:
        """Return the next effect to perform; None = the protocol has ended, and `result` is there."""
        while True:
            try:
                effect = self._steps.throw(self.error) if self.error is not None else self._steps.send(self.value)
            except StopIteration as end:
                if self.stop is not None:
                    raise self.stop from None
                self.result = end.value
                return None
            except Exception as error_of_steps:
                if self.stop is not None and error_of_steps is not self.stop:
                    raise self.stop from error_of_steps
                raise
            if self.stop is None or isinstance(effect, STILL_DONE):
                self.value, self.error = None, None
                return effect
            self.value, self.error = instead(effect, self.stop)

    def told(self, value: Any, passing: BaseException | None) -> None:
        """Note what an effect brought, and an error of ours that has to pass through once it is recorded."""
        self.value, self.stop = value, self.stop or passing

    def failed(self, effect: Effect[Any], failure: Exception) -> None:
        """Note that an effect raised.

        Senders and function tools return what they saw; an exception of theirs is a fault of set-up, such as a mock
        without a route. It is recorded like an interruption, so that no row is left behind, and then it goes to the
        caller.
        """
        if not isinstance(effect, Send | Invoke):
            self.error = failure
            return
        self.value, _ = instead(effect, failure) if isinstance(failure, ConfigError) else cut_short(effect, failure)
        self.stop = self.stop or failure


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


def lost_commit() -> CommitUnknown:
    """Return the error for a write whose answer an interrupted caller no longer waits for."""
    return CommitUnknown(
        "the caller was interrupted and the ledger did not answer in time; it may have taken the write"
    )
