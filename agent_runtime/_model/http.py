"""What goes to a tool and what comes back, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request as it is frozen in the ledger: no secrets, the key included.

    Tokens, API keys and signatures are added for each send, over these bytes.
    """

    method: str
    url: str
    body: bytes = b""
    headers: Headers = ()

    def with_headers(self, extra: Headers) -> Request:
        """Return this request with ``extra`` headers; a name that stands already is replaced."""
        names = {name.lower() for name, _ in extra}
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in names)
        return replace(self, headers=kept + extra)


class BodyState(StrEnum):
    """How an answer's body arrived."""

    WHOLE = "whole"
    CUT = "cut"  # the connection ended, or the deadline passed, before the body did
    OVERSIZED = "oversized"  # more bytes than the body limit; ``body`` holds the beginning
    UNDECODABLE = "undecodable"  # a content encoding that cannot be undone


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a tool answered: the status line and headers were seen, the body as far as it came."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    body_state: BodyState = BodyState.WHOLE
    url: str = ""  # where it came from, after redirects; empty = the request's own URL

    def header(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def header_list(self, name: str) -> list[str]:
        """Return all values of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailure:
    """No status line came back.

    Attributes:
        maybe_sent: whether the request may have reached the tool; False only where that is certain.
        error: class name of what was raised, for example ``ReadTimeout``.
        detail: its text, with URLs and header values taken out.
        interrupted: the caller was cancelled or interrupted; the exception is raised again once this is recorded.
    """

    maybe_sent: bool
    error: str
    detail: str = ""
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a function tool gave back: ``value`` is its result as JSON text."""

    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """What a function tool raised.

    Attributes:
        proof: the exception says that the effect certainly did not happen.
        transport: it is an HTTP client's error: with ``proof`` nothing was sent, without it may have been.
        error: class name; ``detail``: its text; ``retry_after``: seconds, or None.
        interrupted: the caller was cancelled or interrupted, or an error of ours passes through; it is raised again
            once this is recorded.
    """

    proof: bool
    error: str
    transport: bool = False
    detail: str = ""
    retry_after: float | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """What is needed to follow a job: where to ask, and its id.

    Attributes:
        url: absolute status URL, or None where the tool gave none.
        job_id: the tool's name for the job, or None.
        protocol: how its answers are read: ``location``, ``operation-location``, ``azure-async``, ``aip``, ``body``,
            ``resource``, ``adapter``, ``bare``.
        started_at: the stored start, UTC epoch seconds; the poll bound counts from here.
        poll_after: seconds until the first poll, as the tool said, or None.
        estimated: seconds that the job is said to take, or None.
        polls: looks at the job so far; ``wait``: seconds before the last of them.
        not_before: the tool asked not to be looked at before this moment (UTC epoch seconds), or None.
        looked_at: when it was looked at last (UTC epoch seconds), or None.
        detached: nobody waits for it; it blocks nothing.
        progress, message: what the last look said.
        counts, errors_url: of a job done in part.
        result_url: where the result will stand, if the start told that beside the status URL.
        stream: URL of its server-sent events, or None.
        obstacle: why its URL cannot be asked, or None: it is ``elsewhere`` (on an origin that is not allowed), it
            ``redirected`` to the origin ``elsewhere``, its answer is ``too_long``, what the tool gave is ``unusable``
            as a URL, or the tool's ``adapter`` could not read the start (why stands in ``elsewhere``).
        id_from: member of the start's body that held the job's id, or None.
        found_at: moment of the last look that found the job (UTC epoch seconds), or None; ``missed``: looks since then
            that the tool answered by 404.
    """

    url: str | None
    job_id: str | None
    protocol: str
    started_at: float = 0.0
    poll_after: float | None = None
    estimated: float | None = None
    polls: int = 0
    wait: float = 0.0
    not_before: float | None = None
    looked_at: float | None = None
    detached: bool = False
    progress: float | None = None
    message: str | None = None
    counts: Mapping[str, Any] | None = None
    errors_url: str | None = None
    result_url: str | None = None
    stream: str | None = None
    obstacle: Literal["elsewhere", "redirected", "too_long", "unusable", "adapter"] | None = None
    elsewhere: str | None = None
    id_from: str | None = None
    found_at: float | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event of a stream of server-sent events."""

    data: str
    event: str = ""
    id: str = ""
