"""What all settings share that hold a secret."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, Self, runtime_checkable


@runtime_checkable
class AuthProvider(Protocol):
    """Anything that a tool can take as ``auth=``; ``principal`` names the identity, never the secret."""

    @property
    def principal(self) -> str:
        """The identity that requests are sent under; part of the operation."""
        ...


class Secretive:
    """Settings that hold a secret: they are shared as they are, and never pickled."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        msg = f"{type(self).__name__} holds a secret and is not pickled; make it anew in the other process"
        raise TypeError(msg)
