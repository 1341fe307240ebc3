"""How long a server asks to wait, read from an answer's headers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_tz
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_runtime._model import Headers

# From ten decimal digits of seconds on (317 years) a wait is as good as endless; it is parked, never slept.
ABSURD = 1e10

# float() takes "1e3", "inf", "nan", "1_000" and Arabic digits, str.isdigit() takes "²": hence ASCII classes.
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")

# The three forms of RFC 9110 section 5.6.7; email.utils alone reads far more than dates.
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ZONE = "(?:GMT|UTC|UT|[+-][0-9]{4})"
_TIME = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_DATES = re.compile(
    rf"[A-Z][a-z]{{2}}, [0-9]{{2}} {_MONTH} [1-9][0-9]{{3}} {_TIME} {_ZONE}"
    rf"|[A-Z][a-z]{{5,8}}, [0-9]{{2}}-{_MONTH}-[0-9]{{2}} {_TIME} {_ZONE}"
    rf"|[A-Z][a-z]{{2}} {_MONTH} [ 0-9][0-9] {_TIME} [1-9][0-9]{{3}}",
)
_NO_DATE = (0,) * 10

_IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")
_LIMIT_MEMBER = re.compile(
    r"""[ \t]*(?:"[^"\\]*"|[A-Za-z*][A-Za-z0-9_.:/*-]*)((?:;[ \t]*[a-z*][a-z0-9_.*-]*=[^;,"]+)*)[ \t]*"""
)
_DAY = 86_400.0


def retry_after(headers: Headers, *, now: float, status: int = 429) -> float | None:
    """Return the seconds that a server asks to wait, counted from the receipt of its answer.

    In this order: ``Retry-After`` (of several the longest), the vendors' headers in milliseconds, ``RateLimit`` with
    nothing left, and on 429 and 403 ``X-RateLimit-Reset`` with nothing left. What cannot be read is as if absent.

    Args:
        headers: the answer's headers.
        now: UTC epoch seconds at receipt. Dates count from the server's own ``Date`` where it is within a day of it.
        status: the answer's status.

    Returns:
        Seconds, never negative and never NaN; ``math.inf`` for absurdly long; None if nothing is asked.

    Source: RFC 9110 section 10.2.3; draft-ietf-httpapi-ratelimit-headers-11; vendors' practice for the rest.
    """
    base = _base(headers, now)
    waits = [
        [_seconds_or_date(value, base) for value in _all(headers, "retry-after")],
        [_scaled(_number(value), 0.001) for name in _IN_MILLISECONDS for value in _all(headers, name)],
        [_rate_limit(value) for value in _all(headers, "ratelimit")],
        [_reset(headers, base)] if status in {403, 429} else [],
    ]
    for found in waits:
        valid = [wait for wait in found if wait is not None]
        if valid:
            longest = max(valid)
            return longest if longest < ABSURD else math.inf
    return None


def http_date(text: str) -> float | None:
    """Return an HTTP date as UTC epoch seconds, or None if it is none of the three forms (RFC 9110 section 5.6.7)."""
    text = text.strip(" \t")
    if _DATES.fullmatch(text) is None:
        return None
    parts = parsedate_tz(text) or _NO_DATE
    try:
        moment = datetime(*parts[:6], tzinfo=UTC)
    except ValueError:  # 32 January, hour 25, `_NO_DATE`
        return None
    return moment.timestamp() - (parts[9] or 0)


def _all(headers: Headers, name: str) -> list[str]:
    # Each line on its own: httpx joins two lines into "5, 10", which is no number.
    return [value.strip(" \t") for key, value in headers if key.lower() == name]


def _base(headers: Headers, now: float) -> float:
    """Return the moment that dates count from: the server's clock unless it is more than a day off."""
    for value in _all(headers, "date"):
        date = http_date(value)
        if date is not None and abs(date - now) <= _DAY:
            return date
    return now


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text)  # of any number of digits: too many give inf, no error


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


def _until(date: float | None, base: float) -> float | None:
    return None if date is None else max(0.0, date - base)


def _seconds_or_date(text: str, base: float) -> float | None:
    seconds = _number(text)
    return seconds if seconds is not None else _until(http_date(text), base)


def _rate_limit(text: str) -> float | None:
    """Return the longest ``t`` among the policies of a ``RateLimit`` list that have nothing left; malformed = None."""
    waits: list[float] = []
    at = 0
    while at <= len(text):
        member = _LIMIT_MEMBER.match(text, at)
        if member is None:
            return None
        named = dict(part.strip(" \t").split("=", 1) for part in member[1].split(";") if part)
        left, wait = _number(named.get("r", "")), _number(named.get("t", "").strip(" \t"))
        if left == 0 and wait is not None:
            waits.append(wait)
        if member.end() < len(text) and text[member.end()] != ",":
            return None
        at = member.end() + 1
    return max(waits, default=None)


def _reset(headers: Headers, base: float) -> float | None:
    """Return the wait of ``X-RateLimit-Reset``, which has no single meaning: told apart by size."""
    if not any(_number(value) == 0 for value in _all(headers, "x-ratelimit-remaining")):
        return None
    waits: list[float] = []
    for text in _all(headers, "x-ratelimit-reset"):
        number = _number(text)
        if number is None:
            wait = _until(http_date(text), base)
        elif number >= 1e12:
            wait = _until(number / 1000, base)
        elif number >= 1e9:
            wait = _until(number, base)
        else:
            wait = number
        if wait is not None:
            waits.append(wait)
    return max(waits, default=None)
