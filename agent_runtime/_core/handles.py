"""A job's handle as it stands in its operation's row."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from agent_runtime._model import Handle

if TYPE_CHECKING:
    from agent_runtime._model import OperationRecord


def written(handle: Handle) -> bytes:
    """Return a handle as JSON text; what is not told is left out."""
    told = {name: value for name, value in dataclasses.asdict(handle).items() if value is not None}
    return json.dumps(told, ensure_ascii=True, separators=(",", ":"), default=str).encode()


def handle_of(operation: OperationRecord) -> Handle:
    """Return the handle of an accepted operation; one without is bare."""
    if operation.handle is None:
        return Handle(url=None, job_id=None, protocol="bare", started_at=operation.updated_at)
    told = json.loads(operation.handle)
    known = {field.name for field in dataclasses.fields(Handle)}
    given = {name: value for name, value in told.items() if name in known}
    return Handle(**{"url": None, "job_id": None, "protocol": "bare", **given})
