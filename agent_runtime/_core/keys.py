"""Idempotency keys: made from session, label, tool and arguments, the same on every machine and after every crash.

The derivation is a file format with a version: ``docs/key-format.md`` describes it, ``agent_runtime/vectors/keys.json``
holds its golden values. A key is derived once, stored with its operation and resent as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import Final

from agent_runtime._core.canonical import Scheme, canonical_json, digest
from agent_runtime._model.key_formats import KEY_FORMATS, Format, check_secret, no_format
from agent_runtime._model.naming import check_label, check_name, check_session_id
from agent_runtime.errors import ConfigError

DERIVATION_VERSION: Final = 1
"""Version of the derivation; stored beside a key, and a member of the document that a ``uuid`` key is cut from."""


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
        no_format(format)
    if format == "composite":
        return f"{session_id}:{step}:{digest(canonical)}"
    if format == "sha256":
        # None of the first three can hold a colon, so no two inputs join to one text.
        return digest(f"{session_id}:{step}:{tool}:".encode() + canonical)
    return _uuid_key(_document(session_id, step, tool, canonical), secret)


def structured_field_string(key: str) -> str:
    """Write a key as a String of RFC 8941, as the IETF draft on Idempotency-Key asks: quoted, escaped by backslash.

    Raises:
        ConfigError: the key has characters outside of 0x20 to 0x7E.

    Source: https://www.rfc-editor.org/rfc/rfc8941#section-3.3.3
    """
    if not key.isascii() or not key.isprintable():
        msg = f"key {key!r:.300} cannot be a structured field: only 0x20 to 0x7E may stand in it"
        raise ConfigError(msg)
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
