"""Checks that settings share; each refuses with what to write instead."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

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


def settle(settings: object, **values: float) -> None:
    """Set checked values on a frozen object."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise `ConfigError` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        msg = f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}"
        raise ConfigError(msg)


def flag(name: str, value: object) -> bool:
    """Return a Boolean, or raise `ConfigError`: a text like "no" would count as true."""
    if not isinstance(value, bool):
        msg = f"{name} must be True or False, not {shown(value)}"
        raise ConfigError(msg)
    return value


def text(name: str, value: object) -> str:
    """Return a text that says something and that both databases can store, or raise `ConfigError`."""
    if not isinstance(value, str):
        msg = f"{name} must be text, not {shown(value)}"
        raise ConfigError(msg)
    if not value.strip() or "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        msg = f"{name} must be a text that is not empty, without NUL and lone surrogates"
        raise ConfigError(msg)
    return value


def function(name: str, value: object) -> None:
    """Raise `ConfigError` unless the value can be called."""
    if not callable(value):
        msg = f"{name} must be a function, not {shown(value)}"
        raise ConfigError(msg)


def shown(value: object) -> str:
    """Return what kind of value was given; the value itself may be a secret."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return type(value).__name__


# -- types of settings ------------------------------------------------------------------------------------------------

_EXAMPLES: Final = {
    "ToolContract": "ToolContract(idempotency=Idempotency())",
    "Idempotency": "Idempotency()",
    "HeaderCarrier": "HeaderCarrier(name='X-Request-Id')",
    "HttpLookup": "HttpLookup(url='/operations/{key}')",
    "Member": "Member(name='state', equals='done')",
    "ReplayMark": "ReplayMark(header='X-Replayed')",
    "Timeouts": "Timeouts(step=300)",
    "RetryPolicy": "RetryPolicy(attempts=5)",
    "PollPolicy": "PollPolicy(bound=600)",
    "JobAdapter": "JobAdapter(start=..., read=...)",
    "PrivateKey": "PrivateKey(key=...)",
}
_WORDS: Final[dict[Any, str]] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
    timedelta: "a timedelta",
}


def check_settings(settings: object) -> None:
    """Hold the fields of a settings object to their annotations; a list where a tuple is meant becomes one.

    Raises:
        ConfigError: names class and field, says what it takes, what kind of value was given, and what to write.
    """
    kind: type = type(settings)
    for name, hint in _hints(kind).items():
        given = getattr(settings, name)
        value = checked(kind.__name__, name, given, hint)
        if value is not given:
            object.__setattr__(settings, name, value)


def check_arguments(owner: str, taker: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Hold some arguments of a function to its annotations; raises as `check_settings`."""
    hints = _hints(taker)
    for name, value in given.items():
        checked(owner, name, value, hints[name])


def checked(owner: str, name: str, value: Any, hint: Any) -> Any:
    """Return a value that fits its annotation, or raise `ConfigError`."""
    if isinstance(value, list) and any(get_origin(one) is tuple for one in _choices(hint)):
        value = tuple(value)
    for path, wrong, wanted in _misfits(name, value, hint):
        told = repr(wrong) if _has_words(wanted) and isinstance(wrong, str) else shown(wrong)
        example = _example(hint)
        remedy = f"; write {name}={example}" if example else ""
        msg = f"{owner}: {path} takes {_words(wanted)}, not {told}{remedy}"
        raise ConfigError(msg)
    return value


@functools.cache
def _hints(owner: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(owner)


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _misfits(path: str, value: Any, hint: Any) -> Iterator[tuple[str, Any, Any]]:
    """Tell what does not fit: where, the value, and what was wanted; in a tuple or mapping it is the item."""
    if _fits(value, hint):
        return
    for choice in _choices(hint):
        kind, parts = get_origin(choice), get_args(choice)
        if kind is tuple and isinstance(value, tuple):
            for index, item in enumerate(value):
                yield from _misfits(f"{path}[{index}]", item, parts[0])
        elif kind is Mapping and isinstance(value, Mapping):
            for key, item in value.items():
                yield from _misfits(f"a name in {path}", key, parts[0])
                yield from _misfits(f"{path}[{key!r}]", item, parts[1])
    yield path, value, hint


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if kind in {Union, UnionType}:
        return any(_fits(value, choice) for choice in parts)
    if kind is Literal:
        return isinstance(value, str) and value in parts
    if kind is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if kind is Mapping:
        whole = isinstance(value, Mapping)
        return whole and all(_fits(key, parts[0]) and _fits(item, parts[1]) for key, item in value.items())
    if kind is Callable:
        return callable(value)
    if kind is type:
        return isinstance(value, type) and issubclass(value, parts[0])
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _has_words(hint: Any) -> bool:
    return any(get_origin(choice) is Literal for choice in _choices(hint))


def _words(hint: Any) -> str:
    words = [word for choice in _choices(hint) for word in _words_of(choice)]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _words_of(hint: Any) -> list[str]:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return [repr(word) for word in parts]
    if kind is tuple:
        return [f"a tuple (each item {_words(parts[0])})"]
    if kind is Mapping:
        return [f"a dict (each value {_words(parts[1])})"]
    if kind is Callable:
        return ["a function"]
    if kind is type:
        return [f"a subclass of {parts[0].__module__.partition('.')[0]}.{parts[0].__name__}"]
    return [_WORDS.get(hint) or hint.__name__]


def _example(hint: Any) -> str:
    """Return what could be written for a setting that takes more than plain values, or nothing."""
    for choice in _choices(hint):
        kind, parts = get_origin(choice), get_args(choice)
        if kind is tuple:
            return f"({_example(parts[0]) or _plain_example(parts[0])},)"
        if kind is Mapping:
            return f"{{'name': {_plain_example(parts[1])}}}"
        if getattr(choice, "__name__", "") in _EXAMPLES:
            return _EXAMPLES[choice.__name__]
    return ""


def _plain_example(hint: Any) -> str:
    first = _choices(hint)[0]
    return repr(get_args(first)[0]) if get_origin(first) is Literal else "402" if first is int else "'value'"


# -- headers ----------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def header_name(name: object) -> str:
    """Return an HTTP header name (RFC 9110 section 5.6.2), or raise `ConfigError`."""
    if not isinstance(name, str):
        msg = f"the name of an HTTP header is text, not {shown(name)}"
        raise ConfigError(msg)
    if _TOKEN.fullmatch(name) is None:
        msg = f"{name!r} is no HTTP header name"
        raise ConfigError(msg)
    return name


def header_value(name: str, value: object) -> str:
    """Return a header value, or raise `ConfigError`; the message never holds the value."""
    if not isinstance(value, str):
        msg = f"the value for header {name!r} must be text, not {shown(value)}; nothing was sent"
        raise ConfigError(msg)
    if not value.isascii() or any(ord(char) < 0x20 or ord(char) == 0x7F for char in value):
        msg = f"the value for header {name!r} holds characters that HTTP cannot carry; nothing was sent"
        raise ConfigError(msg)
    return value
