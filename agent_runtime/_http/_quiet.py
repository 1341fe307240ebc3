"""Keeps secrets out of the log lines that HTTP libraries write while a request of ours is out.

httpx logs each URL at INFO with its query; httpcore logs headers, and hpack their values, at DEBUG. The filters act
only on records made during our own sends: what the user's client does elsewhere is logged as before.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_sending: ContextVar[bool] = ContextVar("agent_runtime_sending", default=False)

# A filter sees the records of its own logger only, never those of children: each is named.
_CLIENTS = ("httpx", "httpx2")
_TRANSPORTS = tuple(
    f"{root}.{part}"
    for root in ("httpcore", "httpcore2")
    for part in ("connection", "http11", "http2", "proxy", "socks")
)
_CODECS = ("hpack", "hpack.hpack", "hpack.table")


@contextmanager
def quiet() -> Iterator[None]:
    """Take secrets out of the HTTP libraries' log records in this context."""
    token = _sending.set(True)
    try:
        yield
    finally:
        _sending.reset(token)


def install() -> None:
    """Put the filters on the libraries' loggers; again and again does no more than once."""
    for name in (*_CLIENTS, *_TRANSPORTS, *_CODECS):
        logging.getLogger(name).addFilter(_redact)


def _redact(record: logging.LogRecord) -> bool:
    if not _sending.get():
        return True
    if record.name in _CODECS:
        return False
    if record.name in _TRANSPORTS:
        # "receive_response_headers.complete return_value=(...)": the event's name says enough.
        record.msg = record.getMessage().partition(" ")[0]
        record.args = None
        return True
    if isinstance(record.args, tuple):
        record.args = tuple(_bare(arg) if _is_url(arg) else arg for arg in record.args)
    return True


def _is_url(arg: object) -> bool:
    return "://" in str(arg)


def _bare(url: object) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(str(url))
    except ValueError:
        return "(URL)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
