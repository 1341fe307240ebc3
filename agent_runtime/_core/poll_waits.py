"""When a job is looked at next. Seconds; randomness in [0, 1) is an input."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from agent_runtime._core.run import seconds_of

if TYPE_CHECKING:
    from agent_runtime._core.desk import FollowMode
    from agent_runtime._model import Handle
    from agent_runtime.config import PollPolicy

JITTER: Final = 0.1
MOST_JITTER: Final = 5.0
"""A wait is longer by up to a tenth, and by some seconds at most, so that many jobs do not ask at once."""
LEAST_HINT: Final = 0.2
"""A hint is never taken for a shorter wait than this."""
A_LITTLE: Final = 0.2
"""Seconds added to what a tool asked for: its clock and ours, and the way between, are no exact match."""
PATIENCE: Final = 60.0
"""Seconds for which a resume past the bound waits so that it can look once without coming too early."""


def first_wait(handle: Handle, policy: PollPolicy, random: float) -> float:
    """Return the seconds until the first look at a job; where a callback is waited for, that is a slow one."""
    plain = seconds_of(policy.first) if policy.source is None else seconds_of(policy.cap)
    if handle.poll_after is not None:
        return _jittered(_least(handle.poll_after, policy), random) + A_LITTLE
    return _jittered(plain, random)


def next_wait(handle: Handle, policy: PollPolicy, hint: float | None, random: float) -> tuple[float, float]:
    """Return the seconds until the next look, and the same without jitter, from which the one after it grows.

    A hint is the least wait, above the cap too.
    """
    if hint is not None:
        plain = _least(hint, policy)
        return _jittered(plain, random) + A_LITTLE, plain
    before = handle.wait or handle.poll_after or seconds_of(policy.first)
    plain = min(max(before, LEAST_HINT) * policy.factor, seconds_of(policy.cap))
    if policy.source is not None:
        plain = seconds_of(policy.cap)
    return _jittered(plain, random), plain


def _least(hint: float, policy: PollPolicy) -> float:
    return max(hint, LEAST_HINT if policy.source is None else seconds_of(policy.cap))


def _jittered(wait: float, random: float) -> float:
    return wait + random * min(wait * JITTER, MOST_JITTER)


class Step(Enum):
    """What following a job does next."""

    LOOK = "look"
    WAIT = "wait"
    PAUSE = "pause"  # nobody waits any more; the job goes on, and is looked at when it is due
    TIME_OUT = "time_out"  # the bound is reached


@dataclass(frozen=True, slots=True)
class Turn:
    """The next step; ``until``: of a wait (UTC epoch seconds)."""

    step: Step
    until: float = 0.0


def is_too_long(handle: Handle, policy: PollPolicy) -> bool:
    """Whether a job is said to take longer than anybody would wait for it."""
    return handle.estimated is not None and handle.estimated > seconds_of(policy.bound)


def end_of(handle: Handle, policy: PollPolicy, patience: float) -> float:
    """Return until when a job is waited for (UTC epoch seconds): the bound counts from its stored start.

    ``patience``: a moment until which is waited in any case.
    """
    return max(handle.started_at + seconds_of(policy.bound), patience)


def turn_of(  # noqa: PLR0917  all that the decision depends on
    handle: Handle, policy: PollPolicy, mode: FollowMode, due: float, looks: int, now: float, patience: float
) -> Turn:
    """Return what to do next about a job that can be looked at.

    Args:
        handle: of the job.
        policy: of its tool.
        mode: ``wait`` for its end, wait for the ``next`` look, or look ``once`` if that is allowed now.
        due: moment of the next look.
        looks: looks that this run has made or tried.
        now: UTC epoch seconds, as all moments here.
        patience: moment until which is waited in any case; 0 = the bound alone counts.
    """
    if mode == "once":
        return Turn(Step.PAUSE if looks or _is_early(handle, policy, now) else Step.LOOK)
    if mode == "next" and looks:
        return Turn(Step.PAUSE)
    end = end_of(handle, policy, patience)
    if is_too_long(handle, policy) and now >= patience:
        return Turn(Step.LOOK if not looks and due <= now else Step.PAUSE)
    if now >= end:  # a resume looks at least once
        return Turn(Step.TIME_OUT) if looks and due > now else _past_the_end(handle, now)
    if due > end:  # the tool asked to be left alone for longer
        return Turn(Step.WAIT, end) if policy.source is not None else Turn(Step.TIME_OUT)
    return Turn(Step.LOOK) if due <= now else Turn(Step.WAIT, due)


def _is_early(handle: Handle, policy: PollPolicy, now: float) -> bool:
    """Whether a job may not be looked at yet: its tool asked for that, or asked for nothing and was asked just now."""
    if handle.not_before is not None:
        return now < handle.not_before
    least = min(seconds_of(policy.first), seconds_of(policy.cap))
    return handle.looked_at is not None and now < handle.looked_at + least


def _past_the_end(handle: Handle, now: float) -> Turn:
    if handle.not_before is None or handle.not_before <= now:
        return Turn(Step.LOOK)
    return Turn(Step.WAIT, handle.not_before) if handle.not_before - now <= PATIENCE else Turn(Step.TIME_OUT)
