"""For tests of agents: a clock that is moved by hand, tools with bad days, and crashes without a kill."""

from agent_runtime.testing._clock import VirtualClock
from agent_runtime.testing._crash import CRASH_POINTS, Crash, CrashPoint, SimulatedCrash, crash_at
from agent_runtime.testing._tool_mock import ToolMock, ToolRequest, mock_transport

__all__ = [
    "CRASH_POINTS",
    "Crash",
    "CrashPoint",
    "SimulatedCrash",
    "ToolMock",
    "ToolRequest",
    "VirtualClock",
    "crash_at",
    "mock_transport",
]
