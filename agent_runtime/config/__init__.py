"""Settings: tools, contracts, policies, credentials; frozen, keyword-only, checked when built."""

from agent_runtime.config.auth import (
    ApiKey,
    Auth,
    AuthProvider,
    ClientCredentials,
    OnBehalfOf,
    PrivateKey,
    RefreshToken,
    StaticToken,
    SubjectToken,
    TokenCallable,
    TokenExchange,
)
from agent_runtime.config.contract import (
    STANDARD_MARKS,
    HeaderCarrier,
    HttpLookup,
    Idempotency,
    Member,
    ReplayMark,
    ToolContract,
)
from agent_runtime.config.jobs import JobAdapter, JobAnswer, JobReading, JobStart, PollPolicy
from agent_runtime.config.policies import RetryPolicy, Timeouts
from agent_runtime.config.tool import AnyTool, FunctionTool, HttpTool, Key, Tool, tool, warn_without_contract

__all__ = [
    "STANDARD_MARKS",
    "AnyTool",
    "ApiKey",
    "Auth",
    "AuthProvider",
    "ClientCredentials",
    "FunctionTool",
    "HeaderCarrier",
    "HttpLookup",
    "HttpTool",
    "Idempotency",
    "JobAdapter",
    "JobAnswer",
    "JobReading",
    "JobStart",
    "Key",
    "Member",
    "OnBehalfOf",
    "PollPolicy",
    "PrivateKey",
    "RefreshToken",
    "ReplayMark",
    "RetryPolicy",
    "StaticToken",
    "SubjectToken",
    "Timeouts",
    "TokenCallable",
    "TokenExchange",
    "Tool",
    "ToolContract",
    "tool",
    "warn_without_contract",
]
