"""How long to wait before the next attempt; randomness comes in as a number, tenacity does the arithmetic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tenacity import wait_exponential

from agent_runtime.config import defaults

if TYPE_CHECKING:
    from tenacity import RetryCallState

_MOST_EXTRA = 5.0
LONGEST_WAIT = 10 * 365 * 86_400.0
"""Seconds; what is written as a moment has to be one, however absurd the wait that was asked for."""


def backoff(
    attempt: int,
    *,
    base: float = defaults.BACKOFF_BASE,
    factor: float = defaults.BACKOFF_FACTOR,
    cap: float = defaults.BACKOFF_CAP,
    random: float,
) -> float:
    """Return a full-jitter wait in seconds: evenly between 0 and ``min(cap, base * factor ** (attempt - 1))``.

    Args:
        attempt: number of the attempt that ended, from 1.
        base: ceiling after the first attempt, in seconds.
        factor: by which the ceiling grows.
        cap: the ceiling's own limit, in seconds.
        random: a number in [0, 1).

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog.
    """
    # float: tenacity multiplies integers out to their last digit, which for a late attempt takes for ever.
    ceiling = wait_exponential(multiplier=base, exp_base=float(factor), max=cap)
    # tenacity's strategies read nothing but the number; its own state object would read the clock.
    state = cast("RetryCallState", SimpleNamespace(attempt_number=attempt))
    return ceiling(state) * random


def wait_before_retry(
    retry_after: float | None,
    *,
    attempt: int,
    random: float,
    base: float = defaults.BACKOFF_BASE,
    factor: float = defaults.BACKOFF_FACTOR,
    cap: float = defaults.BACKOFF_CAP,
) -> float:
    """Return the seconds to wait before the next attempt: never less than the server asked.

    The longer of ``retry_after`` and the jittered `backoff`, plus up to a tenth of ``retry_after`` (at most 5 s), so
    that clients that were told the same moment do not all come at it. The other arguments are those of `backoff`.
    """
    asked = retry_after if retry_after is not None and retry_after > 0 else 0.0
    jittered = backoff(attempt, base=base, factor=factor, cap=cap, random=random)
    return max(asked, jittered) + min(0.1 * asked, _MOST_EXTRA) * random
