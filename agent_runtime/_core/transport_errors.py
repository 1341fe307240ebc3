"""What an exception of an HTTP client says about the request: certainly not sent, or perhaps sent."""

from __future__ import annotations

from typing import Literal

_ROOTS = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})

# Raised before the first byte of the request: while connecting, by the pool, by a proxy that refuses to connect.
_NOT_SENT = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "InvalidURL"},
)


def transport_error_kind(exc: BaseException) -> Literal["not_sent", "maybe_sent"] | None:
    """Return what an httpx, httpx2 or httpcore exception proves; None if it comes from none of them.

    Known by module and class name, so that neither library is imported. Errors that are new, or whose moment is not
    certain, are ``maybe_sent``.
    """
    names = {cls.__name__ for cls in type(exc).__mro__ if cls.__module__.partition(".")[0] in _ROOTS}
    if not names:
        return None
    if names & _NOT_SENT:
        return "not_sent"
    # A protocol error of our own making: h11 refuses illegal headers before it writes, but it also raises this class
    # for a body of another length than announced, and httpcore does when h2 chokes on an answer.
    if "LocalProtocolError" in names and str(exc).startswith("Illegal header"):
        return "not_sent"
    return "maybe_sent"
