"""The rows in which tokens stand; what is secret in them is sealed before it comes here."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """One account's rotating refresh token, or an access token that processes share, as the ledger has it.

    Attributes:
        id: digest of issuer, client, account and tenant, or of tenant and everything that an access token is asked for.
        name: the principal, for people who look at the table.
        version: grows with each token that is kept.
        sealed: the tokens, encrypted; None before the first.
        seeds: digests of the refresh tokens that were brought from outside, oldest first.
        holder: whose token request is under way, or None.
        held_until: when that request's turn is over, by the database's clock (UTC epoch seconds).
        doubts: refreshes of this token whose end nobody knows.
        tried_at: when the row was taken for the first refresh of this token, by the database's clock (UTC epoch
            seconds); None where it was not, or where nobody knows.
        problem: why the token is of no use any more, or None.
    """

    id: str
    name: str
    version: int
    sealed: bytes | None = field(repr=False)
    seeds: tuple[str, ...]
    holder: str | None
    held_until: float | None
    doubts: int
    problem: str | None
    tried_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHold:
    """What became of the wish to ask for a token.

    Attributes:
        took: it is this holder's turn.
        record: the row as it stands then; None where the token from outside belongs to another row, and nothing was
            taken or made.
        now: by the database's clock (UTC epoch seconds).
    """

    took: bool
    record: TokenRecord | None
    now: float
