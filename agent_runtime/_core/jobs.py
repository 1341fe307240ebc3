"""What a 202 carries: enough to follow the job, if the tool gave it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent_runtime._model import BodyState, Handle

if TYPE_CHECKING:
    from agent_runtime._model import Answer


def job_handle(answer: Answer) -> Handle:
    """Return the handle of an accepted job: where to ask, and its id, as far as the answer tells.

    In the order Operation-Location, Azure-AsyncOperation, Location, ``status_url`` and ``job_id`` of a JSON body, and
    last a bare one that holds neither.
    """
    body = _members(answer)
    job_id = next((str(body[name]) for name in ("job_id", "id", "name") if isinstance(body.get(name), str | int)), None)
    for header, protocol in (
        ("Operation-Location", "operation-location"),
        ("Azure-AsyncOperation", "azure-async"),
        ("Location", "location"),
    ):
        url = answer.header(header)
        if url:
            return Handle(url=url, job_id=job_id, protocol=protocol)
    url = body.get("status_url")
    if isinstance(url, str) and url:
        return Handle(url=url, job_id=job_id, protocol="body")
    return Handle(url=None, job_id=job_id, protocol="bare")


def _members(answer: Answer) -> dict[str, Any]:
    if answer.body_state is not BodyState.WHOLE:
        return {}
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
