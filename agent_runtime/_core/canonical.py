"""Canonical JSON: one text for one value, so that equal arguments have equal bytes and an equal hash.

`canonical_json` writes arguments, `parse_json` reads what a model wrote; both refuse what JSON cannot carry, with the
place where it stands. Whatever `parse_json` returns, `canonical_json` takes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import rfc8785

from agent_runtime.errors import ArgumentsRefused, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Scheme = Literal["jcs", "python-json"]

MAX_DEPTH: Final = 64
"""How many objects and arrays may stand inside each other."""

MAX_DIGITS: Final = 4300
"""How many digits an integer may have: the most that Python reads and writes without being told otherwise."""

MAX_TEXT: Final = 32 * 1024 * 1024
"""Longest text that `parse_json` takes by default: bytes, or characters of a str."""

_EXACT_FLOAT: Final = 2.0**53
_INTEGER_BOUND: Final = 10**MAX_DIGITS

# From here on float.__repr__ has no exponent, and RFC 8785 writes a number with a fraction just as Python does.
_PLAIN_FLOAT: Final = 1e-4

_ENCODERS: Final[dict[str, json.JSONEncoder]] = {
    # check_circular off: the walk before has bounded the depth. allow_nan off: a second bar behind the walk.
    "jcs": json.JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ),
    "python-json": json.JSONEncoder(check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")),
}

# What the standard encoder's output must not hold if it is to be taken as it is. For jcs: a lone surrogate, or a
# character beyond U+FFFF, since Python would sort a name that has one behind U+FFFD and UTF-16 sorts it before U+E000.
# For python-json: an escape that is a lone surrogate or half of a pair.
_LOOK_CLOSER: Final[dict[str, re.Pattern[str]]] = {
    "jcs": re.compile("[\ud800-\udfff\U00010000-\U0010ffff]"),
    "python-json": re.compile(r"\\ud[89a-f]"),
}

# Exact types, never their subclasses.
_ATOMS: Final = frozenset({str, bool, type(None)})
_CONTAINERS: Final = frozenset({dict, list, tuple})
_NAMES: Final = frozenset({str})
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

# A string (also one that never ends, so that no text costs quadratic time), or a run of brackets.
_BRACKETS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]+|[\]}]+', re.DOTALL)


def canonical_json(value: object, scheme: Scheme = "jcs") -> bytes:
    """Write a JSON value as its one canonical text, in UTF-8.

    ``jcs`` is RFC 8785 (https://www.rfc-editor.org/rfc/rfc8785), but an integer keeps all its digits where the RFC
    would round it to a double: equal bytes mean equal values and the other way round, ``1`` and ``1.0`` being equal
    and ``1`` and ``True`` not. ``python-json`` is the text of ``json.dumps(value, sort_keys=True,
    separators=(",", ":"))``, for servers that hash the body so; there ``1`` and ``1.0`` are two texts.

    Both take None, bool, int, float, str, list, tuple and dict; of a subclass the plain value is taken, but an enum
    member is refused, as is everything else that JSON does not have.

    Args:
        value: the arguments.
        scheme: ``jcs`` or ``python-json``.

    Raises:
        ArgumentsRefused: NaN and infinity; floats without a fraction beyond 2**53; integers of more than `MAX_DIGITS`
            digits; names that are no str; lone surrogates; more than `MAX_DEPTH` levels, and so what contains
            itself; values of any other type. ``path`` says where.
        ConfigError: the scheme is not known.
    """
    if scheme not in _ENCODERS:
        message = f"canonical JSON has no scheme {scheme!r}; choose one of {', '.join(_ENCODERS)}"
        raise ConfigError(message)
    fast = _fast(value, scheme)
    return _careful(value, scheme) if fast is None else fast


def parse_json(text: str | bytes, *, max_length: int = MAX_TEXT) -> Any:
    """Read JSON that is to become arguments, and refuse what could be read in two ways.

    Args:
        text: the JSON text; bytes are UTF-8 without a byte order mark.
        max_length: longest text that is looked at, in bytes (in characters, of a str).

    Returns:
        A value of plain types that `canonical_json` takes.

    Raises:
        ArgumentsRefused: text that is no JSON or no UTF-8 or too long; a name that stands twice in an object; NaN,
            Infinity, numbers beyond a double's range (``1e400``); and all that `canonical_json` refuses.
    """
    if len(text) > max_length:
        _refuse(f"JSON text of {len(text)} is longer than the limit of {max_length}")
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        _check_nesting(decoded)
        value = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ValueError as error:  # not JSON, not UTF-8, or an integer longer than Python converts
        # A decoding error's own text shows bytes of the arguments, so only its reason is passed on.
        reason = error.reason if isinstance(error, UnicodeDecodeError) else error
        _refuse(f"not readable as JSON: {reason}")
    return _plain(value, [])


def digest(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _fast(value: object, scheme: Scheme) -> bytes | None:
    """Write by the standard library's C encoder; None where its text may not be what `_careful` writes."""
    if not _is_simple(value, 0):
        return None
    try:
        text = _ENCODERS[scheme].encode(value)
    except ValueError:  # the process converts fewer digits than MAX_DIGITS; `_careful` says so
        return None
    if (scheme != "jcs" or not text.isascii()) and _LOOK_CLOSER[scheme].search(text):
        return None
    return text.encode("utf-8")


def _is_simple(value: Any, depth: int) -> bool:
    """Whether both encoders write ``value`` alike in either scheme, what strings hold left aside. Refuses nothing."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is int:
        return bool(-_INTEGER_BOUND < value < _INTEGER_BOUND)
    if kind is float:
        return _PLAIN_FLOAT <= abs(value) < _EXACT_FLOAT and not value.is_integer()
    if depth >= MAX_DEPTH or kind not in _CONTAINERS:
        return False
    if kind is dict:
        if not _NAMES.issuperset(map(type, value)):
            return False
        value = value.values()
    # Most members are atoms: a set look-up is a fraction of a call.
    return all(type(item) in _ATOMS or _is_simple(item, depth + 1) for item in value)


def _careful(value: object, scheme: Scheme) -> bytes:
    """Write any value, or say what of it is refused and where. The meaning of a scheme; `_fast` is only faster."""
    plain = _plain(value, [])
    try:
        text = _jcs(plain) if scheme == "jcs" else _ENCODERS[scheme].encode(plain)
    except ValueError:
        _refuse("an integer has more digits than this process converts (sys.set_int_max_str_digits)")
    return text.encode("utf-8")


def _jcs(value: Any) -> str:
    """RFC 8785 with exact integers, of a value that `_plain` let through."""
    if isinstance(value, dict):
        names = sorted(value, key=_utf16)
        return "{" + ",".join([f"{_jcs(name)}:{_jcs(value[name])}" for name in names]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_jcs(item) for item in value]) + "]"
    if isinstance(value, float):
        return rfc8785.dumps(value).decode("ascii")
    return _ENCODERS["jcs"].encode(value)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


def _plain(value: Any, trail: list[str | int]) -> Any:
    """Copy ``value`` into exact built-in types, lists for tuples; ``trail`` are the names and indexes that led here."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, Enum):
        _refuse(f"{type(value).__name__} is an enum; pass its .value, or the whole in a pydantic model", trail)
    if isinstance(value, str):
        return _plain_text(value, trail)
    if isinstance(value, int):
        return _plain_integer(value, trail)
    if isinstance(value, float):
        return _plain_float(value, trail)
    if not isinstance(value, dict | list | tuple):
        kind = type(value).__name__
        _refuse(f"JSON has no {kind}; pass text or numbers, or the whole in a pydantic model", trail)
    if len(trail) >= MAX_DEPTH:
        _refuse(f"nested deeper than {MAX_DEPTH} levels, or it contains itself", trail)
    if isinstance(value, dict):
        return _plain_object(value.items(), trail)
    return list(_plain_items(value, trail))


def _plain_items(items: Iterable[Any], trail: list[str | int]) -> Iterator[Any]:
    for index, item in enumerate(items):
        trail.append(index)
        yield _plain(item, trail)
        trail.pop()


def _plain_object(members: Iterable[tuple[Any, Any]], trail: list[str | int]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, item in members:
        if not isinstance(name, str) or isinstance(name, Enum):
            _refuse(f"a member's name is {type(name).__name__}; names are plain text in JSON", trail)
        exact = str.__str__(name)
        trail.append(exact)
        _plain_text(exact, trail)
        # Two keys of a subclass of str may be told apart by Python and still be one name.
        if exact in plain:
            _refuse("the name stands twice in its object", trail)
        plain[exact] = _plain(item, trail)
        trail.pop()
    return plain


def _plain_text(value: str, trail: list[str | int]) -> str:
    exact = str.__str__(value)
    try:
        exact.encode("utf-8")
    except UnicodeEncodeError:
        _refuse("text with a lone surrogate (half a character), which UTF-8 cannot carry", trail)
    return exact


def _plain_integer(value: int, trail: list[str | int]) -> int:
    exact = int.__int__(value)
    if not -_INTEGER_BOUND < exact < _INTEGER_BOUND:
        _refuse(f"an integer of more than {MAX_DIGITS} digits", trail)
    return exact


def _plain_float(value: float, trail: list[str | int]) -> float:
    exact = float.__float__(value)
    if not math.isfinite(exact):
        _refuse("JSON has no NaN and no infinity", trail)
    if abs(exact) > _EXACT_FLOAT and exact.is_integer():
        # Its text would be that of another integer: 1e23 is 99999999999999991611392.
        _refuse("a float without a fraction beyond 2**53 stands for several integers; pass an int or text", trail)
    return exact


def _refuse(reason: str, trail: list[str | int] | None = None) -> NoReturn:
    if trail is None:
        raise ArgumentsRefused(reason, path="") from None
    path = "$" + "".join(_path_part(part) for part in trail)
    message = f"{path}: {reason}"
    raise ArgumentsRefused(message, path=path) from None


def _path_part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if _PLAIN_NAME.fullmatch(part) else f"[{json.dumps(part[:64])}]"


def _check_nesting(text: str) -> None:
    """Bound the depth before json.loads sees the text: its C recursion is safe only under Python's default limit."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _BRACKETS.finditer(text):
        if text[match.start()] in "[{":
            depth += match.end() - match.start()
            if depth > MAX_DEPTH:
                _refuse(f"JSON nested deeper than {MAX_DEPTH} levels")
        elif text[match.start()] != '"':
            depth -= match.end() - match.start()


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in members:
        if name in found:
            _refuse(f"the name {json.dumps(name[:64])} stands twice in one object")
        found[name] = item
    return found


def _no_constant(text: str) -> NoReturn:
    _refuse(f"{text} is no JSON number")
