"""Sessions and runtimes, blocking and async: the same words twice, over one core."""

from agent_runtime._session.async_session import AsyncSession
from agent_runtime._session.runtime import AsyncRuntime, Runtime
from agent_runtime._session.session import Session

__all__ = ["AsyncRuntime", "AsyncSession", "Runtime", "Session"]
