"""Build the golden vectors that are shipped in agent_runtime/vectors/keys.json.

Run it only when the derivation gets a new version or cases are added:
``python -m tests.core.vectors.make_key_vectors``. A test compares the file with what is built here, so neither can
change alone.
"""

from __future__ import annotations

import json
from importlib.resources import files

from agent_runtime._core.canonical import canonical_json, digest, parse_json
from agent_runtime._core.keys import DERIVATION_VERSION, derive_key, structured_field_string

SESSION = "3f2c8a5e-7b1d-4c0f-9a6e-2d4b8c1e5f70"
SECRET_HEX = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

DESCRIPTION = [
    "Golden vectors of the idempotency keys that agent_runtime derives; docs/key-format.md has the algorithms.",
    "args_text is JSON as somebody may write it; parse it, write it in the named scheme, and you get canonical.",
    "args_hash is the SHA-256 of canonical in UTF-8, in hexadecimal.",
    "hashed is the text whose digest is the key (null for composite keys, which are put together).",
    "secret_hex is the deployment secret of an HMAC-SHA-256, in hexadecimal, or null for plain SHA-256.",
    "Numbers in args_text may have more digits than a double holds; they are kept.",
]

# name -> JSON text as a client may write it
ARGS = {
    "source": '{"region": "ap-southeast-1", "storage_gb": 20}',
    "other-order": '{"storage_gb":20,"region":"ap-southeast-1"}',
    "empty": "{}",
    "whole-float": '{"n": 1.0}',
    "integer": '{"n": 1}',
    "exponent": '{"n": 1e0}',
    "negative-zero": '{"n": -0.0}',
    "true": '{"n": true}',
    "text-number": '{"n": "1"}',
    "null-member": '{"n": null}',
    "floats": '{"a":0.1,"b":1e-5,"c":1e-7,"d":-12.50,"e":4503599627370495.5}',
    "beyond-2-53": '{"id": 9007199254740993, "id2": 9007199254740992}',
    "beyond-2-64": '{"id": 18446744073709551616, "neg": -18446744073709551617}',
    "2-to-200": '{"id": 1606938044258990275541962092341162602522202993782792835301376}',
    "unicode": '{"name":"Ayşe \\u00e7ay","emoji":"\\ud83d\\ude02","line":"\\u2028","slash":"a\\/b"}',
    "escapes": '{"t":"\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\\u007f"}',
    "utf16-order": '{"\\ufb33":1,"\\ud83d\\ude02":2,"\\u20ac":3,"a":4}',
    "not-normalised": '{"\\u00e5":1,"a\\u030a":2}',
    "nested": '{"b":[{"d":[],"c":{}},[null,false]],"a":{"z":{"y":{"x":1}},"10":1,"9":2}}',
    "array": "[3,1,2]",
}

REFUSED = {
    "name stands twice": '{"a":1,"a":2}',
    "name stands twice behind an escape": '{"a":1,"\\u0061":2}',
    "no JSON number": '{"a":NaN}',
    "beyond a double": '{"a":1e400}',
    "whole float beyond 2^53": '{"a":1e16}',
    "lone surrogate in a value": '{"a":"\\ud800"}',
    "lone surrogate in a name": '{"\\udc00":1}',
    "65 levels": "[" * 65 + "]" * 65,
}

