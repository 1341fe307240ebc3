"""A ledger one of whose methods does something first, or instead."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime.ledger import Ledger


class Odd:
    """Passes everything on, but for the methods that have a hook: it is given the method and its arguments."""

    def __init__(self, ledger: Any, hooks: dict[str, Callable[..., Any]]) -> None:
        self._ledger = ledger
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)
        return partial(self._hooks[name], method) if name in self._hooks else method


def odd(ledger: Any, **hooks: Callable[..., Any]) -> Ledger:
    """Return a ledger with hooks in place of some of its methods."""
    return cast("Ledger", Odd(ledger, hooks))


def once(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that serves the first call only; later ones go through."""
    left = [hook]

    def serve(method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return left.pop()(method, *args, **named) if left else method(*args, **named)

    return serve
