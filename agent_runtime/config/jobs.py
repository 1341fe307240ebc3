"""How a tool's long-running jobs are recognised, followed and read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent_runtime.config import defaults
from agent_runtime.config._checks import Duration, check_settings, seconds, settle
from agent_runtime.errors import ConfigError

JobStatus = Literal["running", "succeeded", "completed_with_errors", "failed", "cancelled", "unknown"]


def compact(word: str) -> str:
    """Return a word of a job's state without case and separators: ``Timed-Out`` and ``timed_out`` are one.

    A whole number keeps its sign: ``-1`` is not ``1``.
    """
    if word.removeprefix("-").isdecimal():
        return word
    return "".join(char for char in word.lower() if char not in " -_")


def _check_number(owner: str, name: str, value: float | None) -> None:
    """Raise `ConfigError` for a number that is no usable wait or share: negative, infinite, NaN."""
    if value is not None and not 0 <= value < math.inf:
        msg = f"{owner}: {name} takes a finite number of at least 0, or None"
        raise ConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """An answer as an adapter sees it: headers by lower-case name, the body as a JSON value (None if it is none)."""

    status: int
    headers: Mapping[str, str]
    body: Any
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """What is needed to follow a job: where to ask (absolute or relative), and its id.

    Attributes:
        poll_after: seconds until the first poll, or None.
        estimated: seconds that the job is said to take, or None.

    Raises:
        ConfigError: a value of another type, or a number that is negative, infinite or NaN.
    """

    url: str | None = None
    job_id: str | None = None
    poll_after: float | None = None
    estimated: float | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        _check_number("JobStart", "poll_after", self.poll_after)
        _check_number("JobStart", "estimated", self.estimated)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReading:
    """What one look at a job says.

    Attributes:
        status: ``running`` also for every word that is not known; ``unknown``: it has ended, and nobody can tell how.
        result: of an ended job, as a JSON value; ``has_result`` tells "none came" from "the result is null".
        result_url: where the result has to be fetched from, or None.
        error: what went wrong, as a JSON value.
        progress: per cent, or None.
        poll_after: seconds until the next poll at the earliest, or None.
        counts: of a job done in part, for example processed, succeeded, failed.
        errors_url: where the errors of a job done in part are.
        message: the tool's own words.
        nothing_said: it ended without a word of how, and without a result.
        is_result: the body of the answer is itself the result.
        word: the tool's own word for an end that is ``unknown``.

    Raises:
        ConfigError: a status that is none of these words, such as the tool's own; a value of another type; a number
            that is negative, infinite or NaN.
    """

    status: JobStatus = "running"
    result: Any = None
    has_result: bool = False
    result_url: str | None = None
    error: Any = None
    progress: float | None = None
    poll_after: float | None = None
    counts: Mapping[str, Any] | None = None
    errors_url: str | None = None
    message: str | None = None
    nothing_said: bool = False
    is_result: bool = False
    word: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        _check_number("JobReading", "progress", self.progress)
        _check_number("JobReading", "poll_after", self.poll_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdapter:
    """A tool's own way with jobs.

    Attributes:
        start: reads the answer to a call; returns None if the usual forms are to be tried.
        read: reads the answer to a poll, or an event of the job's stream; never the answer to the call.
        callback: reads a callback's body; None = it is read as a status body.

    One that raises, or returns anything else, loses nothing: a start is then recognised by the usual forms, a poll is
    made again, and why stands in the step's evidence.
    """

    start: Callable[[JobAnswer], JobStart | None]
    read: Callable[[JobAnswer], JobReading]
    callback: Callable[[JobAnswer], JobReading] | None = None

    def __post_init__(self) -> None:
        check_settings(self)


class _Words(Mapping[str, JobStatus]):
    """A copy of declared words that nobody changes: policies are shared, hashed and pickled.

    ``compared``: the words as they are compared. Two that are one, with two meanings, are refused.
    """

    __slots__ = ("_told", "compared")

    def __init__(self, told: Mapping[str, JobStatus]) -> None:
        self._told = dict(told)
        self.compared: dict[str, JobStatus] = {}
        for word, status in told.items():
            name = compact(word)
            if not name or self.compared.setdefault(name, status) != status:
                msg = f"PollPolicy: words has {word!r}, which is empty or stands there twice with two meanings"
                raise ConfigError(msg)

    def __getitem__(self, word: str) -> JobStatus:
        return self._told[word]

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __hash__(self) -> int:
        return hash(frozenset(self._told.items()))

    def __repr__(self) -> str:
        return repr(self._told)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """How jobs are recognised and followed.

    Attributes:
        first: seconds until the first poll, where the tool gives no hint.
        factor, cap: each wait is ``factor`` times the last one, up to ``cap`` seconds. A hint of the tool is the least
            wait, above the cap too.
        bound: seconds from the stored start, by the wall clock; then the outcome is ``timed_out``, the job stays
            accepted.
        not_found_grace: seconds for which the status URL has to answer 404, from the start or from the last look that
            found the job, until the job counts as gone; it is looked at twice at least.
        on_200: a JSON body that looks like a job is one also under 200 and 201, not only under 202.
        adapter: the tool's own way with jobs; goes before all else.
        origins: other origins that may be polled, without credentials.
        failed_effect: what a job that failed or was cancelled may have left behind.
        cancel: how a job is asked to stop: ``DELETE`` of its status URL, or ``POST`` to it with ``:cancel`` or
            ``/cancel`` appended; None = it cannot be asked.
        webhook: the tool calls back when a job ends: name of the sender that is believed, as ``source=`` of
            `agent_runtime.webhooks.app` gives it; True = ``default``. A status URL is polled beside it, at ``cap``.
        stream: member of the start's body that holds the URL of its server-sent events, or None. While the stream
            breaks, the status URL is polled. Needs the extra ``sse``.
        words: what the tool's own words for a job's state mean, for example ``{"archived": "succeeded"}``; they go
            before the usual ones. Case, blanks, hyphens and underscores do not count. ``{"3": "failed"}`` is also the
            number 3. A copy is kept.
    """

    first: Duration = defaults.FIRST_POLL
    factor: float = defaults.POLL_FACTOR
    cap: Duration = defaults.POLL_CAP
    bound: Duration = defaults.POLL_BOUND
    not_found_grace: Duration = defaults.NOT_FOUND_GRACE
    on_200: bool = False
    adapter: JobAdapter | None = None
    origins: tuple[str, ...] = ()
    failed_effect: Literal["none", "possible"] = "possible"
    cancel: Literal["DELETE", "POST:cancel", "POST/cancel"] | None = None
    webhook: bool | str = False
    stream: str | None = None
    words: Mapping[str, JobStatus] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)
        settle(
            self,
            first=seconds("first", self.first),
            factor=seconds("factor", self.factor, least=1.0),
            cap=seconds("cap", self.cap, zero=False),
            bound=seconds("bound", self.bound, zero=False),
            not_found_grace=seconds("not_found_grace", self.not_found_grace),
        )
        for origin in self.origins:
            if not origin.startswith(("https://", "http://")):
                msg = f"origins must be like https://host, not {origin!r}"
                raise ConfigError(msg)
        if self.webhook == "":
            raise ConfigError("webhook must be True, False or the name of a source, not an empty text")
        object.__setattr__(self, "words", _Words(self.words))

    @property
    def own_words(self) -> Mapping[str, JobStatus]:
        """The declared words as they are compared."""
        assert isinstance(self.words, _Words)
        return self.words.compared

    @property
    def source(self) -> str | None:
        """The name of the sender whose callbacks are believed, or None."""
        if isinstance(self.webhook, str):
            return self.webhook
        return "default" if self.webhook else None
