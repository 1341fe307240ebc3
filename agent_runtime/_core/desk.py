"""What the calls of one session object share, and what one call brings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from agent_runtime._core.book import Book
from agent_runtime._core.places import Ask
from agent_runtime._core.tokens import Subject
from agent_runtime.config import FunctionTool
from agent_runtime.config._checks import function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent_runtime._core.requests import Frozen, Validated
    from agent_runtime.config import AnyTool


@dataclass(slots=True)
class Report:
    """What a session object's calls did, by label.

    Attributes:
        replayed: delivered from the ledger without a request.
        sent: sent for the first time.
        resent: sent again under the same key, because an earlier attempt may have been applied.
        settled: found unsettled and settled.
        unknown, pending, failed: what they are now, by the label of the first call; each operation stands once,
            also where a second position joined it.
        refused: recorded as not started.
        not_reached: recorded, and no call of this object has come to them.
    """

    replayed: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    resent: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the calls of one session object share.

    Attributes:
        subject: on whose behalf the session calls.
        again: ids of operations that failed before this resume and are issued again when a call reaches them.
        words: sentences for a model that replace the English ones.
        standing: the report's list that an operation stands in, and its label there, by the operation's id.
        keyed: labels of positions whose calls were answered by the caller's own key: they have no rows of their own.
    """

    book: Book
    session_id: str
    fence: int
    body_limit: int
    secret: bytes | None
    subject: Subject = field(default_factory=Subject)
    words: Mapping[str, str] | None = None
    report: Report = field(default_factory=Report)
    keyed: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    standing: dict[str, tuple[list[str], str]] = field(default_factory=dict)


FollowMode = Literal["wait", "next", "once", "detach"]


@dataclass(frozen=True, slots=True)
class Following:
    """How a call follows a job: ``wait`` for its end or the ``next`` look, look ``once``, or ``detach``.

    ``listener`` hears of each look; ``patience``: seconds from now that are waited beyond the bound.
    """

    mode: FollowMode = "wait"
    listener: Callable[[Any], Any] | None = None
    patience: float = 0.0

    def __post_init__(self) -> None:
        if self.listener is not None:
            function("on_progress", self.listener)


WAITING: Final = Following()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, checked and ready to be placed.

    Attributes:
        fills: values made once for this operation.
        frozen: the request as it will be sent.
        principal: the identity that it will be sent under.
        business_key: the caller's own key, or None.
        expires_at: UTC epoch seconds after which no attempt begins, or None.
    """

    tool: AnyTool
    validated: Validated
    frozen: Frozen
    principal: str
    branch: str = ""
    at: str | None = None
    business_key: str | None = None
    expires_at: float | None = None
    goes_on: bool = False
    following: Following = WAITING

    def ask(self) -> Ask:
        """Return what its place depends on."""
        request = self.frozen.request
        fills = not isinstance(self.tool, FunctionTool) and bool(self.tool.fill)
        return Ask(
            tool=self.tool.name,
            is_read=self.tool.is_read,
            fingerprint=self.validated.fingerprint,
            args_hash=None if fills else self.frozen.args_hash,
            target=(request.method, request.url) if request is not None else None,
            branch=self.branch,
            at=self.at,
            business_key=self.business_key,
            goes_on=self.goes_on,
        )
