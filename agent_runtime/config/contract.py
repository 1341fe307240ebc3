"""What a tool promises: it decides what may be done with an unsettled operation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from agent_runtime._model.key_formats import Format, check_format
from agent_runtime.config import defaults
from agent_runtime.config._checks import Duration, check_settings, count, header_name, seconds, settle
from agent_runtime.config.jobs import PollPolicy
from agent_runtime.config.policies import RetryPolicy, Timeouts
from agent_runtime.errors import ConfigError

Scheme = Literal["jcs", "python-json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderCarrier:
    """The key travels in a request header.

    Attributes:
        name: of the header.
        style: ``raw``, as every deployed service reads it, or ``structured``: a quoted string (the IETF draft's form).
        max_length: longest key that the service takes, in characters.
        pattern: regular expression that the whole key must match, or None.
    """

    name: str = "Idempotency-Key"
    style: Literal["raw", "structured"] = "raw"
    max_length: int = 255
    pattern: str | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        header_name(self.name)
        count("HeaderCarrier: max_length", self.max_length)
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                msg = f"pattern {self.pattern!r} is no regular expression: {error}"
                raise ConfigError(msg) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayMark:
    """A header whose value says that the answer is the stored one for the key."""

    header: str
    value: str = "true"

    def __post_init__(self) -> None:
        check_settings(self)
        header_name(self.header)


STANDARD_MARKS: Final = (
    ReplayMark(header="Idempotent-Replayed"),
    ReplayMark(header="Idempotency-Replayed"),
    ReplayMark(header="Idempotent-Replay"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """The tool honours a key: a repeat under the same key has no second effect.

    Attributes:
        format: ``composite`` (``<session id>:<label>:<args_hash>``), ``sha256`` or ``uuid``.
        carrier: where the key travels.
        scheme: canonical JSON that the tool re-hashes: ``jcs`` or ``python-json``.
        lifetime: seconds for which the tool keeps a key, from the first request.
        in_progress_ttl: seconds after which the tool forgets that a request is running; None = held until it ended.
        max_execution: longest run of its handler in seconds; None = never longer than ``in_progress_ttl``.
        replay_marks: headers beside the usual three that mark a stored answer.
        key_bound_to_token: the tool scopes keys by token, so that a resend under a new token is a new request.
    """

    format: Format = "composite"
    carrier: HeaderCarrier = field(default_factory=HeaderCarrier)
    scheme: Scheme = "jcs"
    lifetime: Duration = defaults.KEY_LIFETIME
    in_progress_ttl: Duration | None = None
    max_execution: Duration | None = None
    replay_marks: tuple[ReplayMark, ...] = ()
    key_bound_to_token: bool = False

    def __post_init__(self) -> None:
        check_settings(self)
        settle(self, lifetime=seconds("lifetime", self.lifetime, zero=False))
        for name in ("in_progress_ttl", "max_execution"):
            value = getattr(self, name)
            if value is not None:
                settle(self, **{name: seconds(name, value, zero=False)})
        quotes = 2 if self.carrier.style == "structured" else 0
        check_format(self.format, max_length=self.carrier.max_length - quotes, pattern=self.carrier.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a JSON body and the value it must have; ``name`` may be a path like ``data.state``."""

    name: str
    equals: str | int | bool

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.name:
            raise ConfigError("Member: name is empty; write the member's name, or a path like 'data.state'")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLookup:
    """Asks the tool by GET what became of an operation; request and reading are data.

    Attributes:
        url: absolute, or a path on the tool's origin. ``{key}``, ``{session}``, ``{step}`` and ``{args.NAME}`` are
            filled in, percent-encoded.
        done: says that the operation ended; None = any 2xx that is not ``running`` or ``absent``.
        running: says that it still runs: wait.
        absent: says in a 2xx body that there is none; a 404 always says so.
        result: member that holds the stored answer's body; None = the look-up's own body.
        status: member that holds the stored answer's HTTP status (400 and above: it failed); None = it succeeded.
        absence_is_proof: absence, seen twice after ``settle_after``, proves that nothing was applied.
        settle_after: seconds that the target may lag behind; required with ``absence_is_proof``.
        confirm: a second look-up that has to agree before absence counts.
    """

    url: str
    done: Member | None = None
    running: Member | None = None
    absent: Member | None = None
    result: str | None = None
    status: str | None = None
    absence_is_proof: bool = False
    settle_after: Duration | None = None
    confirm: HttpLookup | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.url:
            raise ConfigError("HttpLookup: url is empty; write a URL or a path, such as '/operations/{key}'")
        if self.absence_is_proof and self.settle_after is None:
            raise ConfigError("absence_is_proof=True needs settle_after=: the seconds that the target may lag behind")
        if self.settle_after is not None:
            settle(self, settle_after=seconds("settle_after", self.settle_after))
        for name in re.findall(r"\{([^}]*)\}", self.url):
            if name not in {"key", "session", "step"} and not name.startswith("args."):
                msg = f"look-up URL has {{{name}}}; known are {{key}}, {{session}}, {{step}} and {{args.NAME}}"
                raise ConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContract:
    """What a tool promises to its callers.

    Attributes:
        kind: ``write`` changes the world, ``read`` does not.
        idempotency: how it honours keys; None = it honours none.
        lookup: how to ask what became of an operation; None = it cannot be asked.
        on_409: what a 409 or 423 means where the body does not tell: None = ``in_progress`` with keys, else a refusal.
        on_5xx: what a 5xx means: ``unknown``, ``not_applied`` or ``stored`` (a resend fetches the stored end). Not of
            502, 503 and 504, which others than the tool send: lost answers with keys, ambiguous without.
        in_progress_codes, key_reused_codes, half_done_codes: problem types or vendor codes that say so, beside the
            known ones.
        stored_failures: statuses that are the stored end of the key wherever they come, though unmarked.
        version: of the contract and content; goes to the ledger.
    """

    kind: Literal["read", "write"] = "write"
    idempotency: Idempotency | None = None
    lookup: HttpLookup | None = None
    on_409: Literal["in_progress", "conflict", "replay"] | None = None
    on_5xx: Literal["unknown", "not_applied", "stored"] = "unknown"
    in_progress_codes: tuple[str, ...] = ()
    key_reused_codes: tuple[str, ...] = ()
    half_done_codes: tuple[str, ...] = ()
    stored_failures: tuple[int, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    polling: PollPolicy = field(default_factory=PollPolicy)
    version: str = "1"

    def __post_init__(self) -> None:
        check_settings(self)
        for status in self.stored_failures:
            if not 400 <= status <= 599:
                msg = f"ToolContract: stored_failures takes HTTP statuses from 400 to 599, not {status}"
                raise ConfigError(msg)
        if self.on_5xx == "stored" and self.idempotency is None:
            raise ConfigError("on_5xx='stored' needs idempotency=: only a tool that honours keys stores its end")

    @property
    def honours_keys(self) -> bool:
        """Whether a repeat under the same key has no second effect."""
        return self.idempotency is not None
