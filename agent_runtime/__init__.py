"""Durable, idempotent tool calls for agents: a step ledger, deterministic keys, resume after a crash.

No effect twice, nothing lost, no guess sold as knowledge.
"""

from agent_runtime._core.attention import Attention
from agent_runtime._core.canonical import canonical_json
from agent_runtime._core.job_progress import JobProgress
from agent_runtime._core.keys import derive_key
from agent_runtime._drive import current_key, current_step
from agent_runtime._model import Outcome, Status, ToolResult
from agent_runtime._model.words import ENGLISH as WORDS
from agent_runtime._session import AsyncRuntime, AsyncSession, Runtime, Session
from agent_runtime.config import (
    ApiKey,
    ClientCredentials,
    HeaderCarrier,
    HttpLookup,
    Idempotency,
    Key,
    Member,
    OnBehalfOf,
    PollPolicy,
    PrivateKey,
    RefreshToken,
    ReplayMark,
    RetryPolicy,
    StaticToken,
    Timeouts,
    TokenCallable,
    TokenExchange,
    Tool,
    ToolContract,
    tool,
)
from agent_runtime.errors import (
    AgentRuntimeError,
    AuthError,
    ConfigError,
    KeyConflict,
    LedgerError,
    NotApplied,
    NotRecorded,
    PartialResult,
    PlanDiverged,
    ResultInvalid,
    SessionError,
    StepError,
    StepFailed,
    StepPending,
    StepUnknown,
    UnsettledStep,
)

__version__ = "0.1.0"

__all__ = [
    "WORDS",
    "AgentRuntimeError",
    "ApiKey",
    "AsyncRuntime",
    "AsyncSession",
    "Attention",
    "AuthError",
    "ClientCredentials",
    "ConfigError",
    "HeaderCarrier",
    "HttpLookup",
    "Idempotency",
    "JobProgress",
    "Key",
    "KeyConflict",
    "LedgerError",
    "Member",
    "NotApplied",
    "NotRecorded",
    "OnBehalfOf",
    "Outcome",
    "PartialResult",
    "PlanDiverged",
    "PollPolicy",
    "PrivateKey",
    "RefreshToken",
    "ReplayMark",
    "ResultInvalid",
    "RetryPolicy",
    "Runtime",
    "Session",
    "SessionError",
    "StaticToken",
    "Status",
    "StepError",
    "StepFailed",
    "StepPending",
    "StepUnknown",
    "Timeouts",
    "TokenCallable",
    "TokenExchange",
    "Tool",
    "ToolContract",
    "ToolResult",
    "UnsettledStep",
    "__version__",
    "canonical_json",
    "current_key",
    "current_step",
    "derive_key",
    "tool",
]
