"""Idempotency keys: made from session, label, tool and arguments, the same on every machine and after every crash.

The derivation is a file format with a version: ``docs/key-format.md`` describes it, ``agent_runtime/vectors/keys.json``
holds its golden values. A key is derived once, stored with its operation and resent as it is.

Labels and names are made so that no two positions share a label::

    label   = [ branch "." ] "step_" index [ ".v" N ] [ ".r" N ] [ ".undo" [ ".r" N ] ]
    index   = from 1, three digits at least
    branch  = a name, the label of the step whose function makes the calls, or such a label "." a name
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from agent_runtime._core.canonical import Scheme, canonical_json, digest
from agent_runtime.errors import ConfigError

Format = Literal["composite", "sha256", "uuid"]

DERIVATION_VERSION: Final = 1
"""Version of the derivation; stored beside a key, and a member of the document that a ``uuid`` key is cut from."""

MAX_NAME: Final = 64
"""Longest name of a branch or a tool, in characters."""

MAX_LABEL: Final = 128
"""Longest label, in characters; it keeps a composite key under the 255 characters that many servers take."""

MAX_FREE_TEXT: Final = 512
"""Longest alias or address, in bytes of UTF-8."""

MIN_SECRET: Final = 16
"""Shortest deployment secret, in bytes; a shorter one could be found by trying."""

_SESSION: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_STEP: Final = re.compile(r"step_[0-9]+")
_ENDING: Final = re.compile(r"[vr][0-9]+|undo")
_LABEL: Final = re.compile(
    r"(?P<position>(?:[A-Za-z0-9_-]+\.)*step_(?:(?!000)[0-9]{3}|[1-9][0-9]{3,}))"
    r"(?:\.v(?:[2-9]|[1-9][0-9]+))?"
    r"(?:\.r[1-9][0-9]*)?"
    r"(?:\.undo(?:\.r[1-9][0-9]*)?)?"
)
_REISSUE: Final = re.compile(r"\.r[0-9]+$")


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


def derive_key(
    *,
    session_id: str,
    step: str,
    tool: str,
    args: object,
    format: Format = "composite",  # noqa: A002  the word for it everywhere else, and keyword-only
    scheme: Scheme = "jcs",
    secret: bytes | None = None,
) -> str:
    """Derive the key of an operation from what identifies it.

    Args:
        session_id: the session's id, a UUID in lower case.
        step: the label, for example ``flights.step_003.v2``.
        tool: the tool's name.
        args: the arguments as they are sent, defaults and fills included.
        format: ``composite``, ``sha256`` or ``uuid``.
        scheme: how the arguments are written, see `canonical_json`.
        secret: the deployment secret. With it a ``uuid`` key is cut from HMAC-SHA-256, so that nobody can find the
            arguments by trying; the other formats do not use it (`check_sensitive`).

    Raises:
        ArgumentsRefused: the arguments cannot be canonical JSON.
        ConfigError: id, label, name, format, scheme or secret are not of the form that the derivation needs.
    """
    canonical = canonical_json(args, scheme)
    return derive_key_from_canonical(
        session_id=session_id, step=step, tool=tool, canonical=canonical, format=format, secret=secret
    )


def derive_key_from_canonical(
    *,
    session_id: str,
    step: str,
    tool: str,
    canonical: bytes,
    format: Format = "composite",  # noqa: A002  as in derive_key
    secret: bytes | None = None,
) -> str:
    """Derive the key where the canonical arguments are at hand; otherwise as `derive_key`.

    Args:
        session_id: as in `derive_key`.
        step: as in `derive_key`.
        tool: as in `derive_key`.
        canonical: what `canonical_json` returned for the arguments; it is not read again.
        format: as in `derive_key`.
        secret: as in `derive_key`.
    """
    check_session_id(session_id)
    check_label(step)
    check_name("tool", tool)
    if format not in KEY_FORMATS:
        _no_format(format)
    if format == "composite":
        return f"{session_id}:{step}:{digest(canonical)}"
    if format == "sha256":
        # None of the first three can hold a colon, so no two inputs join to one text.
        return digest(f"{session_id}:{step}:{tool}:".encode() + canonical)
    return _uuid_key(_document(session_id, step, tool, canonical), secret)


def check_session_id(text: str) -> None:
    """Refuse what is no UUID in lower case; raises ConfigError."""
    if not _SESSION.fullmatch(text):
        _refuse(f"{text!r:.80} is no session id: a session id is a UUID in lower case")


def check_name(kind: Literal["branch", "tool"], name: str) -> None:
    """Refuse a name that could not stand in a label or a key.

    Names are letters, digits, ``_`` and ``-``, in parts joined by dots, `MAX_NAME` characters at most. Parts that
    labels use themselves are reserved: ``step_1``, ``.v2``, ``.r1``, ``.undo``. A tool may be called ``undo``, a
    branch may not.

    Raises:
        ConfigError: with the rule that the name breaks.
    """
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        _refuse(
            f"{name!r:.80} cannot name a {kind}: use letters, digits, '_' and '-', parts joined by '.', "
            f"{MAX_NAME} characters at most"
        )
    parts = name.split(".")
    # A branch's first part may follow a step's label ("step_003" + ".undo"); a tool's first part follows nothing.
    endings = parts if kind == "branch" else parts[1:]
    reserved = [part for part in parts if _STEP.fullmatch(part)] + [part for part in endings if _ENDING.fullmatch(part)]
    if reserved:
        _refuse(f"{name!r} cannot name a {kind}: {reserved[0]!r} is reserved for labels of steps")


def check_label(label: str) -> None:
    """Refuse what is no label of a step (grammar at the top of this module); raises ConfigError."""
    _position(label)


def make_label(branch: str, index: int) -> str:
    """Name the position ``index`` (from 1) of a branch; the main branch is the empty text.

    The calls that a function tool makes stand in the branch that is named by the label of its own step.

    Raises:
        ConfigError: the index is below 1, or the label is none or too long.
    """
    if index < 1:
        _refuse(f"steps are counted from 1, got {index}")
    return _checked(f"{branch}.step_{index:03d}" if branch else f"step_{index:03d}")


def revised_label(label: str, n: int) -> str:
    """Name the ``n``-th use (from 2) of a label's position after a replan: ``step_003`` becomes ``step_003.v2``.

    Endings that the label has already fall off, since they belong to the earlier use; raises ConfigError.
    """
    return _checked(f"{_position(label)}.v{n}")


def reissue_label(label: str, n: int) -> str:
    """Name the ``n``-th re-issue (from 1) of an operation that failed without effect: ``step_003.r1``.

    The number counts from the operation first issued: the second is ``step_003.r2``, also if it is made from
    ``step_003.r1``. Raises ConfigError.
    """
    check_label(label)
    return _checked(f"{_REISSUE.sub('', label)}.r{n}")


def undo_label(label: str) -> str:
    """Name the step that undoes an operation: ``step_003.undo``; raises ConfigError for what is an undo itself."""
    check_label(label)
    return _checked(f"{label}.undo")


def check_alias(text: str) -> None:
    """Refuse an alias that is empty, over `MAX_FREE_TEXT` bytes or not storable; raises ConfigError.

    So is one in the shape of a UUID, in upper or lower case: it could be taken for a session's id.
    """
    _check_text("alias", text)
    if _SESSION.fullmatch(text.strip().lower()):
        _refuse(f"alias {text!r} looks like a session id; put a word before it, as in 'order-{text.strip()}'")


def check_address(text: str) -> None:
    """Refuse an address (``at=``) that is empty, over `MAX_FREE_TEXT` bytes, or not storable; raises ConfigError."""
    _check_text("address", text)


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
        _no_format(format)
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


def structured_field_string(key: str) -> str:
    """Write a key as a String of RFC 8941, as the IETF draft on Idempotency-Key asks: quoted, escaped by backslash.

    Raises:
        ConfigError: the key has characters outside of 0x20 to 0x7E.

    Source: https://www.rfc-editor.org/rfc/rfc8941#section-3.3.3
    """
    if not key.isascii() or not key.isprintable():
        _refuse(f"key {key!r:.300} cannot be a structured field: only 0x20 to 0x7E may stand in it")
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _document(session_id: str, step: str, tool: str, canonical: bytes) -> bytes:
    """The one JSON document of a ``uuid`` key, in the scheme its arguments are written in.

    The names are in order and the values plain ASCII without escapes, so putting it together here gives what either
    scheme would write for the whole.
    """
    head = b'{"args":' + canonical
    return head + f',"session":"{session_id}","step":"{step}","tool":"{tool}","v":{DERIVATION_VERSION}}}'.encode()


def _uuid_key(document: bytes, secret: bytes | None) -> str:
    if secret is None:
        raw = hashlib.sha256(document).digest()
    else:
        check_secret(secret)
        raw = hmac.digest(secret, document, "sha256")
    # Version 4 in shape, since servers check for it and refuse versions 5 and 8; derived, not random.
    return str(uuid.UUID(bytes=raw[:16], version=4))


def _checked(label: str) -> str:
    check_label(label)
    return label


def _position(label: str) -> str:
    match = _LABEL.fullmatch(label)
    if match is None:
        _refuse(f"{label!r:.160} is no label of a step; labels look like step_003 or flights.step_003.v2")
    if len(label) > MAX_LABEL:
        _refuse(
            f"label {label:.160} has {len(label)} characters, {MAX_LABEL} at most: "
            "use shorter names for branches or fewer levels of them"
        )
    return match["position"]


def _check_text(kind: str, text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        _refuse(f"{kind} {text!r:.80} holds a lone surrogate, which cannot be stored")
    if not 0 < size <= MAX_FREE_TEXT:
        _refuse(f"{kind} {text!r:.80} has {size} bytes in UTF-8; 1 to {MAX_FREE_TEXT} are possible")
    if "\0" in text:
        _refuse(f"{kind} {text!r:.80} holds a NUL character, which Postgres cannot store")


def _fits(known: KeyFormat, max_length: int, pattern: str | None) -> bool:
    if known.longest > max_length:
        return False
    return pattern is None or all(_matches(pattern, sample) for sample in known.samples)


def _matches(pattern: str, key: str) -> bool:
    try:
        return re.fullmatch(pattern, key) is not None
    except re.error as error:
        _refuse(f"{pattern!r} is no regular expression: {error}")


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message) from None


def _no_format(format: str) -> NoReturn:  # noqa: A002  as in derive_key
    _refuse(f"no key format {format!r}; choose one of {', '.join(KEY_FORMATS)}")
