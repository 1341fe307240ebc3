"""Where an issuer's token endpoint is: its metadata document (RFC 8414, OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from agent_runtime._core.job_start import parsed
from agent_runtime._core.urls import check_url
from agent_runtime._model import BodyState
from agent_runtime.errors import ConfigError, TokenRefused, TokenUnavailable

if TYPE_CHECKING:
    from agent_runtime._model import Answer

_NAMED: Final = 200
"""Characters of another issuer's name that a message tells."""


def metadata_urls(issuer: str) -> tuple[str, str]:
    """Return where an issuer's document may be, in the order of asking.

    OpenID Connect appends to the issuer's path; RFC 8414 section 3.1 puts the well-known part before it.
    """
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    appended = urlunsplit((parts.scheme, parts.netloc, f"{path}/.well-known/openid-configuration", "", ""))
    before = urlunsplit((parts.scheme, parts.netloc, f"/.well-known/oauth-authorization-server{path}", "", ""))
    return appended, before


def read_metadata(answer: Answer, issuer: str) -> str | None:
    """Return the token endpoint that a metadata document names, or None if there is no document here.

    Raises:
        TokenUnavailable: the server cannot serve now.
        TokenRefused: the document is another issuer's (RFC 8414 section 3.3), or names no endpoint that may be used.
    """
    if answer.status in {408, 425, 429} or answer.status >= 500 or answer.body_state is not BodyState.WHOLE:
        message = f"the issuer's metadata cannot be had now (HTTP {answer.status})"
        raise TokenUnavailable(message, retry_after=None)
    document = parsed(answer) if answer.status == 200 else None
    if not isinstance(document, dict):
        return None
    found = document.get("issuer")
    if found != issuer:
        named = repr(found[:_NAMED]) if isinstance(found, str) else "none"
        message = f"the metadata under {issuer!r} is another issuer's: it names {named}; a slash at the end counts"
        raise TokenRefused(message, error=None, status=200)
    endpoint = document.get("token_endpoint")
    try:
        check_url(endpoint if isinstance(endpoint, str) else "")
    except ConfigError:
        raise TokenRefused("the issuer's metadata name no usable token endpoint", error=None, status=200) from None
    assert isinstance(endpoint, str)
    if issuer.startswith("https://") and not endpoint.startswith("https://"):
        raise TokenRefused("the issuer's metadata name a token endpoint without TLS", error=None, status=200)
    return endpoint
