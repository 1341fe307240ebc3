"""How a call is made, beside its tool and its args."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from agent_runtime._core.desk import Following
from agent_runtime.config._checks import flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent_runtime._core.job_progress import JobProgress


class Ways(TypedDict, total=False):
    """How a call is made, beside its tool and args; as ``Session.call`` says it."""

    at: str | None
    key: str | None
    expires_at: float | None
    after_unknown: str | None
    allow_partial: bool
    on_progress: Callable[[JobProgress], Any] | None


def following_of(detach: object, on_progress: Callable[[JobProgress], Any] | None) -> Following:
    """Return how a call follows the job that it may start; raises `ConfigError` for what is no way to do so."""
    return Following("detach" if flag("detach", detach) else "wait", on_progress)
