"""What an authorisation server granted in place of the scopes that were asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from agent_runtime._oauth import LIKE_A_TOKEN

if TYPE_CHECKING:
    from collections.abc import Hashable

    from agent_runtime._core.tokens import AccessToken
    from agent_runtime._drive.tokens.store import TokenStore
    from agent_runtime._oauth import Grant

logger: Final = logging.getLogger("agent_runtime")
NOTHING: Final = "(none)"
_SHOWN: Final = 300


def note_scope(store: TokenStore, grant: Grant, key: Hashable, token: AccessToken) -> None:
    """Remember what was granted, and warn once for each thing asked for if something of it is missing."""
    if token.scope is None:
        return  # it is what was asked for (RFC 6749 section 5.1)
    granted = token.scope.split()
    if set(granted) == set(grant.scopes):
        store.granted.pop(key, None)
        return
    missing = [one for one in grant.scopes if one not in granted]
    new = store.note_granted(key, _shown(granted, grant.scopes))
    if missing and new:
        logger.warning(
            "the authorisation server %s did not grant client %r the scopes %r that were asked for; tools that need "
            "them will refuse its token",
            grant.auth.server,
            grant.auth.client_id,
            " ".join(missing),
        )


def _shown(granted: list[str], asked: tuple[str, ...]) -> str:
    """Return scopes for people; those that nobody asked for are the server's own words, and may be anything."""
    words = [one if one in asked else LIKE_A_TOKEN.sub("[cut]", one) for one in granted]
    return " ".join(words)[:_SHOWN] or NOTHING
