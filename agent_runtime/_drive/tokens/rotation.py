"""The protocol of a refresh token that rotates: one worker at a time, and kept before anybody uses what it brought.

A refresh uses its token up. So it is sent by the one who has taken the row, the new one stands in the ledger before its
access token is used, and where the answer was lost nobody sends the old one again.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Boottime, Job, NewId, NoCredential, Now, Obtain, Sleep, ask
from agent_runtime._core.tokens import (
    FIRST_LOOK,
    IN_DOUBT,
    LAST_LOOK,
    AccessToken,
    KeptAccess,
    KeptTokens,
    Refresh,
    Stop,
    Use,
    Wait,
    judge,
    may_have_rotated,
    pruned,
    seed_digest,
)
from agent_runtime._drive.tokens.fetch import Reply, endpoint, read, request
from agent_runtime._drive.tokens.identity import advice
from agent_runtime._drive.tokens.store import Unsaved
from agent_runtime._model import Answer
from agent_runtime._oauth import SealBroken, refresh_token_of
from agent_runtime.config import defaults
from agent_runtime.config.auth import RefreshToken
from agent_runtime.errors import LedgerError

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._model.tokens import TokenRecord
    from agent_runtime._oauth import Grant, Seal

HELD_FOR = defaults.READ_TIMEOUT + 15.0
"""Seconds after which a refresh has certainly ended, whoever made it."""
PROMPT = 10.0
"""Seconds within which it is sent once the row was taken; a worker that slept longer looks again."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One try of one worker. ``kept`` and ``record`` are what the row held when it was looked at last."""

    store: TokenStore
    seal: Seal
    auth: RefreshToken
    grant: Grant
    row: str
    seed: str
    seed_text: str
    wanted: str
    rejected: str | None
    holder: str = ""
    record: TokenRecord | None = None
    kept: KeptTokens | None = None
    version: int = 0
    pause: float = FIRST_LOOK

    def judged(self, now: float) -> Use | Wait | Refresh | Stop:
        """Return what the row says is to be done."""
        return judge(
            self.record,
            self.kept,
            now=now,
            seed=self.seed,
            wanted=self.wanted,
            rejected=self.rejected,
            grace=self.auth.rotation_grace,
            holder=self.holder,
        )

    def see(self, record: TokenRecord | None) -> None:
        """Take a look at the row; raises `SealBroken`."""
        self.record = record
        sealed = record.sealed if record is not None else None
        self.kept = None if sealed is None else self.seal.open(self.row, sealed)
        self.version = record.version if record is not None else 0

    @property
    def seeds(self) -> tuple[str, ...]:
        """Digests of the tokens from outside, with this worker's own."""
        known = self.record.seeds if self.record is not None else ()
        return known if self.seed in known else (*known, self.seed)


def rotate(store: TokenStore, grant: Grant, rejected: str | None) -> Steps[AccessToken | NoCredential]:
    """Return a fresh access token of an account, refreshing it if nobody else has.

    Raises:
        LedgerError: the row cannot be read or written; what the server gave is kept in memory and written later.
    """
    auth = grant.auth
    assert isinstance(auth, RefreshToken)
    assert store.seal is not None
    text = auth.refresh_token
    if not isinstance(text, str):
        text = yield from ask(Obtain(text, auth.principal))
    turn = _Turn(
        store=store,
        seal=store.seal,
        auth=auth,
        grant=grant,
        row=store.row_of(auth),
        seed=seed_digest(text),
        seed_text=text,
        wanted=json.dumps([grant.scopes, grant.audiences, grant.resources]),
        rejected=rejected,
    )
    while True:
        try:
            done = yield from _try(turn)
        except SealBroken:
            return _sealed_otherwise(turn)
        except LedgerError as error:
            message = f"the ledger could not take or give the refresh token ({error}); what was got is not lost"
            return NoCredential("unavailable", message)
        if done is not None:
            return done


def _try(turn: _Turn) -> Steps[AccessToken | NoCredential | None]:
    """Look at the row and do what it says; None = look again."""
    yield from _save(turn)
    turn.holder = yield from ask(NewId())
    turn.see((yield from ask(Job(lambda ledger: ledger.token(turn.row)))))
    now = yield from ask(Now())
    move = turn.judged(now)
    if isinstance(move, Wait):
        yield from _pause(turn, move.seconds)
        return None
    if isinstance(move, Use):
        return (yield from _kept(move.access))
    if isinstance(move, Stop):
        return _stopped(turn, move.why)
    url = yield from endpoint(turn.store, turn.auth)
    if isinstance(url, NoCredential):
        return url
    return (yield from _in_turn(turn, url))


def _pause(turn: _Turn, most: float) -> Steps[None]:
    yield from ask(Sleep(min(turn.pause, most)))
    turn.pause = min(turn.pause * 2, LAST_LOOK)


def _save(turn: _Turn) -> Steps[None]:
    """Write tokens that the ledger could not take when they came."""
    left = turn.store.unsaved.get(turn.row)
    if left is None:
        return
    yield from ask(
        Job(
            lambda ledger: ledger.keep_token(
                turn.row, holder=left.holder, version=left.version, sealed=left.sealed, seeds=left.seeds
            )
        )
    )
    turn.store.unsaved.pop(turn.row, None)


