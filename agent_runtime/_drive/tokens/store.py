"""What a runtime remembers of tokens: the fresh ones, the requests that are out, what seals those for the ledger."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_runtime._drive.tokens.identity import auth_of
from agent_runtime._oauth import HOW
from agent_runtime.config.auth import RefreshToken, TokenExchange
from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from agent_runtime._core.tokens import AccessToken
    from agent_runtime._oauth import Seal
    from agent_runtime.config import AnyTool, Auth


LONGEST_CLOSED = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsaved:
    """Tokens that the ledger has not taken yet, of a turn that is over.

    Attributes:
        name: the account.
        holder: whose turn it was.
        version: of the row that they are to be written over.
        sealed: the tokens, encrypted.
        seeds: digests of the tokens from outside.
        given: a server gave them, and they stand nowhere else; what was to be sent is in the settings or the row too.
    """

    name: str
    holder: str
    version: int
    sealed: bytes = field(repr=False)
    seeds: tuple[str, ...]
    given: bool = True


MOST_GRANTED = 1000
"""So many notes of granted scopes are kept: each new assertion of a user may bring one."""


class TokenStore:
    """Tokens of one runtime. Strictly private.

    Attributes:
        tokens: access tokens in memory, by what they were asked for.
        endpoints: token endpoints of issuers, and when they were learned (boot-time clock).
        unsaved: by row.
        closed: until when a token endpoint has asked to be left alone (boot-time clock).
        seal: what seals tokens for the ledger, or None where no key was given.
        unshared: principals whose last token served once: nobody waits for a turn at the next one.
        granted: scopes that were granted in place of those asked for, by what was asked for.
        tasks: async refreshes under way; a loop holds its tasks weakly.
        ending: the runtime is being closed: what is out is finished, and nothing more is asked for.
    """

    def __init__(self, seal: Seal | None = None, tenant: str = "default") -> None:
        self.tokens: dict[Hashable, AccessToken] = {}
        self.endpoints: dict[str, tuple[str, float]] = {}
        self.unsaved: dict[str, Unsaved] = {}
        self.closed: dict[str, float] = {}
        self.seal = seal
        self.tenant = tenant
        self.unshared: set[str] = set()
        self.granted: dict[Hashable, str] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.ending = False
        self._flights: dict[Hashable, concurrent.futures.Future[Any]] = {}
        self._guard = threading.Lock()

    def remembered(self, key: Hashable, rejected: str | None, now: float) -> AccessToken | None:
        """Return a token that is good by the boot-time clock and was not refused just now."""
        held = self.tokens.get(key)
        return held if held is not None and held.fresh(now) and held.id != rejected else None

    def remember(self, key: Hashable, token: AccessToken, now: float) -> None:
        """Keep a token in memory, and forget those that have run out."""
        with self._guard:
            self.tokens = {other: one for other, one in self.tokens.items() if one.expires_at > now}
            if not token.once:
                self.tokens[key] = token

    def join(self, key: Hashable) -> tuple[concurrent.futures.Future[Any], bool]:
        """Return the flight of a key, and whether the caller is the one to fly it."""
        with self._guard:
            flight = self._flights.get(key)
            if flight is not None:
                return flight, False
            flight = self._flights[key] = concurrent.futures.Future()
            flight.set_running_or_notify_cancel()  # it cannot be cancelled
            return flight, True

    def land(self, key: Hashable, result: Any, error: BaseException | None) -> None:
        """End a flight with what it gave or raised."""
        with self._guard:
            flight = self._flights.pop(key, None)
        if flight is None or flight.done():
            return
        if error is not None:
            flight.set_exception(error)
        else:
            flight.set_result(result)

    def flights(self) -> list[concurrent.futures.Future[Any]]:
        """Return what is under way."""
        with self._guard:
            return list(self._flights.values())

    def owe(self, row: str, tokens: Unsaved) -> None:
        """Note what a row has not taken yet."""
        with self._guard:
            self.unsaved[row] = tokens

    def settled(self, row: str, tokens: Unsaved) -> None:
        """Forget what a row has taken, unless something newer is noted by now."""
        with self._guard:
            if self.unsaved.get(row) is tokens:
                del self.unsaved[row]

    def close_endpoint(self, url: str, now: float, seconds: float) -> None:
        """Note that a token endpoint asks to be left alone for so long; an absurd wait counts as a day."""
        with self._guard:
            self.closed[url] = max(self.closed.get(url, 0.0), now + min(seconds, LONGEST_CLOSED))

    def closed_for(self, url: str, now: float) -> float | None:
        """Return the seconds for which a token endpoint wants to be left alone, or None."""
        left = self.closed.get(url, 0.0) - now
        return left if left > 0.001 else None  # what is less comes of adding floats

    def row_of(self, auth: RefreshToken) -> str:
        """Return the id of the row that an account's refresh tokens stand in."""
        return _row(self.tenant, auth.server, auth.client_id, auth.account)

    def row_of_access(self, key: tuple[Any, ...]) -> str:
        """Return the id of the row that an access token stands in, by what it is asked for."""
        return _row(self.tenant, "access", key)

    def note_granted(self, key: Hashable, granted: str) -> bool:
        """Note the scopes that were granted in place of those asked for; False = that is known already."""
        with self._guard:
            known = key in self.granted
            self.granted[key] = granted
            while len(self.granted) > MOST_GRANTED:
                self.granted.pop(next(iter(self.granted)))
            return not known

    def note_sharing(self, principal: str, *, shared: bool) -> None:
        """Note whether a principal's tokens serve more than once."""
        with self._guard:
            (self.unshared.discard if shared else self.unshared.add)(principal)

    def check(self, tool: AnyTool | None, default: Auth | None) -> None:
        """Raise `ConfigError` if a refresh token would have to be kept and there is no key to seal it under."""
        account = rotating_account(default if tool is None else auth_of(tool, default))
        if account is not None and self.seal is None:
            msg = (
                f"the refresh tokens of account {account!r} rotate, so they must be kept in the ledger, and there "
                f"is no token_key to encrypt them. Nothing was stored or sent. {HOW}. If the server never changes "
                "them, say RefreshToken(rotates=False)"
            )
            raise ConfigError(msg)


def rotating_account(auth: Auth | None) -> str | None:
    """Return the account whose rotating refresh tokens a provider goes by, or None."""
    if isinstance(auth, TokenExchange):
        auth = auth.subject
    return auth.account if isinstance(auth, RefreshToken) and auth.rotates else None


def _row(*named: object) -> str:
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()
