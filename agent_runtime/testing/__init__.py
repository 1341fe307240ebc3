"""For tests of agents: a clock that is moved by hand, tools with bad days, and crashes without a kill."""

from agent_runtime.testing._clock import VirtualClock
from agent_runtime.testing._tool_mock import ToolMock, ToolRequest, mock_transport

__all__ = ["ToolMock", "ToolRequest", "VirtualClock", "mock_transport"]
