"""What keys of each format look like, and whether a carrier can hold them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from agent_runtime._model.naming import MAX_LABEL
from agent_runtime.errors import ConfigError

Format = Literal["composite", "sha256", "uuid"]

MIN_SECRET: Final = 16
"""Shortest deployment secret, in bytes; a shorter one could be found by trying."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyFormat:
    """What a key format can look like, so that it can be checked against a carrier before any key exists.

    Attributes:
        shortest, longest: length of its keys in characters, least and most.
        samples: keys that together hold each character the format can hold.
        meaning: one sentence for messages and pages.
    """

    shortest: int
    longest: int
    samples: tuple[str, ...]
    meaning: str


_ID_SAMPLE: Final = "01234567-89ab-4cde-8f01-23456789abcd"
_HASH_SAMPLE: Final = "0123456789abcdef" * 4
_LABEL_SAMPLES: Final = (
    "step_001",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ.abcdefghijklmnopqrstuvwxyz_-.step_1234567890.v2.r1.undo",
)

KEY_FORMATS: Final[dict[Format, KeyFormat]] = {
    "composite": KeyFormat(
        shortest=36 + 1 + len("step_001") + 1 + 64,
        longest=36 + 1 + MAX_LABEL + 1 + 64,
        samples=tuple(f"{_ID_SAMPLE}:{label}:{_HASH_SAMPLE}" for label in _LABEL_SAMPLES),
        meaning="<session id>:<label>:<args_hash>",
    ),
    "sha256": KeyFormat(
        shortest=64,
        longest=64,
        samples=(_HASH_SAMPLE,),
        meaning="SHA-256, in hexadecimal, of session id:label:tool name:canonical arguments",
    ),
    "uuid": KeyFormat(
        shortest=36,
        longest=36,
        samples=(_ID_SAMPLE,),
        meaning="UUID in the shape of version 4, cut from a digest of session id, label, tool name and arguments",
    ),
}
"""The derived formats; a caller's own business key is none of them and is checked by `check_key`."""


def check_key(key: str, *, max_length: int, pattern: str | None = None) -> None:
    """Refuse a key that its carrier or its server would not take as it is.

    Keys are visible ASCII on every carrier, with spaces only inside: anything else is changed or refused on the way.

    Args:
        key: the key, derived or the caller's own.
        max_length: most characters that the server takes.
        pattern: regular expression that the whole key must match, or None.

    Raises:
        ConfigError: with the rule that the key breaks.
    """
    if not key or not key.isascii() or not key.isprintable() or key != key.strip(" "):
        _refuse(f"key {key!r:.300} cannot be sent: keys are visible ASCII, with spaces only inside")
    if len(key) > max_length:
        _refuse(f"key {key!r:.300} has {len(key)} characters, its carrier takes {max_length}")
    if pattern is not None and not _matches(pattern, key):
        _refuse(f"key {key!r:.300} does not match {pattern!r}, which its carrier demands")


def check_format(format: Format, *, max_length: int, pattern: str | None = None) -> None:  # noqa: A002  as in derive_key
    """Refuse a key format of which some key would not fit its carrier, before any plan depends on it.

    Args:
        format: ``composite``, ``sha256`` or ``uuid``.
        max_length: most characters that the server takes; the format's longest key must fit.
        pattern: regular expression that a whole key must match, or None; it is tried on the format's samples.

    Raises:
        ConfigError: with the formats that would fit.
    """
    if format not in KEY_FORMATS:
        no_format(format)
    fitting = [name for name, known in KEY_FORMATS.items() if _fits(known, max_length, pattern)]
    if format not in fitting:
        known = KEY_FORMATS[format]
        _refuse(
            f"key format {format!r} ({known.meaning}; {known.shortest} to {known.longest} characters) does not fit a "
            f"carrier that takes {max_length} characters of the form {pattern or 'any'!r}; "
            f"fitting: {', '.join(fitting) or 'none, use a key of your own'}"
        )


def check_secret(secret: bytes) -> None:
    """Refuse a deployment secret shorter than `MIN_SECRET` bytes; raises ConfigError, which does not show it."""
    if len(secret) < MIN_SECRET:
        _refuse(f"the deployment secret has {len(secret)} bytes; use at least {MIN_SECRET} random ones")


def check_sensitive(format: str, secret: bytes | None) -> None:  # noqa: A002  as in derive_key
    """Refuse a key from which a sensitive tool's arguments could be found by trying; raises ConfigError.

    A plain hash of few possible arguments is found with a dictionary, wherever headers are logged.
    """
    if format != "uuid" or secret is None:
        raise ConfigError("a sensitive tool needs keys of format 'uuid' and a deployment secret")
    check_secret(secret)


def _fits(known: KeyFormat, max_length: int, pattern: str | None) -> bool:
    if known.longest > max_length:
        return False
    return pattern is None or all(_matches(pattern, sample) for sample in known.samples)


def _matches(pattern: str, key: str) -> bool:
    try:
        return re.fullmatch(pattern, key) is not None
    except re.error as error:
        _refuse(f"{pattern!r} is no regular expression: {error}")


def no_format(format: str) -> NoReturn:  # noqa: A002  as in derive_key
    """Refuse a word that is no key format; raises ConfigError."""
    _refuse(f"no key format {format!r}; choose one of {', '.join(KEY_FORMATS)}")


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message) from None
