"""What canonical JSON costs: microseconds a call, and as a ratio to json.dumps and rfc8785.dumps in the same run.

Run it from the project's folder: ``python -m benchmarks.bench_canonical``.
"""

from __future__ import annotations

import json
import timeit
from functools import partial

import rfc8785

from agent_runtime._core.canonical import canonical_json, parse_json
from agent_runtime._core.keys import derive_key

FLAT = {
    "region": "ap-southeast-1",
    "storage_gb": 20,
    "name": "orders",
    "ha": True,
    "note": None,
    "price": 19.99,
    "owner": "ops@example.com",
    "retries": 3,
}
CASES = {
    "flat, 8 members": FLAT,
    "flat, accents": {**FLAT, "name": "sipariş"},
    "flat, an emoji (careful path)": {**FLAT, "name": "orders \U0001f602"},
    "flat, a whole float (careful path)": {**FLAT, "price": 20.0},
    "nested, 100 rows": {"rows": [FLAT] * 100},
}
LIMIT = 10.0
SESSION = "3f2c8a5e-7b1d-4c0f-9a6e-2d4b8c1e5f70"


def micros(call) -> float:
    """Best of five, in microseconds a call; the best is what other load on the machine disturbs least."""
    timer = timeit.Timer(call)
    number, _ = timer.autorange()
    return min(timer.repeat(5, max(1, number // 4))) / max(1, number // 4) * 1e6


def main() -> None:
    print(f"{'':36}{'jcs':>9}{'python':>9}{'dumps':>9}{'rfc8785':>9}{'/dumps':>9}{'/rfc8785':>9}")
    for name, value in CASES.items():
        jcs = micros(partial(canonical_json, value))
        python = micros(partial(canonical_json, value, "python-json"))
        dumps = micros(partial(json.dumps, value, sort_keys=True))
        reference = micros(partial(rfc8785.dumps, value))
        row = f"{jcs:9.2f}{python:9.2f}{dumps:9.2f}{reference:9.2f}{jcs / dumps:9.2f}{jcs / reference:9.2f}"
        print(f"{name:36}{row}")
        if value is FLAT:
            flat = jcs
    text = json.dumps(FLAT)
    print(f"{'parse_json, 8 members':36}{micros(partial(parse_json, text)):9.2f}")
    for form in ("composite", "sha256", "uuid"):
        derive = partial(derive_key, session_id=SESSION, step="step_003", tool="t", args=FLAT, format=form)
        print(f"{'derive_key, ' + form:36}{micros(derive):9.2f}")
    print(f"flat, 8 members: {flat:.2f} µs, limit {LIMIT:.0f} µs: {'kept' if flat <= LIMIT else 'BROKEN'}")


if __name__ == "__main__":
    main()
