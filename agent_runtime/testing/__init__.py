"""For tests of agents: a clock that is moved by hand, tools with bad days, and crashes without a kill."""

from agent_runtime.testing._clock import VirtualClock

__all__ = ["VirtualClock"]
