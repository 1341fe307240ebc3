"""Contracts of known servers, with the sources of what they say."""

from __future__ import annotations

from typing import Final

from agent_runtime.config.contract import HttpLookup, Idempotency, Member, ReplayMark, ToolContract

SOURCE_000: Final = ToolContract(
    idempotency=Idempotency(format="composite", scheme="python-json", lifetime=24 * 3600, in_progress_ttl=120),
    version="source-000",
)
"""FastAPI and Redis, composite key: claim 120 s, results 24 h, ``Idempotent-Replay: true``; any 500 drops its claim.

Its printed code re-hashes the body with ``json.dumps(sort_keys=True, separators=(",", ":"))`` and sends no Retry-After
with its 409. A 500 may come after the effect, so ``on_5xx`` stays ``unknown``.
"""

SOURCE_001: Final = ToolContract(
    idempotency=Idempotency(
        format="sha256",
        lifetime=24 * 3600,
        in_progress_ttl=30,
        replay_marks=(ReplayMark(header="X-Cache-Lookup", value="HIT"),),
    ),
    version="source-001",
)
"""Express and Redis, hashed key: lock 30 s, answers below 500 kept 24 h, ``X-Cache-Lookup: HIT`` on a stored one."""

TOOL_BACKEND: Final = ToolContract(
    idempotency=Idempotency(format="composite", lifetime=24 * 3600, in_progress_ttl=120),
    lookup=HttpLookup(
        url="/operations/{key}",
        done=Member(name="state", equals="done"),
        running=Member(name="state", equals="running"),
        absent=Member(name="state", equals="absent"),
        result="body",
        status="status",
    ),
    version="tool-backend-1",
)
"""The server of ``examples/tool_backend``: claim 120 s, renewed while the handler runs; ``GET /operations/{key}``."""
