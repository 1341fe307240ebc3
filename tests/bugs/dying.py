"""A ledger that ends with its process: from one write on, nothing more of this worker reaches the database."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from agent_runtime._model import Advance

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._model import Write


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the product can do anything after it, for its ledger takes nothing more."""


class _Wrapped:
    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class DyingLedger(_Wrapped):
    """Dies at the first write of a state, before or after it stands in the database."""

    def __init__(self, ledger: Any, state: str, *, after: bool) -> None:
        super().__init__(ledger)
        self._state = state
        self._after = after
        self.dead = False

    def write(self, entries: list[Write]) -> Future[Any]:
        if self.dead:
            raise Killed
        if advances_to(entries, self._state):
            self.dead = True
            if self._after:
                self._ledger.write(entries).result(20)
            raise Killed
        return self._ledger.write(entries)

    def release(self, lease: Any) -> Future[None]:
        if self.dead:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._ledger.release(lease)


class BrokenLedger(_Wrapped):
    """Fails writes that a test names."""

    def __init__(self, ledger: Any, fails: Callable[[list[Write]], Exception | None]) -> None:
        super().__init__(ledger)
        self._fails = fails

    def write(self, entries: list[Write]) -> Future[Any]:
        error = self._fails(entries)
        if error is None:
            return self._ledger.write(entries)
        failed: Future[Any] = Future()
        failed.set_exception(error)
        return failed


def advances_to(entries: list[Write], *states: str) -> bool:
    """Whether a write brings an operation into one of these states."""
    return any(isinstance(entry, Advance) and entry.change.state in states for entry in entries)
