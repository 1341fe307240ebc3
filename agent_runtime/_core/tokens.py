"""Decisions about tokens: how long one may be sent, whose turn it is to ask, what a refresh's lost answer means."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent_runtime._core.job_start import json_of
from agent_runtime._model import Answer, BodyState
from agent_runtime.config import defaults
from agent_runtime.config.auth import Secretive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_runtime._model import SendFailure
    from agent_runtime._model.tokens import TokenRecord
    from agent_runtime.config.auth import SubjectToken

FIRST_LOOK: Final = 0.02
LAST_LOOK: Final = 0.5
"""Seconds between two looks at a request that another worker has under way: it takes a moment, or never ends."""
AHEAD: Final = 5.0
"""Seconds by which a token of the ledger may have been asked for later than now: workers' clocks differ a little."""


@dataclass(slots=True, eq=False)
class Subject(Secretive):
    """On whose behalf a session calls, and the proof of it that was brought; `Session.authenticate` changes it.

    Attributes:
        name: the session's actor; part of principals, so it must stay the same when the token is renewed.
        token: the user's token, or a function that returns the current one; never forwarded to a tool.
    """

    name: str | None = None
    token: SubjectToken | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken(Secretive):
    """A bearer token as it was issued; its repr does not show it.

    Attributes:
        value: the token.
        issued_at: the boot-time clock when the request for it was SENT, so that its age is never too small.
        expires_at: ``issued_at`` plus its lifetime, in seconds of the same clock.
        scope: the scope that was granted, or None if it is the one that was asked for.
    """

    value: str = field(repr=False)
    issued_at: float
    expires_at: float
    scope: str | None = None

    def fresh(self, now: float) -> bool:
        """Return whether a request sent at ``now`` (same clock) may still carry it.

        It counts as stale a little early: by a tenth of its lifetime, at least 5 s and at most 60 s; but never by more
        than half of it, or a short-lived token would be asked for anew for every call.
        """
        lifetime = self.expires_at - self.issued_at
        share = min(defaults.TOKEN_LEEWAY, defaults.TOKEN_LEEWAY_SHARE * lifetime)
        leeway = min(max(defaults.TOKEN_LEEWAY_LEAST, share), 0.5 * lifetime)
        return now < self.expires_at - leeway

    @property
    def once(self) -> bool:
        """Whether it is good for one request at most: the server gave it no time to live."""
        return self.expires_at <= self.issued_at

    @property
    def id(self) -> str:
        """What tells it from other tokens without showing it."""
        return token_id(self.value)

    def header(self) -> tuple[str, str]:
        """Return the ``Authorization`` header that carries it (RFC 6750 section 2.1)."""
        return ("Authorization", f"Bearer {self.value}")


def token_id(secret: str) -> str:
    """Return what tells secrets apart without showing them."""
    return seed_digest(secret)[:16]


def seed_digest(secret: str) -> str:
    """Return what tells tokens from outside apart, in full: in the ledger, and in memory."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAccess(Secretive):
    """An access token beside its refresh token; times by the database's clock, which all workers share."""

    value: str = field(repr=False)
    sent_at: float
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTokens(Secretive):
    """What a token row seals.

    Attributes:
        refresh: the refresh token to be sent next; None in a row that only shares an access token.
        access: access tokens by what they were asked for.
        before: the chain that ``refresh`` is to replace, until the server has taken ``refresh`` once.
    """

    refresh: str | None = field(default=None, repr=False)
    access: Mapping[str, KeptAccess] = field(default_factory=dict)
    before: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Use:
    """The row holds a token that is good."""

    access: KeptAccess


