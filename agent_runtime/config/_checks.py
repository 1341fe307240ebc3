"""Checks that settings share; each refuses with what to write instead."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from agent_runtime.errors import ConfigError

Duration = float | timedelta


def seconds(name: str, value: object, *, least: float = 0.0, zero: bool = True) -> float:
    """Return a duration in seconds, or raise `ConfigError` if it is none, negative, zero where not allowed, or NaN."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or math.isnan(number):
        msg = f"{name} must be seconds (a number) or a timedelta, not {value!r}"
        raise ConfigError(msg)
    if number < least or (number == 0 and not zero):
        bound = f"at least {least:g}" if number < least else "more than 0"
        msg = f"{name} must be {bound} seconds, not {value!r}"
        raise ConfigError(msg)
    return float(number)


def count(name: str, value: object, *, least: int = 1) -> int:
    """Return a whole number of at least ``least``, or raise `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"{name} must be a whole number of at least {least}, not {value!r}"
        raise ConfigError(msg)
    return value


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise `ConfigError` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        msg = f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}"
        raise ConfigError(msg)


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def header_name(name: object) -> str:
    """Return an HTTP header name (RFC 9110 section 5.6.2), or raise `ConfigError`."""
    if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
        msg = f"{name!r} is no HTTP header name"
        raise ConfigError(msg)
    return name


def header_value(name: str, value: object) -> str:
    """Return a header value, or raise `ConfigError`; the message never holds the value."""
    if (
        not isinstance(value, str)
        or not value.isascii()
        or any(ord(char) < 0x20 or ord(char) == 0x7F for char in value)
    ):
        msg = f"the value for header {name!r} holds characters that HTTP cannot carry; nothing was sent"
        raise ConfigError(msg)
    return value
