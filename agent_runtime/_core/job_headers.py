"""The plain headers of a request about a job: the tool's own, on its own origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.reach import sent_to
from agent_runtime._core.urls import same_origin

if TYPE_CHECKING:
    from agent_runtime._core.run import Run
    from agent_runtime._model import Headers

OF_THE_BODY: Final = frozenset({"accept", "content-type", "content-length", "content-encoding"})
"""Headers that speak of the start's body, or are set anew."""


def headers_about(run: Run, url: str, accept: str = "application/json") -> Headers:
    """Return the headers of a request about a job, before credentials.

    Such as a tenant or a version of the API: without them the tool may not find the job. They go to its own origin
    alone.
    """
    own = getattr(run.tool, "headers", {}) if same_origin(url, sent_to(run.operation)) else {}
    kept = [(name, value) for name, value in own.items() if name.lower() not in OF_THE_BODY]
    return (("Accept", accept), *kept)
