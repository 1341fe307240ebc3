"""The plain headers of a request about a job: the tool's own, on its own origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.reach import sent_to
from agent_runtime._core.urls import same_origin

if TYPE_CHECKING:
    from agent_runtime._core.run import Run
    from agent_runtime._model import Headers

OF_THE_START: Final = frozenset({"accept", "content-type", "content-length", "content-encoding", "prefer"})
"""Headers that speak of the start: of its body, or how it is to be answered; or that are set anew."""


def headers_about(run: Run, url: str, accept: str | None = None) -> Headers:
    """Return the headers of a request about a job, before credentials.

    Such as a tenant or a version of the API, which may stand in ``Accept`` too: without them the tool may not find the
    job. They go to its own origin alone. ``accept``: what the answer has to be, whatever the tool's own header says.
    """
    own = getattr(run.tool, "headers", {}) if same_origin(url, sent_to(run.operation)) else {}
    wanted = next((value for name, value in own.items() if name.lower() == "accept"), "application/json")
    kept = [(name, value) for name, value in own.items() if name.lower() not in OF_THE_START]
    return (("Accept", accept or wanted), *kept)
