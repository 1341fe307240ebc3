"""When a job is looked at next. Seconds; randomness in [0, 1) is an input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.run import seconds_of

if TYPE_CHECKING:
    from agent_runtime._model import Handle
    from agent_runtime.config import PollPolicy

JITTER: Final = 0.1
MOST_JITTER: Final = 1.0
"""A wait is longer by up to a tenth, and by a second at most, so that many jobs do not ask at once."""


def first_wait(handle: Handle, policy: PollPolicy, random: float) -> float:
    """Return the seconds until the first look at a job."""
    return _jittered(handle.poll_after if handle.poll_after is not None else seconds_of(policy.first), random)


def next_wait(handle: Handle, policy: PollPolicy, hint: float | None, random: float) -> tuple[float, float]:
    """Return the seconds until the next look, and the same without jitter, from which the one after it grows.

    A hint is the least wait, above the cap too.
    """
    if hint is not None:
        return _jittered(hint, random), hint
    before = handle.wait or seconds_of(policy.first)
    plain = min(before * policy.factor, max(seconds_of(policy.cap), 0.0))
    if policy.webhook:
        plain = seconds_of(policy.cap)
    return _jittered(plain, random), plain


def _jittered(wait: float, random: float) -> float:
    return wait + random * min(wait * JITTER, MOST_JITTER)


def over_bound(handle: Handle, policy: PollPolicy, moment: float) -> bool:
    """Whether a moment lies behind the end of following a job."""
    return moment > handle.started_at + seconds_of(policy.bound)
