"""Whose turn a token request is, among all processes on one ledger.

A worker takes the row, looks at what stands now that it is taken, asks, and writes what came before anybody uses it;
the others wait and find it. No transaction is open while a request is out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Boottime, Job, NewId, NoCredential, Now, Sleep, ask
from agent_runtime._core.tokens import (
    FIRST_LOOK,
    LAST_LOOK,
    AccessToken,
    KeptAccess,
    KeptTokens,
    Refresh,
    Stop,
    Use,
    Wait,
)
from agent_runtime._drive.tokens.fetch import ENDING, Reply, endpoint, left_alone, request

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import Move
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._model.tokens import TokenRecord
    from agent_runtime._oauth import Grant, Seal

PROMPT = 10.0
"""Seconds within which a request is sent once the row was taken; a worker that slept longer looks again."""
OF_ANOTHER_ROW = "the refresh token belongs to another row"


@dataclass(slots=True, kw_only=True)
class Turn(ABC):
    """One worker's tries at one row. ``kept`` and ``record`` are what the row held when it was looked at last.

    Attributes:
        row: its id.
        name: of the row, for people who look at the table.
        wanted: what the access token is asked for, among those of the row.
        rejected: id of the access token that a tool has just refused.
        held_for: seconds after which a request has certainly ended, or may be made by somebody else.
        expires: the row may be forgotten once its token has run out.
        seed: digest of the refresh token that the settings bring, or None.
        waited: seconds for which others had the row.
        other, since: who else had the row when it was looked at last, and since when (boot-time clock).
        ended: another holder that has had it for as long as a turn can last.
    """

    store: TokenStore
    seal: Seal
    grant: Grant
    row: str
    name: str
    wanted: str
    rejected: str | None
    held_for: float
    expires: bool = False
    seed: str | None = None
    holder: str = ""
    record: TokenRecord | None = None
    kept: KeptTokens | None = None
    version: int = 0
    pause: float = FIRST_LOOK
    waited: float = 0.0
    other: str | None = None
    since: float = 0.0
    ended: str | None = None

    def see(self, record: TokenRecord | None) -> None:
        """Take a look at the row; raises what `opened` raises."""
        self.record = record
        self.version = record.version if record is not None else 0
        sealed = record.sealed if record is not None else None
        self.kept = None if sealed is None else self.opened(sealed)

    @abstractmethod
    def opened(self, sealed: bytes) -> KeptTokens | None:
        """Return what the row seals."""

    @abstractmethod
    def judged(self, now: float) -> Move:
        """Return what the row says is to be done."""

    def prepared(self, move: Refresh) -> Steps[bool]:  # noqa: ARG002  for those who have something to prepare
        """Write what must stand before the request goes out, and complete ``grant``; False = it may not go out."""
        yield from ()
        return True

    @abstractmethod
    def after(self, reply: Reply) -> Steps[AccessToken | NoCredential | None]:
        """Write what a request brought; only then is its access token given out. None = look again."""

    def refused(self, why: str) -> NoCredential:
        """Say that no request helps, and what does."""
        return NoCredential("refused", why)


def try_turn(turn: Turn) -> Steps[AccessToken | NoCredential | None]:
    """Look at the row and do what it says; None = look again."""
    turn.holder = yield from ask(NewId())
    turn.see((yield from ask(Job(lambda ledger: ledger.token(turn.row)))))
    yield from _watch(turn)
    now = yield from ask(Now())
    move = turn.judged(now)
    if isinstance(move, Wait):
        if turn.store.ending:
            return ENDING
        yield from _pause(turn, move.seconds)
        return None
    if isinstance(move, Use):
        return (yield from _at_hand(move.access))
    if isinstance(move, Stop):
        return turn.refused(move.why)
    url = yield from endpoint(turn.store, turn.grant.auth)
    if isinstance(url, NoCredential):
        return url
    return (yield from _in_turn(turn, url))


def _watch(turn: Turn) -> Steps[None]:
    """Count by this machine's own clock for how long one holder has had the row: the row's clock may step back."""
    other = turn.record.holder if turn.record is not None else None
    now = yield from ask(Boottime())
    if other != turn.other:
        turn.other, turn.since = other, now
    turn.ended = other if now - turn.since >= turn.held_for else None


def _pause(turn: Turn, most: float) -> Steps[None]:
    seconds = min(turn.pause, most)
    yield from ask(Sleep(seconds))
    turn.waited += seconds
    turn.pause = min(turn.pause * 2, LAST_LOOK)


def _in_turn(turn: Turn, url: str) -> Steps[AccessToken | NoCredential | None]:
    """Take the row, look at what stands now that it is taken, and ask if that is still to be done."""
    began = yield from ask(Boottime())
    hold = yield from ask(
        Job(
            lambda ledger: ledger.hold_token(
                turn.row,
                name=turn.name,
                holder=turn.holder,
                seconds=turn.held_for,
                seed=turn.seed,
                expires=turn.expires,
                ended=turn.ended,
            )
        )
    )
    if hold.record is None:
        return turn.refused(OF_ANOTHER_ROW)
    if not hold.took:
        yield from _pause(turn, turn.held_for)
        return None
    turn.see(hold.record)
    move = turn.judged(hold.now)
    closed: NoCredential | None = None
    if isinstance(move, Refresh) and (yield from turn.prepared(move)):
        closed = yield from left_alone(turn.store, url)  # another thread may have been told so meanwhile
        now = yield from ask(Boottime())
        if closed is None and now - began <= min(PROMPT, move.within):
            reply = yield from request(turn.store, turn.grant, url)
            return (yield from turn.after(reply))
    yield from free(turn)
    return closed


def keep(
    turn: Turn,
    sealed: bytes,
    *,
    seeds: tuple[str, ...] = (),
    release: bool = True,
    expires_at: float | None = None,
) -> Steps[bool]:
    """Write new tokens over what the turn saw; False = something newer stood there, and nothing was written."""
    version = turn.version
    new = yield from ask(
        Job(
            lambda ledger: ledger.keep_token(
                turn.row,
                holder=turn.holder,
                version=version,
                sealed=sealed,
                seeds=seeds,
                release=release,
                expires_at=expires_at,
            )
        )
    )
    turn.version = new if new is not None else version
    return new is not None


def free(turn: Turn, *, doubt: bool = False, problem: str | None = None) -> Steps[None]:
    """Give the row back, and say what the request left behind."""
    yield from ask(Job(lambda ledger: ledger.free_token(turn.row, holder=turn.holder, doubt=doubt, problem=problem)))


def kept_access(got: AccessToken, reply: Reply) -> KeptAccess:
    """Return the token that a reply brought as a row keeps it, its times by the clock that all workers share."""
    lifetime = got.expires_at - got.issued_at
    return KeptAccess(value=got.value, sent_at=reply.sent_on, expires_at=reply.sent_on + lifetime)


def _at_hand(access: KeptAccess) -> Steps[AccessToken]:
    """Return a token of the row, its times turned to the boot-time clock of this machine."""
    now = yield from ask(Now())
    boottime = yield from ask(Boottime())
    return AccessToken(
        value=access.value,
        issued_at=boottime - (now - access.sent_at),
        expires_at=boottime + (access.expires_at - now),
    )
