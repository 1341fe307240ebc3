"""Where a URL points: origins, and targets of ``Location`` headers."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from agent_runtime.errors import ConfigError

LONGEST_URL = 16_384
"""Characters of a URL that a tool names; no server takes longer ones, and HTTP clients raise for some."""
_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
# What may stand in a URL as it is; "%" stays, since what comes is encoded already.
_KEPT = "%:/?#[]@!$&'()*+,;=-._~"


def origin(url: str) -> str:
    """Return ``scheme://host:port`` of a URL, in lower case and with the port written out.

    Raises:
        ConfigError: it is no absolute http or https URL. Its text does not hold the URL.

    Source: RFC 6454 section 4.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname, parts.port
    except ValueError:  # brackets that do not match, a port out of range
        scheme, host, port = "", None, None
    if scheme not in _PORTS or not host or "%" in host or not (":" in host or _labels(host)):
        raise ConfigError("not an absolute http or https URL")
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{_PORTS[scheme] if port is None else port}"


def _labels(host: str) -> bool:
    # The operating system's look-up raises an error of its own for others, which no transport maps.
    return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))


def same_origin(a: str, b: str) -> bool:
    """Return whether two URLs have the same scheme, host and port; False if one of them is no http or https URL."""
    try:
        return origin(a) == origin(b)
    except ConfigError:
        return False


def resolve(base: str, location: str) -> str | None:
    """Return the absolute URL that a ``Location`` header names, as seen from the URL that was asked.

    The target may be on another origin: compare with `same_origin` before anything is sent there. A fragment is
    dropped, bytes outside ASCII are percent-encoded.

    Returns:
        None for what must not be followed: other schemes, user names or passwords, backslashes, control characters,
        more than `LONGEST_URL` characters.

    Source: RFC 9110 section 10.2.2, RFC 3986 section 5.
    """
    location = location.strip(" \t")
    # urlsplit takes tabs and line ends out, browsers read "\" as "/": such a target is not what it looks like.
    if not location or "\\" in location or any(char <= " " or char == "\x7f" for char in location):
        return None
    try:
        # Header values are kept as Latin-1: this gives back the bytes that came.
        joined = urlsplit(urljoin(base, quote(location, safe=_KEPT, encoding="latin-1", errors="replace")))
        url = urlunsplit(joined._replace(fragment=""))
        origin(url)
    except (ValueError, ConfigError):
        return None
    return None if "@" in joined.netloc or len(url) > LONGEST_URL else url


def check_url(url: str) -> None:
    """Refuse a URL that cannot be sent exactly as it stands.

    Raises:
        ConfigError: not absolute http or https; characters that are not percent-encoded; a fragment; a user name or
            password (they belong into ``auth=``, the ledger keeps URLs). The text does not hold the URL.
    """
    origin(url)
    if _PRINTABLE.fullmatch(url) is None:
        raise ConfigError("the URL holds blanks, control characters or characters outside ASCII: percent-encode them")
    if "#" in url:
        raise ConfigError("the URL holds a fragment, which is never sent: take it out, or write '#' as %23")
    if "@" in urlsplit(url).netloc:
        raise ConfigError("the URL holds a user name or password: give them as auth=, the ledger keeps URLs")
