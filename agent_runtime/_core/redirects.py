"""Our one rule for redirects: same origin, 303 by GET, 307 and 308 as they were; anything else is not followed.

Source: RFC 9110 section 15.4. A 301 or 302 to a write is not followed: clients disagree on what they would repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agent_runtime._core.urls import resolve, same_origin
from agent_runtime._model import Request

if TYPE_CHECKING:
    from agent_runtime._model import Answer

MOST: Final = 5


def redirect_of(request: Request, answer: Answer) -> Request | None:
    """Return the request that follows a redirect, or None if it is none or is not to be followed."""
    location = answer.header("Location")
    if not 300 <= answer.status < 400 or not location:
        return None
    url = resolve(answer.url or request.url, location)
    if url is None or url == request.url or not same_origin(url, request.url):
        return None
    if answer.status == 303:
        return Request(method="GET", url=url, headers=(("Accept", "application/json"),))
    if answer.status in {307, 308} or (answer.status in {301, 302} and request.method in {"GET", "HEAD"}):
        return Request(method=request.method, url=url, body=request.body, headers=request.headers)
    return None


def sent_away(answer: Answer, asked: str) -> str | None:
    """Return where a redirect leads that is not followed because it leaves the origin; None if the answer is none.

    Empty where it leads to what is no URL that could be asked at all. ``asked``: the URL that was asked first.
    """
    location = answer.header("Location")
    if not 300 <= answer.status < 400 or not location:
        return None
    base = answer.url or asked
    url = resolve(base, location)
    if url is None:
        return ""
    return None if same_origin(url, base) else url
