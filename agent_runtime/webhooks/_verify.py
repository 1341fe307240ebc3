"""Who sent a callback: signatures over the raw bytes, checked in constant time, with the clock as an input.

Source: Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks (specification, "Signature scheme").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent_runtime.errors import AgentRuntimeError, ConfigError

TOLERANCE = 300.0
"""Seconds that a signature's time may lie from ours, both ways."""


class CallbackRefused(AgentRuntimeError):
    """A callback that is not taken: its signature, time or form is wrong; nothing was changed."""


class Verifier(Protocol):
    """Says who sent a callback, or raises `CallbackRefused`."""

    def __call__(self, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
        """Return the event's id, unique for its sender and the same in each of its tries.

        Args:
            headers: by lower-case name.
            body: raw bytes, as they came.
            now: UTC epoch seconds.
        """
        ...


@dataclass(frozen=True, slots=True)
class StandardWebhook:
    """Verifies callbacks by Standard Webhooks: ``webhook-id``, ``webhook-timestamp``, ``webhook-signature`` (v1).

    Attributes:
        secret: base64 with or without padding, with or without ``whsec_``.
        tolerance: seconds that the timestamp may lie from our clock, both ways.
        older_secrets: secrets that are still taken while they are rotated.
    """

    secret: str = field(repr=False)
    tolerance: float = TOLERANCE
    older_secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for secret in (self.secret, *self.older_secrets):
            secret_bytes(secret)

    def __call__(self, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
        """Return the event's id, or raise `CallbackRefused`."""
        event_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not event_id or not given or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12:
            raise CallbackRefused("the callback has no webhook-id, webhook-timestamp and webhook-signature; not taken")
        if abs(now - int(stamp)) > self.tolerance:
            raise CallbackRefused("the callback's timestamp is too old or too new; not taken")
        secrets = (self.secret, *self.older_secrets)
        if not any(_matches(_mac(secret, event_id, stamp, body), given) for secret in secrets):
            raise CallbackRefused("no signature of the callback matches; not taken")
        return event_id


def _mac(secret: str, event_id: str, stamp: str, body: bytes) -> bytes:
    """Return the signature over the id, the timestamp as it was written, and the body."""
    signed = b".".join((event_id.encode(), stamp.encode(), body))
    return base64.b64encode(hmac.digest(secret_bytes(secret), signed, hashlib.sha256))


def _matches(expected: bytes, given: str) -> bool:
    found = False
    for one in given.split(" "):
        version, _, signature = one.partition(",")
        # Every signature is compared, so that the time taken tells nothing of which one matched.
        found |= version == "v1" and hmac.compare_digest(signature.encode("utf-8", "replace"), expected)
    return found


def secret_bytes(secret: str) -> bytes:
    """Return the key of a secret, or raise `ConfigError`, which does not show it."""
    text = secret.removeprefix("whsec_").rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("a webhook secret is base64, with or without 'whsec_' before it") from None
    if not key:
        raise ConfigError("a webhook secret is not empty")
    return key


def sign(secret: str, *, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the ``webhook-signature`` of a body, for tests and for senders in Python."""
    return "v1," + _mac(secret, event_id, str(timestamp), body).decode()