def _in_turn(turn: _Turn, url: str) -> Steps[AccessToken | NoCredential | None]:
    """Take the row, look at what stands now that it is taken, and refresh if that is still to be done."""
    began = yield from ask(Boottime())
    name = turn.auth.principal
    hold = yield from ask(
        Job(lambda ledger: ledger.hold_token(turn.row, name=name, holder=turn.holder, seconds=HELD_FOR, seed=turn.seed))
    )
    if hold.record is None:
        return _of_another_account(turn)
    if not hold.took:
        yield from _pause(turn, HELD_FOR)
        return None
    turn.see(hold.record)
    move = turn.judged(hold.now)
    if isinstance(move, Refresh) and move.begins:
        yield from _begin(turn)
    now = yield from ask(Boottime())
    if not isinstance(move, Refresh) or now - began > PROMPT:
        yield from _free(turn)
        return None
    assert turn.kept is not None
    turn.grant = dataclasses.replace(turn.grant, subject=turn.kept.refresh)
    reply = yield from request(turn.grant, url)
    return (yield from _after(turn, reply))


def _begin(turn: _Turn) -> Steps[None]:
    """Put a token from outside at the head of the chain, before it is sent for the first time."""
    record, old = turn.record, turn.kept
    sound = record is not None and record.problem is None and record.doubts == 0
    turn.kept = KeptTokens(refresh=turn.seed_text, before=old.refresh if old is not None and sound else None)
    yield from _keep(turn, turn.kept, release=False)


def _keep(turn: _Turn, kept: KeptTokens, *, release: bool) -> Steps[bool]:
    sealed, version, seeds = turn.seal.close(turn.row, kept), turn.version, turn.seeds
    turn.store.unsaved[turn.row] = Unsaved(holder=turn.holder, version=version, sealed=sealed, seeds=seeds)
    new = yield from ask(
        Job(
            lambda ledger: ledger.keep_token(
                turn.row, holder=turn.holder, version=version, sealed=sealed, seeds=seeds, release=release
            )
        )
    )
    turn.store.unsaved.pop(turn.row, None)
    turn.version = new if new is not None else version
    return new is not None


def _free(turn: _Turn, *, doubt: bool = False, problem: str | None = None) -> Steps[None]:
    yield from ask(Job(lambda ledger: ledger.free_token(turn.row, holder=turn.holder, doubt=doubt, problem=problem)))


def _after(turn: _Turn, reply: Reply) -> Steps[AccessToken | NoCredential | None]:
    """Write what a refresh brought; only then is its access token given out."""
    assert turn.kept is not None
    got = read(turn.grant, reply)
    if isinstance(got, AccessToken):
        kept = yield from _keep(turn, _renewed(turn.kept, turn.wanted, got, reply), release=True)
        return got if kept else None
    if got.kind == "required" and got.error == "invalid_grant":
        return (yield from _over(turn, got))
    if got.error is None and may_have_rotated(reply.result):
        yield from _free(turn, doubt=True)
        tried = turn.record.doubts if turn.record is not None else 0
        return None if turn.auth.rotation_grace and tried == 0 else _stopped(turn, IN_DOUBT)
    yield from _free(turn)
    return got


def _renewed(kept: KeptTokens, wanted: str, got: AccessToken, reply: Reply) -> KeptTokens:
    """Return what is kept after a refresh; a reply without a refresh token leaves the old one in force."""
    assert isinstance(reply.result, Answer)
    lifetime = got.expires_at - got.issued_at
    access = pruned(kept.access, reply.sent_on)
    access[wanted] = KeptAccess(value=got.value, sent_at=reply.sent_on, expires_at=reply.sent_on + lifetime)
    return KeptTokens(refresh=refresh_token_of(reply.result) or kept.refresh, access=access)


def _over(turn: _Turn, got: NoCredential) -> Steps[NoCredential | None]:
    """The server knows the token no more: go back to the chain that it was to replace, or say that all is over."""
    assert turn.kept is not None
    if turn.kept.before is not None:
        yield from _keep(turn, KeptTokens(refresh=turn.kept.before), release=True)
        return None
    yield from _free(turn, problem=got.error)
    return got


def _kept(access: KeptAccess) -> Steps[AccessToken]:
    """Return a token of the row, its times turned to the boot-time clock of this machine."""
    now = yield from ask(Now())
    boottime = yield from ask(Boottime())
    return AccessToken(
        value=access.value,
        issued_at=boottime - (now - access.sent_at),
        expires_at=boottime + (access.expires_at - now),
    )


def _stopped(turn: _Turn, why: str) -> NoCredential:
    code = "refresh_in_doubt" if why == IN_DOUBT else "invalid_grant"
    return NoCredential("required", f"{why}: {advice(turn.auth, None)}", error=code)


def _of_another_account(turn: _Turn) -> NoCredential:
    """Say what is wrong without naming the other account: it may be another tenant's."""
    message = (
        f"the refresh token in the settings of account {turn.auth.account!r} was brought to this ledger before, under "
        "another account name, client, tenant or spelling of the server. Refreshed from two places it would be used "
        "twice, and the server could revoke the grant; so nothing was sent or stored. Set the account up in one way, "
        "or authorise it anew and bring the refresh token that comes of it"
    )
    return NoCredential("refused", message, error="refresh_token_of_another_account")


def _sealed_otherwise(turn: _Turn) -> NoCredential:
    message = (
        f"the ledger holds the refresh token of account {turn.auth.account!r} under another token_key; give the "
        "key that it was sealed with (several may stand, separated by commas)"
    )
    return NoCredential("required", message, error="token_key")