@dataclass(frozen=True, slots=True)
class Wait:
    """Another worker asks for a token, and has at most so many seconds more."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refresh:
    """It is time to ask for a token.

    Attributes:
        begins: by a refresh token from outside that the row has never seen.
        returns: by the chain that the row's refresh token was to replace.
        within: seconds from now within which the request must go out.
    """

    begins: bool = False
    returns: bool = False
    within: float = math.inf


@dataclass(frozen=True, slots=True)
class Stop:
    """No refresh helps; a person has to authorise anew."""

    why: str


Move = Use | Wait | Refresh | Stop


IN_DOUBT: Final = (
    "the answer to a refresh was lost, so the refresh token may be used up, and sending it again could make the server "
    "revoke the grant"
)


def judge(
    record: TokenRecord | None,
    kept: KeptTokens | None,
    *,
    now: float,
    seed: str,
    wanted: str,
    rejected: str | None,
    grace: float,
    holder: str,
    ended: str | None = None,
) -> Move:
    """Return what is to be done about an account whose refresh tokens rotate.

    Args:
        record: its row, or None before the first use.
        kept: what the row seals, or None before the first token.
        now: by the database's clock (UTC epoch seconds).
        seed: digest of the refresh token that the settings bring.
        wanted: what the access token is asked for.
        rejected: id of the access token that a tool has just refused.
        grace: seconds for which the server takes an old refresh token again.
        holder: who asks.
        ended: a holder whose time is certainly over, whatever the row says.
    """
    if record is None:
        return Refresh(begins=True)
    begins = seed not in record.seeds or kept is None
    access = None if begins else _usable(kept, wanted, rejected, now)
    if access is not None:
        return Use(access)
    held_by_other = record.holder not in {None, holder}
    left = _left(record, now, holder, ended)
    if left > 0:
        return Wait(left)
    if begins:
        return Refresh(begins=True)
    if record.problem is not None:
        return Stop(f"the server says that the refresh token is of no use any more ({record.problem})")
    # A worker that ended during its refresh left the same doubt as a lost answer.
    doubts = record.doubts + held_by_other
    if doubts == 0:
        return Refresh()
    within = _repeat_within(record, now, grace) if doubts == 1 else 0.0
    if within > 0:
        return Refresh(within=within)
    # The token in doubt was to replace a chain of another token, of which nothing is in doubt.
    return Refresh(returns=True) if kept is not None and kept.before is not None else Stop(IN_DOUBT)


def _repeat_within(record: TokenRecord, now: float, grace: float) -> float:
    """Return the seconds within which a token may be sent again, counted from when its first sending may have been."""
    since = None if record.tried_at is None else now - record.tried_at
    return grace - since if since is not None and since >= 0 else 0.0


def of_no_use(record: TokenRecord | None, now: float) -> bool | None:
    """Whether what stands in a row that has moved on serves nobody; None = that is not known yet.

    Args:
        record: the row, or None if it was deleted.
        now: by the database's clock (UTC epoch seconds).
    """
    if record is None or _left(record, now, holder="") > 0:
        return None
    return record.problem is not None or record.doubts > 0 or record.holder is not None


def judge_shared(
    record: TokenRecord | None,
    kept: KeptTokens | None,
    *,
    now: float,
    wanted: str,
    rejected: str | None,
    holder: str,
    ended: str | None = None,
) -> Move:
    """Return what is to be done about an access token that can be asked for twice: there is no doubt, and no end.

    The arguments are those of `judge`.
    """
    access = _usable(kept, wanted, rejected, now)
    if access is not None:
        return Use(access)
    left = 0.0 if record is None else _left(record, now, holder, ended)
    return Wait(left) if left > 0 else Refresh()


def _usable(kept: KeptTokens | None, wanted: str, rejected: str | None, now: float) -> KeptAccess | None:
    access = None if kept is None else kept.access.get(wanted)
    return access if access is not None and _good(access, now) and token_id(access.value) != rejected else None


def _left(record: TokenRecord, now: float, holder: str, ended: str | None = None) -> float:
    """Return the seconds that another one still holds a row."""
    if record.holder in {None, holder, ended} or record.held_until is None:
        return 0.0
    return record.held_until - now


def _good(access: KeptAccess, now: float) -> bool:
    """Return whether a token is fresh; of one that was asked for in the future nobody knows the age."""
    token = AccessToken(value="-", issued_at=access.sent_at, expires_at=access.expires_at)
    return access.sent_at <= now + AHEAD and token.fresh(now)


def pruned(access: Mapping[str, KeptAccess], now: float) -> dict[str, KeptAccess]:
    """Return the access tokens that may still be of use to another worker."""
    return {wanted: one for wanted, one in access.items() if _good(one, now)}


_NOT_APPLIED: Final = frozenset({408, 425, 429})


def may_have_rotated(reply: Answer | SendFailure) -> bool:
    """Whether a refresh without a usable reply may have used the refresh token up.

    Asked only where the reply bears no error code of its own. A refusal (4xx), a 503 that the server itself made and a
    request that was never sent have not; a lost or cut answer, another 5xx, and a 200 that cannot be read may have.
    """
    if not isinstance(reply, Answer):
        return reply.maybe_sent
    if reply.status in _NOT_APPLIED or (reply.status == 503 and _deliberate(reply)):
        return False
    if 300 <= reply.status < 500:
        return False
    return reply.status >= 500 or reply.body_state is not BodyState.WHOLE or reply.status < 300


def _deliberate(reply: Answer) -> bool:
    """Whether a 503 says that it was meant: gateways send a bare one also after they have passed the request on."""
    return bool(reply.header_list("retry-after")) or isinstance(json_of(reply).get("error"), str)
