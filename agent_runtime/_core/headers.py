"""Which header names and values may go out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent_runtime.errors import ConfigError

if TYPE_CHECKING:
    from agent_runtime._model import Headers

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ILLEGAL = re.compile(r"[^\x20-\x7e\t]")
# They say where the body ends, so they are made from the body, by one place.
_FRAMING = frozenset({"content-length", "transfer-encoding"})


def check_headers(headers: Headers) -> None:
    r"""Refuse header lines that HTTP cannot carry, before anything is sent.

    Args:
        headers: names and values; values are tokens and keys among others.

    Raises:
        ConfigError: an illegal name; a value with CR, LF, NUL, other control characters, characters outside ASCII, or
            blanks at an end (a token read from a file often ends in ``\n``); a header that frames the body. The text
            names the header and never holds its value.

    Source: RFC 9110 sections 5.1 and 5.5.
    """
    for name, value in headers:
        if _NAME.fullmatch(name) is None:
            raise ConfigError("a header name holds characters that HTTP does not allow")
        if name.lower() in _FRAMING:
            message = f"header {name} is made from the body: leave it out"
            raise ConfigError(message)
        illegal = _ILLEGAL.search(value)
        if illegal is not None:
            message = f"header {name}: its value holds an illegal character at index {illegal.start()}"
            raise ConfigError(message)
        if value != value.strip(" \t"):
            message = f"header {name}: its value begins or ends with a blank; strip it"
            raise ConfigError(message)
