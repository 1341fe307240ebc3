"""The protocol of a refresh token that rotates: one worker at a time, and kept before anybody uses what it brought.

A refresh uses its token up. So it is sent by the one who has taken the row, the new one stands in the ledger before its
access token is used, and where the answer was lost nobody sends the old one again.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_runtime._core.effects import Job, NoCredential, Now, Obtain, ask
from agent_runtime._core.tokens import (
    IN_DOUBT,
    AccessToken,
    KeptTokens,
    judge,
    may_have_rotated,
    of_no_use,
    pruned,
    seed_digest,
)
from agent_runtime._drive.tokens.fetch import Reply, read
from agent_runtime._drive.tokens.identity import advice
from agent_runtime._drive.tokens.store import Unsaved
from agent_runtime._drive.tokens.turns import OF_ANOTHER_ROW, Turn, free, keep, kept_access, try_turn
from agent_runtime._model import Answer
from agent_runtime._oauth import SealBroken, refresh_token_of
from agent_runtime.config import defaults
from agent_runtime.config.auth import RefreshToken
from agent_runtime.errors import LedgerError

if TYPE_CHECKING:
    from agent_runtime._core.effects import Steps
    from agent_runtime._core.tokens import Move, Refresh
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._oauth import Grant

HELD_FOR = defaults.READ_TIMEOUT + 15.0
"""Seconds after which a refresh has certainly ended, whoever made it."""


@dataclass(slots=True, kw_only=True)
class Rotation(Turn):
    """A turn at an account. ``seed_text`` is the refresh token that the settings bring."""

    auth: RefreshToken
    seed: str
    seed_text: str = dataclasses.field(repr=False)

    def opened(self, sealed: bytes) -> KeptTokens | None:
        """Return what the row seals; raises `SealBroken`, unless a token that is new to the row is to replace it."""
        try:
            return self.seal.open(self.row, sealed)
        except SealBroken:
            if self.record is None or self.seed in self.record.seeds:
                raise
            return None

    def judged(self, now: float) -> Move:
        """Return what the row says is to be done."""
        return judge(
            self.record,
            self.kept,
            now=now,
            seed=self.seed,
            wanted=self.wanted,
            rejected=self.rejected,
            grace=self.auth.grace,
            holder=self.holder,
            ended=self.ended,
        )

    def prepared(self, move: Refresh) -> Steps[bool]:
        """Put the token to be sent at the head of the chain, and into the grant; False = the row has changed."""
        head = self.kept
        if move.begins:
            head = _beginning(self)
        elif move.returns:
            assert self.kept is not None
            head = KeptTokens(refresh=self.kept.before)
        assert head is not None
        if head is not self.kept and not (yield from _put(self, head)):
            return False
        self.grant = dataclasses.replace(self.grant, subject=head.refresh)
        return True

    def after(self, reply: Reply) -> Steps[AccessToken | NoCredential | None]:
        """Write what a refresh brought; only then is its access token given out."""
        return (yield from _after(self, reply))

    def refused(self, why: str) -> NoCredential:
        """Say why no refresh helps, and what does."""
        if why == OF_ANOTHER_ROW:
            return _of_another_account(self)
        code = "refresh_in_doubt" if why == IN_DOUBT else "invalid_grant"
        return NoCredential("required", f"{why}: {advice(self.auth, None)}", error=code)

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
    turn = Rotation(
        store=store,
        seal=store.seal,
        auth=auth,
        grant=grant,
        row=store.row_of(auth),
        name=auth.principal,
        held_for=HELD_FOR,
        seed=seed_digest(text),
        seed_text=text,
        wanted=json.dumps([grant.scopes, grant.audiences, grant.resources]),
        rejected=rejected,
    )
    while True:
        try:
            yield from _save(store, turn.row)
            done = yield from try_turn(turn)
        except SealBroken:
            return _sealed_otherwise(turn)
        except LedgerError as error:
            message = f"the ledger could not take or give the refresh token ({error}); what was got is not lost"
            return NoCredential("unavailable", message)
        if done is not None:
            return done


def save_all(store: TokenStore) -> Steps[list[str]]:
    """Try once more to write what the ledger could not take; return the accounts whose newest token is lost."""
    lost = []
    for row, left in list(store.unsaved.items()):
        with suppress(LedgerError):
            yield from _save(store, row)
        if left.given and store.unsaved.get(row) is left:
            lost.append(left.name)
    return lost


def _save(store: TokenStore, row: str) -> Steps[None]:
    """Write tokens that the ledger could not take when they came; they stay noted where that cannot be done yet."""
    left = store.unsaved.get(row)
    if left is None:
        return
    wrote = yield from _written(row, left, left.version, left.seeds)
    if not wrote and left.given and not (yield from _overtaken(row, left)):
        return
    # The write may have taken before, without giving the row back.
    yield from ask(Job(lambda ledger: ledger.free_token(row, holder=left.holder)))
    store.settled(row, left)


def _overtaken(row: str, left: Unsaved) -> Steps[bool]:
    """Settle what a server gave where the row has moved on: it goes over what is of no use; False = not settled yet."""
    record = yield from ask(Job(lambda ledger: ledger.token(row)))
    useless = of_no_use(record, (yield from ask(Now())))
    if record is None or not useless:
        return useless is False
    # What others brought meanwhile was sent: it must not begin a chain again.
    seeds = (*record.seeds, *(seed for seed in left.seeds if seed not in record.seeds))
    return (yield from _written(row, left, record.version, seeds))


def _written(row: str, left: Unsaved, version: int, seeds: tuple[str, ...]) -> Steps[bool]:
    new = yield from ask(
        Job(lambda ledger: ledger.keep_token(row, holder=left.holder, version=version, sealed=left.sealed, seeds=seeds))
    )
    return new is not None


def _beginning(turn: Rotation) -> KeptTokens:
    """Return a chain that a token from outside begins, with the one that it is to replace if that one is sound."""
    record, old = turn.record, turn.kept
    before = None if old is None else old.before
    if before is None and old is not None and record is not None and record.problem is None and record.doubts == 0:
        before = old.refresh
    return KeptTokens(refresh=turn.seed_text, before=before)


def _put(turn: Rotation, head: KeptTokens) -> Steps[bool]:
    """Put a token at the head of the chain that will be sent in this turn; False = the row has changed."""
    sealed, seeds = turn.seal.close(turn.row, head), turn.seeds
    version = turn.version
    try:
        wrote = yield from keep(turn, sealed, seeds=seeds, release=False)
    except LedgerError:
        # Nothing was sent, and the turn is over: the row is given back with what it should hold.
        owed = Unsaved(name=turn.name, holder=turn.holder, version=version, sealed=sealed, seeds=seeds, given=False)
        turn.store.owe(turn.row, owed)
        raise
    if wrote:
        turn.kept = head
    return wrote


def _keep(turn: Rotation, kept: KeptTokens) -> Steps[bool]:
    """Write what a refresh brought and give the row back; until the ledger has taken it, it stands in memory."""
    sealed, seeds = turn.seal.close(turn.row, kept), turn.seeds
    owed = Unsaved(name=turn.name, holder=turn.holder, version=turn.version, sealed=sealed, seeds=seeds)
    turn.store.owe(turn.row, owed)
    wrote = yield from keep(turn, sealed, seeds=seeds)
    if wrote or (yield from _overtaken(turn.row, owed)):
        turn.store.settled(turn.row, owed)
    return wrote


def _after(turn: Rotation, reply: Reply) -> Steps[AccessToken | NoCredential | None]:
    assert turn.kept is not None
    got = read(turn.grant, reply)
    if isinstance(got, AccessToken):
        kept = yield from _keep(turn, _renewed(turn.kept, turn.wanted, got, reply))
        return got if kept else None
    if got.kind == "required" and got.error == "invalid_grant":
        return (yield from _over(turn, got))
    if got.error is None:
        newer = _refresh_token_alone(reply)
        if newer is not None:
            head = KeptTokens(refresh=newer, access=pruned(turn.kept.access, reply.sent_on))
            kept = yield from _keep(turn, head)
            return _without_access_token(got) if kept else None
        if may_have_rotated(reply.result):
            yield from free(turn, doubt=True)
            return None  # the row says what follows
    yield from free(turn)
    return got


def _refresh_token_alone(reply: Reply) -> str | None:
    """Return the refresh token of a good reply whose access token cannot be used: the server goes by it from now on."""
    result = reply.result
    return refresh_token_of(result) if isinstance(result, Answer) and 200 <= result.status < 300 else None


def _without_access_token(got: NoCredential) -> NoCredential:
    message = f"the refresh brought a refresh token, which was kept, and no access token to use: {got.message}"
    return dataclasses.replace(got, message=message)


def _renewed(kept: KeptTokens, wanted: str, got: AccessToken, reply: Reply) -> KeptTokens:
    """Return what is kept after a refresh; a reply without a refresh token leaves the old one in force."""
    assert isinstance(reply.result, Answer)
    access = pruned(kept.access, reply.sent_on) | {wanted: kept_access(got, reply)}
    return KeptTokens(refresh=refresh_token_of(reply.result) or kept.refresh, access=access)


def _over(turn: Rotation, got: NoCredential) -> Steps[NoCredential | None]:
    """The server knows the token no more: go back to the chain that it was to replace, or say that all is over."""
    assert turn.kept is not None
    if turn.kept.before is not None:
        yield from _keep(turn, KeptTokens(refresh=turn.kept.before))
        return None
    yield from free(turn, problem=got.error)
    return got


def _of_another_account(turn: Rotation) -> NoCredential:
    """Say what is wrong without naming the other account: it may be another tenant's."""
    message = (
        f"the refresh token in the settings of account {turn.auth.account!r} was brought to this ledger before, under "
        "another account name, client, tenant or spelling of the server. Refreshed from two places it would be used "
        "twice, and the server could revoke the grant; so nothing was sent or stored. Set the account up in one way, "
        "or authorise it anew and bring the refresh token that comes of it"
    )
    return NoCredential("refused", message, error="refresh_token_of_another_account")


def _sealed_otherwise(turn: Rotation) -> NoCredential:
    message = (
        f"the ledger holds the refresh token of account {turn.auth.account!r} under another token_key; give the "
        "key that it was sealed with (several may stand, separated by commas). If that key is lost, authorise the "
        "account anew and bring its new refresh token in the settings: it begins a new chain under the present key"
    )
    return NoCredential("required", message, error="token_key")
