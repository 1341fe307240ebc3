"""The protocol of an access token that processes share, by grants that can be asked twice without harm.

There is no doubt here: a holder that died is replaced, a turn that takes too long is not waited for, and where the
ledger or its seal is of no use the token is asked for all the same. Only a request is at stake, never the token.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.effects import NoCredential
from agent_runtime._core.tokens import KeptTokens, judge_shared
from agent_runtime._drive.tokens.fetch import fetch, read
from agent_runtime._drive.tokens.turns import Turn, free, keep, kept_access, try_turn
from agent_runtime._oauth import SealBroken
from agent_runtime.errors import LedgerError

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import AccessToken, Move
    from agent_runtime._drive.tokens.fetch import Reply
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._oauth import Grant, Seal

HELD_FOR = 10.0
"""Seconds for which others wait for a request; most take far less, and of one that is lost nothing is to be feared."""
THE_ONE = ""
"""What the access token is called in its row: what it is asked for is the row's id."""


@dataclass(slots=True, kw_only=True)
class Sharing(Turn):
    """A turn at an access token."""

    def opened(self, sealed: bytes) -> KeptTokens | None:
        """Return what the row seals; what another key has sealed is written over."""
        try:
            return self.seal.open(self.row, sealed)
        except SealBroken:
            return None

    def judged(self, now: float) -> Move:
        """Return what the row says is to be done."""
        return judge_shared(
            self.record,
            self.kept,
            now=now,
            wanted=self.wanted,
            rejected=self.rejected,
            holder=self.holder,
            ended=self.ended,
        )

    def after(self, reply: Reply) -> Steps[AccessToken | NoCredential]:
        """Write what came, so that others need not ask; it serves whether the ledger takes it or not."""
        got = read(self.grant, reply)
        with suppress(LedgerError):
            if isinstance(got, NoCredential) or got.once:
                yield from free(self)
            else:
                access = kept_access(got, reply)
                sealed = self.seal.close(self.row, KeptTokens(access={THE_ONE: access}))
                yield from keep(self, sealed, expires_at=access.expires_at)
        return got


def share(
    store: TokenStore, seal: Seal, grant: Grant, row: str, rejected: str | None
) -> Steps[AccessToken | NoCredential]:
    """Return a fresh access token: of the row, or asked for by this worker in its turn, or by itself alone."""
    turn = Sharing(
        store=store,
        seal=seal,
        grant=grant,
        row=row,
        name=grant.auth.principal,
        wanted=THE_ONE,
        rejected=rejected,
        held_for=HELD_FOR,
        expires=True,
    )
    with suppress(LedgerError):
        while turn.waited < HELD_FOR:
            done = yield from try_turn(turn)
            if done is not None:
                return done
    return (yield from fetch(store, grant))
