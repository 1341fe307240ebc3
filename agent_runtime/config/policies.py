"""How long to wait and how often to try; frozen, checked when built. Durations are seconds or timedeltas."""

from __future__ import annotations

from dataclasses import dataclass

from agent_runtime.config import defaults
from agent_runtime.config._checks import Duration, check_settings, count, seconds, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Bounds of one attempt and of one step.

    Attributes:
        connect: seconds until a connection must stand.
        read: seconds between two pieces of the answer.
        attempt: seconds for one attempt as a whole, however slowly it drips; None = what is left of ``step``.
        step: wait budget of this process for one step; a resume begins it anew.
    """

    connect: Duration = defaults.CONNECT_TIMEOUT
    read: Duration = defaults.READ_TIMEOUT
    attempt: Duration | None = None
    step: Duration = defaults.STEP_DEADLINE

    def __post_init__(self) -> None:
        check_settings(self)
        settle(
            self,
            connect=seconds("connect", self.connect, zero=False),
            read=seconds("read", self.read, zero=False),
            step=seconds("step", self.step, zero=False),
        )
        if self.attempt is not None:
            settle(self, attempt=seconds("attempt", self.attempt, zero=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to try again: full-jitter backoff under the tool's own Retry-After.

    Attributes:
        attempts: requests in one process's try at a step; answers that say "in progress" do not count.
        base, factor, cap: the n-th wait is random between 0 and min(cap, base * factor ** n) seconds.
        max_inline_wait: a longer wait parks the step: ``resume_at`` goes to the ledger, the caller gets ``pending``.
    """

    attempts: int = defaults.ATTEMPTS
    base: Duration = defaults.BACKOFF_BASE
    factor: float = defaults.BACKOFF_FACTOR
    cap: Duration = defaults.BACKOFF_CAP
    max_inline_wait: Duration = defaults.MAX_INLINE_WAIT

    def __post_init__(self) -> None:
        check_settings(self)
        count("attempts", self.attempts)
        settle(
            self,
            base=seconds("base", self.base),
            factor=seconds("factor", self.factor, least=1.0),
            cap=seconds("cap", self.cap),
            max_inline_wait=seconds("max_inline_wait", self.max_inline_wait),
        )