# In order: name of the arguments, format, scheme, secret, step, tool
KEYS = [
    ("source", "composite", "jcs", None, "step_003", "provision_database"),
    ("other-order", "composite", "jcs", None, "step_003", "provision_database"),
    ("source", "composite", "python-json", None, "step_003", "provision_database"),
    ("source", "composite", "jcs", None, "flights.step_001", "book_flight"),
    ("source", "composite", "jcs", None, "step_1000", "provision_database"),
    ("source", "composite", "jcs", None, "step_003.v2", "provision_database"),
    ("source", "composite", "jcs", None, "step_003.r1", "provision_database"),
    ("source", "composite", "jcs", None, "flights.step_003.v2.r1.undo", "cancel_flight"),
    ("source", "composite", "jcs", None, "step_003.step_001", "inner-tool"),
    ("unicode", "composite", "jcs", None, "step_001", "send.mail"),
    ("unicode", "composite", "python-json", None, "step_001", "send.mail"),
    ("integer", "composite", "jcs", None, "step_001", "count"),
    ("whole-float", "composite", "jcs", None, "step_001", "count"),
    ("whole-float", "composite", "python-json", None, "step_001", "count"),
    ("2-to-200", "composite", "jcs", None, "step_001", "count"),
    ("source", "sha256", "jcs", None, "step_003", "provision_database"),
    ("source", "sha256", "python-json", None, "step_003", "provision_database"),
    ("unicode", "sha256", "jcs", None, "flights.step_012.r2", "send.mail"),
    ("unicode", "sha256", "python-json", None, "flights.step_012.r2", "send.mail"),
    ("empty", "sha256", "jcs", None, "step_001", "ping"),
    ("source", "uuid", "jcs", None, "step_003", "provision_database"),
    ("other-order", "uuid", "jcs", None, "step_003", "provision_database"),
    ("source", "uuid", "jcs", SECRET_HEX, "step_003", "provision_database"),
    ("unicode", "uuid", "jcs", SECRET_HEX, "flights.step_012.v2", "send.mail"),
    ("unicode", "uuid", "python-json", None, "step_001", "send.mail"),
    ("unicode", "uuid", "python-json", SECRET_HEX, "step_001", "send.mail"),
    ("nested", "uuid", "jcs", None, "step_001", "tree"),
    ("utf16-order", "uuid", "jcs", None, "step_001", "tree"),
    ("array", "uuid", "jcs", None, "step_001", "sort"),
]


def _hashed(form: str, scheme: str, step: str, tool: str, args: object) -> str | None:
    """What is hashed, written out the long way round: for a uuid key the whole document goes through the scheme."""
    if form == "sha256":
        return f"{SESSION}:{step}:{tool}:{canonical_json(args, scheme).decode()}"
    if form == "uuid":
        document = {"v": DERIVATION_VERSION, "session": SESSION, "step": step, "tool": tool, "args": args}
        return canonical_json(document, scheme).decode()
    return None


def _key(args: str, form: str, scheme: str, secret_hex: str | None, step: str, tool: str) -> dict[str, object]:
    value = parse_json(ARGS[args])
    canonical = canonical_json(value, scheme)
    secret = bytes.fromhex(secret_hex) if secret_hex else None
    return {
        "args": args,
        "args_text": ARGS[args],
        "format": form,
        "scheme": scheme,
        "session": SESSION,
        "step": step,
        "tool": tool,
        "secret_hex": secret_hex,
        "canonical": canonical.decode(),
        "args_hash": digest(canonical),
        "hashed": _hashed(form, scheme, step, tool, value),
        "key": derive_key(
            session_id=SESSION, step=step, tool=tool, args=value, format=form, scheme=scheme, secret=secret
        ),
    }


def build() -> dict[str, object]:
    """Build the vectors anew."""
    fields = [SESSION, 'order "7"', "back\\slash", f"{SESSION}:step_003:{'0' * 64}"]
    return {
        "version": DERIVATION_VERSION,
        "description": DESCRIPTION,
        "canonical": [
            {
                "args": name,
                "args_text": text,
                "scheme": scheme,
                "canonical": canonical_json(parse_json(text), scheme).decode(),
                "args_hash": digest(canonical_json(parse_json(text), scheme)),
            }
            for name, text in ARGS.items()
            for scheme in ("jcs", "python-json")
        ],
        "keys": [_key(*case) for case in KEYS],
        "refused": [{"why": why, "args_text": text} for why, text in REFUSED.items()],
        "structured_fields": [{"key": key, "header": structured_field_string(key)} for key in fields],
    }


def text() -> str:
    """Write the vectors as the file has them: plain ASCII, so that no editor or transport can change it."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    with files("agent_runtime.vectors").joinpath("keys.json").open("w", encoding="utf-8") as file:
        file.write(text())
