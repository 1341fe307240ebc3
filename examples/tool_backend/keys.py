"""Which operation a request stands for: its key, the proof that key and body belong together, its scope."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from examples.tool_backend.answers import Answer, problem

LONGEST_KEY = 255
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_ARGS_HASH = re.compile(r"[0-9a-f]{64}")


class Refused(Exception):
    """The request cannot be served; carries the answer that says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


@dataclass(frozen=True)
class Operation:
    """One intended effect: a caller's key at one tool, with the fingerprint of what was asked under it."""

    caller: str
    path: str
    key: str
    fingerprint: str

    @property
    def name(self) -> str:
        """The operation's name in the store."""
        return scoped_name(self.caller, self.path, self.key)


def scoped_name(caller: str, path: str, key: str) -> str:
    """Return a name that no other caller, tool or key can produce."""
    # A JSON list, not a text with separators: ("a", "b:c") and ("a:b", "c") must not meet.
    return hashlib.sha256(json.dumps([caller, path, key]).encode()).hexdigest()


def parse_args(body: bytes) -> dict[str, Any]:
    """Return the body as a JSON object, or refuse it."""
    try:
        args = json.loads(body, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Refused(problem(400, "invalid-args", f"The body is not JSON: {error}.")) from error
    if not isinstance(args, dict):
        raise Refused(problem(400, "invalid-args", "The body must be a JSON object."))
    return args


def read_key(values: list[str]) -> str:
    """Return the one key among the header's values, raw or as a structured field's string."""
    if not values:
        raise Refused(problem(400, "key-missing", "This tool changes things: send an Idempotency-Key."))
    key = values[0].strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if len(values) > 1 or len(key) > LONGEST_KEY or not _PRINTABLE.fullmatch(key):
        detail = f"Send one Idempotency-Key of 1 to {LONGEST_KEY} printable characters without spaces."
        raise Refused(problem(400, "key-malformed", detail))
    return key


def fingerprint(key: str, body: bytes, args: dict[str, Any]) -> str:
    """Return what must be equal wherever the key is equal; refuse a key whose own hash is not the body's.

    A composite key ``<session>:<label>:<args_hash>`` proves its body itself. The hash may be over the bytes as
    sent (agents that send canonical JSON) or over the sorted, compact form that Python writes. Any other key says
    nothing about the body, so a digest of the body is kept with it.
    """
    canonical = json.dumps(args, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(canonical).hexdigest()
    parts = key.split(":")
    if len(parts) != 3 or not _ARGS_HASH.fullmatch(parts[2]):
        return digest
    if parts[2] not in (digest, hashlib.sha256(body).hexdigest()):
        detail = "The args hash in the Idempotency-Key is not the hash of this body."
        raise Refused(problem(422, "args-hash-mismatch", detail, key=key))
    return parts[2]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
