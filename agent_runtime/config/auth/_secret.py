"""What all settings share that hold a secret."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol, Self, runtime_checkable

from agent_runtime.config._checks import shown
from agent_runtime.errors import ConfigError


@runtime_checkable
class AuthProvider(Protocol):
    """Anything that a tool can take as ``auth=``; ``principal`` names the identity, never the secret."""

    @property
    def principal(self) -> str:
        """The identity that requests are sent under; part of the operation."""
        ...


def check_auth(owner: str, auth: object) -> None:
    """Raise `ConfigError` unless ``auth`` is credentials, or None."""
    if auth is not None and (isinstance(auth, type) or not isinstance(auth, AuthProvider)):
        msg = f"{owner}auth must be credentials of agent_runtime, such as StaticToken(token=...), not {shown(auth)}"
        raise ConfigError(msg)


def can_be_sent(text: str) -> bool:
    """Whether a form can carry a text: all characters but lone surrogates, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_can_be_sent(name: str, text: str) -> None:
    """Raise `ConfigError`, which does not show it, for a text that no request can carry."""
    if not can_be_sent(text):
        msg = f"{name} holds a lone surrogate, which no request can carry; nothing was sent"
        raise ConfigError(msg)


class Secretive:
    """Settings and other values that hold a secret: they are shared as they are, and never pickled."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        msg = f"{type(self).__name__} holds a secret and is not pickled; make it anew in the other process"
        raise TypeError(msg)
