"""What the server can be told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The server's settings; the defaults are those of the contract.

    Attributes:
        claim_seconds: how long a claim stands without being renewed by the process that holds it.
        result_seconds: how long an answer is kept and replayed.
        retry_after: whole seconds that a 409 asks for.
        require_token: whether tools demand a Bearer token of ``POST /oauth/token``.
        token_seconds: the lifetime of such a token.
        clients: client ids with their secrets.
        opening_balance: what an account holds, in cents, before its first debit.
    """

    claim_seconds: float = 120.0
    result_seconds: float = 24 * 3600.0
    retry_after: int = 1
    require_token: bool = False
    token_seconds: int = 3600
    clients: dict[str, str] = field(default_factory=lambda: {"agent": "agent-secret"})
    opening_balance: int = 100_000_00

    def __post_init__(self) -> None:
        if self.claim_seconds <= 0 or self.result_seconds <= 0 or self.token_seconds <= 0:
            raise ValueError("claim_seconds, result_seconds and token_seconds must be positive")
